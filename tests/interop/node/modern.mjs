// TypeScript SDK, second major version, under 2026-07-28. Usage: node modern.mjs URL ADMIN-URL FIXTURES-URL
// The first URL is the built-in server's, with its admin listener; the last has what that one lacks: a tool that asks its
// client, one that logs, resources.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Checks, assert, equal, publish, settlesAt, untilMetric } from './checks.mjs';

const REVISION = '2026-07-28';
const QUIET_MS = 400;
const CHANGES = ['tools', 'prompts', 'resources'].map(kind => `notifications/${kind}/list_changed`);
const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';
const [url, admin, fixtures] = process.argv.slice(2);

const checks = new Checks('typescript-sdk-v2-modern');
let main;
await checks.check('discover', async () => {
  main = await connect(url, { pin: REVISION });
  equal(main.client.getServerVersion().name, 'moorline', 'server name');
  const discovered = await main.client.discover();
  assert(discovered.supportedVersions.includes(REVISION), `versions: ${discovered.supportedVersions}`);
  equal(main.transport.sessionId, undefined, 'session');
});
if (!main) checks.finish();
await checks.check('a client that may choose takes this era', async () => {
  const { client } = await connect(url, 'auto');
  equal(client.getNegotiatedProtocolVersion(), REVISION, 'version');
  await client.close();
});
await checks.check('list tools', async () => {
  const { tools } = await main.client.listTools();
  equal(tools.map(tool => tool.name).sort(), ['add', 'echo', 'notify', 'slow'], 'tool names');
});
await checks.check('call', () => callTools(main));
await checks.check('unknown tool is an error', async () => {
  const call = main.client.callTool({ name: 'no-such-tool', arguments: {} });
  equal(await call.then(() => 'result', error => error.code), -32602, 'outcome');
});
await checks.check('a method of the other era is unknown', async () => {
  equal(await main.client.ping().then(() => 'answered', () => 'refused'), 'refused', 'ping');
});
await checks.check('progress', progress);
await checks.check('many calls at once', async () => {
  const echo = async message => equal(textOf(await call(main, 'echo', { message })), message, 'answer');
  await Promise.all(Array.from({ length: 20 }, (_, i) => echo(`call ${i}`)));
});
await checks.check('cancelled by the end of its connection', cancel);
await checks.check('listen, and each published change once', listen);
await checks.check('a listen stream has what it asked for and no more', listenToOne);
await checks.check('nothing is left of streams that were closed', () =>
  untilMetric(admin, 'moorline_streams_held{kind="listen"}', 0),
);
await checks.check('the level of logs is a matter of the request', logs);
await checks.check('a question to the user comes as input_required', elicitation);
await checks.check('resources', resources);
await checks.check('a resource that is listened to', resourceUpdates);
checks.finish();

/** A connected client that records what it hears. */
async function connect(url, mode, capabilities = {}) {
  const client = new Client({ name: 'moorline-interop', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
  const heard = [];
  client.fallbackNotificationHandler = async notification => void heard.push(notification);
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return { client, transport, heard };
}

function call({ client }, name, args, options) {
  return client.callTool({ name, arguments: args }, options);
}

function textOf(result) {
  return result.content[0].text;
}

async function callTools(who) {
  const message = 'Grüße, 世界 \u2028 "quoted"';
  equal(textOf(await call(who, 'echo', { message })), message, 'echo');
  equal(Number(textOf(await call(who, 'add', { a: 19, b: 23 }))), 42, 'add');
}

async function progress() {
  const seen = [];
  await call(main, 'slow', { seconds: 0.6, steps: 3 }, { onprogress: ({ progress }) => seen.push(progress) });
  equal(seen, [1, 2, 3], 'progress');
}

/** What is cancelled is not only forgotten by the client: nothing works on it any more. */
async function cancel() {
  const controller = new AbortController();
  const slow = call(main, 'slow', { seconds: 20, steps: 20 }, { signal: controller.signal });
  const outcome = slow.then(() => 'answered', () => 'cancelled');
  await untilMetric(admin, 'moorline_calls_in_flight', 1);
  controller.abort('enough');
  equal(await outcome, 'cancelled', 'outcome');
  await untilMetric(admin, 'moorline_calls_in_flight', 0);
  await callTools(main);
}


async function listen() {
  const subscription = await main.client.listen({
    toolsListChanged: true,
    promptsListChanged: true,
    resourcesListChanged: true,
  });
  const all = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  equal(subscription.honoredFilter, all, 'acknowledged');
  main.heard.length = 0;
  for (const method of CHANGES) {
    const counts = await publish(admin, method);
    equal(counts.listens, 1, 'listen streams of the publication');
  }
  await settlesAt(() => main.heard.length, CHANGES.length, QUIET_MS, 'notifications');
  equal(main.heard.map(({ method }) => method), CHANGES, 'methods');
  await subscription.close();
  equal(await subscription.closed, 'local', 'end');
}

async function listenToOne() {
  const subscription = await main.client.listen({ promptsListChanged: true });
  main.heard.length = 0;
  for (const method of CHANGES) await publish(admin, method);
  await settlesAt(() => main.heard.length, 1, QUIET_MS, 'notifications');
  equal(main.heard[0].method, CHANGES[1], 'method');
  await subscription.close();
}

async function logs() {
  const who = await connect(fixtures, { pin: REVISION });
  const logged = () => who.heard.filter(({ method }) => method === 'notifications/message').length;
  const params = { name: 'test_logging_tool', arguments: {} };
  for (const [level, expected] of [[undefined, 0], ['error', 0], ['info', 1]]) {
    who.heard.length = 0;
    await who.client.callTool(level ? { ...params, _meta: { [LOG_LEVEL]: level } } : params);
    equal(logged(), expected, `messages at level ${level}`);
  }
  await who.client.close();
}

async function elicitation() {
  const who = await connect(fixtures, { pin: REVISION }, { elicitation: { form: {} } });
  const questions = [];
  who.client.setRequestHandler('elicitation/create', async request => {
    questions.push(request.params.message);
    return { action: 'accept', content: { username: 'ada', email: 'ada@example.org' } };
  });
  const result = await call(who, 'test_elicitation', { message: 'Who are you?' });
  equal(questions, ['Who are you?'], 'questions');
  assert(textOf(result).includes('ada'), `the answer: ${textOf(result)}`);
  await who.client.close();
}

async function resources() {
  const { client } = await connect(fixtures, { pin: REVISION });
  const { resources } = await client.listResources();
  assert(resources.some(({ uri }) => uri === 'test://static-text'), 'test://static-text is not listed');
  const { contents } = await client.readResource({ uri: 'test://static-text' });
  assert(contents[0].text.length > 0, 'no text');
  await client.close();
}

async function resourceUpdates() {
  const uri = 'test://watched-resource';
  const who = await connect(fixtures, { pin: REVISION });
  const subscription = await who.client.listen({ resourceSubscriptions: [uri] });
  equal(subscription.honoredFilter.resourceSubscriptions, [uri], 'acknowledged');
  await subscription.close();
  await who.client.close();
}

// Clients of either era and real stdio programs of either era behind the server: every pairing of
// docs/bringing-a-stdio-server.md. Usage: node pairings.mjs BINARY PYTHON
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as older from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OlderTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import * as newer from '@modelcontextprotocol/client';
import { behind } from './behind.mjs';
import { Checks, assert, equal, pause, settlesAt, until } from './checks.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const [binary, python] = process.argv.slice(2);
const checks = new Checks('pairings');
const WATCHED = 'test://watched';
const QUIET_MS = 300;
// A program that is loaded while all cores are busy takes its time.
const OPTIONS = { timeout: 50_000 };
const CAPABILITIES = { elicitation: { form: {} }, sampling: {} };

// The second speaks both, which makes it a program of an older revision here.
const SERVERS = {
  '2026-07-28': ['node', path.join(here, 'newer-server.mjs')],
  '2025-11-25': ['node', path.join(here, 'newer-server.mjs'), 'both'],
};

const CLIENTS = {
  '2025-11-25': {
    async connect(url) {
      const client = new older.Client({ name: 'moorline-interop', version: '1.0.0' }, { capabilities: CAPABILITIES });
      client.setRequestHandler(ElicitRequestSchema, elicited);
      client.setRequestHandler(CreateMessageRequestSchema, sampled);
      const transport = new OlderTransport(new URL(url));
      await client.connect(transport, OPTIONS);
      return { client, close: () => transport.terminateSession().then(() => client.close()) };
    },
    call: (client, params, options) => client.callTool(params, undefined, { ...OPTIONS, ...options }),
    async listen(client) {
      await client.subscribeResource({ uri: WATCHED });
      return () => client.unsubscribeResource({ uri: WATCHED });
    },
  },
  '2026-07-28': {
    async connect(url) {
      const settings = { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: '2026-07-28' } } };
      const client = new newer.Client({ name: 'moorline-interop', version: '1.0.0' }, settings);
      client.setRequestHandler('elicitation/create', elicited);
      client.setRequestHandler('sampling/createMessage', sampled);
      await client.connect(new newer.StreamableHTTPClientTransport(new URL(url)), OPTIONS);
      return { client, close: () => client.close() };
    },
    call: (client, params, options) => client.callTool(params, { ...OPTIONS, ...options }),
    async listen(client) {
      const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [WATCHED] });
      equal(subscription.honoredFilter, { toolsListChanged: true, resourceSubscriptions: [WATCHED] }, 'acknowledged');
      return () => subscription.close();
    },
  },
};

for (const [speaks, command] of Object.entries(SERVERS)) {
  await with_(`program of ${speaks}`, command, async (name, at) => {
    for (const [revision, side] of Object.entries(CLIENTS)) {
      const check = (what, body) => checks.check(`${name}, client of ${revision}: ${what}`, () => with_client(side, at, body));
      await check('tools', tools);
      await check('resources', resources);
      await check('prompts and completion', prompts);
      await check('progress', progress);
      await check('cancellation', cancellation);
      await check('elicitation', elicitation);
      await check('sampling', sampling);
      await check('changes', changes);
    }
    await checks.check(`${name}: who shares it`, () => sharing(at, speaks));
  });
}
// A program of another SDK that knows nothing newer.
await with_('program of the Python SDK', [python, path.join(here, '../python/stdio_server.py')], async (name, at) => {
  for (const [revision, side] of Object.entries(CLIENTS)) {
    const check = (what, body) => checks.check(`${name}, client of ${revision}: ${what}`, () => with_client(side, at, body));
    await check('calls', async call => equal(Number(textOf(await call('add', { a: 19, b: 23 }))), 42, 'add'));
    await check('progress', progress);
    await check('elicitation', elicitation);
    await check('sampling', sampling);
  }
});
checks.finish();

// --- Scaffolding --------------------------------------------------------------------------------

async function with_(name, command, body) {
  let at;
  await checks.check(`${name}: start`, async () => (at = await behind(binary, ['--shards', '2'], command)));
  if (!at) return;
  await body(name, at);
  await checks.check(`${name}: nothing is left behind`, () => at.stop());
}

/** Runs `body` with a way to call tools, the client, and what is special about it. */
async function with_client(side, at, body) {
  const { client, close } = await side.connect(at.url);
  const heard = [];
  client.fallbackNotificationHandler = async notification => void heard.push(notification.method);
  try {
    await body((name, args = {}, options = {}) => side.call(client, { name, arguments: args }, options), client, side, heard);
  } finally {
    await close();
  }
}

function elicited() {
  return { action: 'accept', content: { name: 'Ada' } };
}

function sampled() {
  return { model: 'm', role: 'assistant', content: { type: 'text', text: 'the model said this' } };
}

function textOf(result) {
  return result.content[0].text;
}

// --- Checks -------------------------------------------------------------------------------------

async function tools(call, client) {
  assert(client.getServerVersion()?.name === 'newer', `the server: ${JSON.stringify(client.getServerVersion())}`);
  const { tools } = await client.listTools();
  assert(tools.some(({ name }) => name === 'echo'), 'no echo');
  const message = 'Grüße, 世界 \u2028 "quoted"';
  equal(textOf(await call('echo', { message })), `Echo: ${message}`, 'echo');
  equal(textOf(await call('list')), '[1]', 'output that is no object');
  const outcome = await call('no-such-tool').then(result => result.isError, error => error.code === -32602);
  assert(outcome, 'no error');
}

async function resources(_call, client, side) {
  const { resources } = await client.listResources();
  equal(resources.map(({ uri }) => uri), [WATCHED], 'resources');
  const { resourceTemplates } = await client.listResourceTemplates();
  equal(resourceTemplates.map(({ uriTemplate }) => uriTemplate), ['note://{index}'], 'templates');
  const { contents } = await client.readResource({ uri: 'note://7' });
  equal(contents[0].text, 'read note://7', 'contents');
  const code = await client.readResource({ uri: 'test://missing' }).then(() => 'read', error => error.code);
  // A program of an older revision has the last word on that where its client is of one, too.
  const codes = side === CLIENTS['2025-11-25'] ? [-32002, -32602] : [-32602];
  assert(codes.includes(code), `an unknown resource: ${code}`);
}

async function prompts(_call, client) {
  const { prompts } = await client.listPrompts();
  equal(prompts.map(({ name }) => name), ['review'], 'prompts');
  const { messages } = await client.getPrompt({ name: 'review', arguments: { language: 'rust' } });
  equal(messages[0].content.text, 'Review this rust', 'messages');
  const ref = { type: 'ref/prompt', name: 'review' };
  const { completion } = await client.complete({ ref, argument: { name: 'language', value: 'p' } });
  equal(completion.values, ['python', 'perl'], 'completion');
}

async function progress(call) {
  const seen = [];
  await call('count', { steps: 3, seconds: 0.3 }, { onprogress: ({ progress }) => seen.push(progress) });
  equal(seen, [1, 2, 3], 'progress');
}

async function cancellation(call, _client, side) {
  const controller = new AbortController();
  const slow = call('count', { steps: 20, seconds: 20 }, { signal: controller.signal });
  const outcome = slow.then(() => 'answered', () => 'cancelled');
  setTimeout(() => controller.abort('enough'), 200);
  equal(await outcome, 'cancelled', 'outcome');
  equal(textOf(await call('echo', { message: 'after' })), 'Echo: after', 'echo');
  // What is cancelled by the end of its connection is known to be after a write that fails. Until then another call's question
  // would have two calls that it may be for.
  if (side === CLIENTS['2026-07-28']) await pause(2_500);
}

async function elicitation(call) {
  equal(textOf(await call('ask_name')), 'Ada', 'name');
}

async function sampling(call) {
  assert(textOf(await call('ask_model', { prompt: 'Hi' })).includes('the model said this'), 'another answer');
}

/** Each change is heard once; nothing is heard of what one does not listen to any more. */
async function changes(call, client, side, heard) {
  const stop = await side.listen(client);
  // The listener of a session is a stream of its own, which may be on its way yet.
  for (let tries = 0; heard.length === 0 && tries < 100; tries += 1) {
    await call('change');
    await pause(50);
  }
  await settlesQuietly(heard);
  heard.length = 0;
  await call('update');
  await settlesAt(() => heard.length, 1, QUIET_MS, 'notifications');
  equal(heard, ['notifications/resources/updated'], 'methods');
  await stop();
}

/** Waits until nothing more comes. */
async function settlesQuietly(heard) {
  let count;
  do {
    count = heard.length;
    await pause(QUIET_MS);
  } while (heard.length !== count);
}

/** How many processes three clients at a time have. */
async function sharing(at, speaks) {
  await until(() => at.processes().length <= 2, 20_000, () => `${at.processes()} are left`);
  const side = CLIENTS['2025-11-25'];
  const clients = await Promise.all([1, 2, 3].map(() => side.connect(at.url)));
  const pid = ({ client }) => side.call(client, { name: 'pid', arguments: {} }).then(textOf);
  const pids = new Set(await Promise.all(clients.map(pid)));
  // There are two threads, and each has one.
  assert(speaks === '2026-07-28' ? pids.size <= 2 : pids.size === 3, `${pids.size} processes`);
  await Promise.all(clients.map(({ close }) => close()));
}

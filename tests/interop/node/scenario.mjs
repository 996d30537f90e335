// The scenario every TypeScript SDK has to get through, told once; an adapter hides what differs between
// major versions: { name, Client, Transport, call(client, params, options) }.
import { Checks, assert, cuttingProxy, equal, pause, post, settlesAt, statusOf, until } from './checks.mjs';

const QUIET_MS = 400;
const TOOLS = ['add', 'echo', 'notify', 'slow'];

/** Runs everything against the server at `url` and ends the process with its verdict. */
export async function run(adapter, url) {
  const checks = new Checks(adapter.name);
  const proxy = await cuttingProxy(url);
  let main;
  await checks.check('connect', async () => {
    main = await connect(adapter, proxy.url);
    assert(main.transport.sessionId, 'the server gave no session id');
    equal(main.client.getServerVersion()?.name?.length > 0, true, 'server name');
  });
  if (!main) checks.finish();
  const sessionId = main.transport.sessionId;

  await checks.check('ping', () => main.client.ping());
  await checks.check('list tools', () => listTools(main));
  await checks.check('call', () => callTools(adapter, main));
  await checks.check('unknown tool is an error', () => callUnknown(adapter, main));
  await checks.check('progress', () => progress(adapter, main));
  await checks.check('equal ids from two clients', () => equalIds(adapter, url));
  await checks.check('equal ids in one session', () => equalIdsInSession(adapter, url, sessionId));
  await checks.check('notifications arrive exactly once', () => notifications(adapter, main));
  await checks.check('reconnect by cursor after a cut', () => reconnect(adapter, main, proxy));
  await checks.check('a lost reply comes with the next plain GET, once', () => lostReply(adapter, url, sessionId));
  await checks.check('cancel', () => cancel(adapter, main));
  await checks.check('DELETE, then 404', () => terminate(adapter, main, url, sessionId));
  await checks.check('connect again', () => connectAgain(adapter, url));
  checks.finish();
}

/** What there is of it over HTTP+SSE, where the stream at `url` carries the session: nothing is resumed or deleted. */
export async function runCarried(adapter, url) {
  const checks = new Checks(adapter.name);
  let main;
  await checks.check('connect', async () => void (main = await connect(adapter, url)));
  if (!main) checks.finish();
  await checks.check('ping', () => main.client.ping());
  await checks.check('list tools', () => listTools(main));
  await checks.check('call', () => callTools(adapter, main));
  await checks.check('unknown tool is an error', () => callUnknown(adapter, main));
  // The last one comes in a chunk with the response, at which the SDK forgets the call before it looks at what came first.
  await checks.check('progress', () => progress(adapter, main, 2));
  await checks.check('equal ids from two clients', async () => {
    const pair = await Promise.all([connect(adapter, url), connect(adapter, url)]);
    await echoFromBoth(adapter, pair);
    await Promise.all(pair.map(({ client }) => client.close()));
  });
  await checks.check('notifications arrive exactly once', () => notifications(adapter, main));
  await checks.check('cancel', () => cancel(adapter, main));
  await checks.check('connect again', async () => {
    await main.client.close();
    const again = await connect(adapter, url);
    await callTools(adapter, again);
    await again.client.close();
  });
  checks.finish();
}

/** A connected client that records what it hears; `sessionId` joins a session that exists. */
async function connect(adapter, url, sessionId) {
  const client = new adapter.Client({ name: 'moorline-interop', version: '1.0.0' });
  const heard = [];
  const errors = [];
  client.fallbackNotificationHandler = async notification => void heard.push(notification.method);
  client.onerror = error => errors.push(error);
  const transport = new adapter.Transport(new URL(url), sessionId ? { sessionId } : undefined);
  await client.connect(transport);
  return { client, transport, heard, errors };
}

/** A POST dies before its reply: no cursor names it, so the session's next plain GET carries it, and no other. */
async function lostReply(adapter, url, sessionId) {
  const hangUp = new AbortController();
  const call = { name: 'slow', arguments: { seconds: 0.4, steps: 1 } };
  const posted = post(url, sessionId, { jsonrpc: '2.0', id: 'lost', method: 'tools/call', params: call }, hangUp.signal);
  await pause(100);
  hangUp.abort();
  await posted.then(() => assert(false, 'the reply came after all'), () => {});
  await pause(QUIET_MS + 400);
  const joined = [await connect(adapter, url, sessionId), await connect(adapter, url, sessionId)];
  const answers = [];
  for (const { client, transport } of joined) {
    const pass = transport.onmessage;
    transport.onmessage = (message, extra) => {
      if (message.id === 'lost') answers.push(message);
      return pass(message, extra);
    };
    // What an SDK opens its listener after.
    await client.notification({ method: 'notifications/initialized' });
  }
  await settlesAt(() => answers.length, 1, QUIET_MS, 'replies');
  equal(textOf(answers[0].result).startsWith('Done'), true, 'the reply');
  for (const { client } of joined) await client.close();
}

async function listTools({ client }) {
  const { tools } = await client.listTools();
  equal(tools.map(tool => tool.name).sort(), TOOLS, 'tool names');
  for (const tool of tools) equal(tool.inputSchema.type, 'object', `input schema of ${tool.name}`);
}

const textOf = result => result.content[0].text;

async function callTools(adapter, { client }) {
  const message = 'Grüße, 世界 \u2028 "quoted"';
  const echo = await adapter.call(client, { name: 'echo', arguments: { message } });
  equal(textOf(echo), message, 'echo');
  const add = await adapter.call(client, { name: 'add', arguments: { a: 19, b: 23 } });
  equal(Number(textOf(add)), 42, 'add');
}

async function callUnknown(adapter, { client }) {
  const outcome = await adapter.call(client, { name: 'no-such-tool', arguments: {} }).then(
    result => (result.isError ? 'error' : 'result'),
    error => (error.code === -32602 ? 'error' : `code ${error.code}`),
  );
  equal(outcome, 'error', 'outcome');
}

async function progress(adapter, { client }, least = 3) {
  const seen = [];
  const slow = { name: 'slow', arguments: { seconds: 0.6, steps: 3 } };
  await adapter.call(client, slow, { onprogress: ({ progress }) => seen.push(progress) });
  assert(seen.length >= least, `${seen.length} progress notifications`);
  assert(seen.every((value, i) => i === 0 || value > seen[i - 1]), `progress must grow: ${seen}`);
}

/** Two sessions whose clients number their requests alike, with calls of both in flight. */
async function equalIds(adapter, url) {
  const pair = await Promise.all([connect(adapter, url), connect(adapter, url)]);
  await echoFromBoth(adapter, pair);
  await Promise.all(pair.map(({ transport }) => transport.terminateSession()));
  await Promise.all(pair.map(({ client }) => client.close()));
}

/** Two clients that joined one session: every request of one has the id of a request of the other. */
async function equalIdsInSession(adapter, url, sessionId) {
  const pair = await Promise.all([connect(adapter, url, sessionId), connect(adapter, url, sessionId)]);
  const slow = { name: 'slow', arguments: { seconds: 0.4, steps: 2 } };
  const echo = { name: 'echo', arguments: { message: 'fast' } };
  const [slowResult, echoResult] = await Promise.all([
    adapter.call(pair[0].client, slow),
    adapter.call(pair[1].client, echo),
  ]);
  equal(textOf(echoResult), 'fast', 'the fast call');
  assert(textOf(slowResult) !== 'fast', 'the slow call got the answer of the fast one');
  await echoFromBoth(adapter, pair);
  await Promise.all(pair.map(({ client }) => client.close()));
}

async function echoFromBoth(adapter, pair) {
  const calls = pair.flatMap(({ client }, which) =>
    Array.from({ length: 20 }, async (_, i) => {
      const message = `client ${which} call ${i}`;
      const result = await adapter.call(client, { name: 'echo', arguments: { message } });
      equal(textOf(result), message, 'answer');
    }),
  );
  await Promise.all(calls);
}

const notify = (adapter, { client }, kind) =>
  adapter.call(client, { name: 'notify', arguments: { kind, scope: 'session' } });

async function notifications(adapter, main) {
  const methods = {
    tools: 'notifications/tools/list_changed',
    prompts: 'notifications/prompts/list_changed',
    resources: 'notifications/resources/list_changed',
    message: 'notifications/message',
  };
  for (const [kind, method] of Object.entries(methods)) {
    const count = () => main.heard.filter(heard => heard === method).length;
    await notify(adapter, main, kind);
    await settlesAt(count, 1, QUIET_MS, method);
  }
}

/** The listener is cut; what is sent meanwhile and afterwards arrives once, by a GET of the SDK's own. */
async function reconnect(adapter, main, proxy) {
  await until(() => proxy.open >= 1, 5_000, () => 'no listener stream is open');
  const count = () => main.heard.filter(heard => heard === 'notifications/message').length;
  const before = count();
  const gets = proxy.gets;
  proxy.cut();
  await notify(adapter, main, 'message');
  await until(() => proxy.gets > gets, 30_000, () => 'the SDK did not reconnect');
  await settlesAt(count, before + 1, QUIET_MS, 'sent while cut');
  await notify(adapter, main, 'message');
  await settlesAt(count, before + 2, QUIET_MS, 'sent after the reconnect');
}

async function cancel(adapter, main) {
  const controller = new AbortController();
  const slow = { name: 'slow', arguments: { seconds: 20, steps: 20 } };
  const call = adapter.call(main.client, slow, { signal: controller.signal }).then(
    () => 'answered',
    () => 'cancelled',
  );
  setTimeout(() => controller.abort('enough'), 200);
  equal(await call, 'cancelled', 'outcome');
  await callTools(adapter, main);
}

async function terminate(adapter, main, url, sessionId) {
  await main.transport.terminateSession();
  const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
  const response = await post(url, sessionId, ping);
  await response.body?.cancel();
  equal(response.status, 404, 'POST');
  equal(await statusOf(url, 'GET', sessionId), 404, 'GET');
  equal(await statusOf(url, 'DELETE', sessionId), 404, 'DELETE');
  const stale = await connect(adapter, url, sessionId);
  const outcome = await stale.client.ping().then(() => 'answered', () => 'refused');
  equal(outcome, 'refused', 'a client that holds the dead session');
  await Promise.all([stale.client.close(), main.client.close()]);
}

async function connectAgain(adapter, url) {
  const again = await connect(adapter, url);
  await callTools(adapter, again);
  await notify(adapter, again, 'tools');
  await settlesAt(() => again.heard.length, 1, QUIET_MS, 'notifications');
  await again.transport.terminateSession();
  await again.client.close();
}

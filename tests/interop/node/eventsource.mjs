// EventSources as an MCP client's listeners: they reconnect whatever ends them, with a cursor if they have one.
// Usage: node eventsource.mjs URL
import { EventSource } from 'eventsource';
import { Checks, assert, cuttingProxy, equal, pause, post, settlesAt, until } from './checks.mjs';

const QUIET_MS = 400;
const SETTLED_MS = Number(process.env.MOORLINE_INTEROP_QUIET_MS ?? 6_000);
const checks = new Checks('eventsource');
const proxy = await cuttingProxy(process.argv[2]);

await checks.check('two plain', async () => {
  const session = await openSession();
  const sources = [listen(session), listen(session)];
  await allOpen(sources);
  await exactlyOnce(session, sources);
  await staysQuiet(sources);
  await exactlyOnce(session, sources);
  close(sources);
});

await checks.check('the second takes over when the first ends', async () => {
  const session = await openSession();
  const sources = [listen(session), listen(session)];
  await allOpen(sources);
  sources[0].source.close();
  await exactlyOnce(session, sources);
  close(sources);
});

await checks.check('two plain, cut', async () => {
  const session = await openSession();
  const sources = [listen(session), listen(session)];
  await allOpen(sources);
  await exactlyOnce(session, sources);
  proxy.cut();
  await until(() => sources.every(({ opened }) => opened >= 2), 15_000, () => 'not reconnected');
  await staysQuiet(sources);
  await exactlyOnce(session, sources);
  close(sources);
});

await checks.check('two with cursors of finished calls, and two plain', async () => {
  const session = await openSession();
  const cursors = [await finishedCall(session, 1), await finishedCall(session, 2)];
  const sources = [listen(session), ...cursors.map(cursor => listen(session, cursor)), listen(session)];
  await allOpen(sources);
  await staysQuiet(sources);
  await exactlyOnce(session, sources);
  await exactlyOnce(session, sources);
  close(sources);
});

await checks.check('only cursors of finished calls', async () => {
  const session = await openSession();
  const sources = [listen(session, await finishedCall(session, 1)), listen(session, await finishedCall(session, 2))];
  await allOpen(sources);
  await staysQuiet(sources);
  await exactlyOnce(session, sources);
  close(sources);
});
checks.finish();

/** A fresh, initialised session of the newest revision with sessions. */
async function openSession() {
  const initialize = {
    jsonrpc: '2.0',
    id: 0,
    method: 'initialize',
    params: {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'moorline-interop', version: '1.0.0' },
    },
  };
  const response = await post(proxy.url, undefined, initialize);
  equal(response.status, 200, 'initialize');
  await response.text();
  const id = response.headers.get('mcp-session-id');
  assert(id, 'no session id');
  const initialized = await post(proxy.url, id, { jsonrpc: '2.0', method: 'notifications/initialized' });
  equal(initialized.status, 202, 'initialized');
  return id;
}

/** An EventSource on the session, counted. `cursor` is what it says it saw last before its first connection. */
function listen(session, cursor) {
  const listener = { opened: 0, events: 0, gets: 0 };
  listener.source = new EventSource(proxy.url, {
    fetch: (url, init) => {
      listener.gets += 1;
      const headers = { ...init.headers, 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      if (cursor && !headers['Last-Event-ID']) headers['Last-Event-ID'] = cursor;
      return fetch(url, { ...init, headers });
    },
  });
  listener.source.onopen = () => (listener.opened += 1);
  listener.source.onmessage = event => {
    if (event.data !== '') listener.events += 1;
  };
  return listener;
}

function allOpen(sources) {
  return until(() => sources.every(({ opened }) => opened >= 1), 30_000, () => 'not every stream opened');
}

function close(sources) {
  sources.forEach(({ source }) => source.close());
}

function total(sources, what) {
  return sources.reduce((sum, listener) => sum + listener[what], 0);
}

async function exactlyOnce(session, sources) {
  const before = total(sources, 'events');
  await call(session, 99, 'notify', { kind: 'message', scope: 'session' });
  await settlesAt(() => total(sources, 'events'), before + 1, QUIET_MS, 'events in all');
}

/** No EventSource comes back: nobody's stream was ended by another's arrival. */
async function staysQuiet(sources) {
  const before = total(sources, 'gets');
  await pause(SETTLED_MS);
  equal(total(sources, 'gets'), before, `GETs over ${SETTLED_MS} ms`);
}

/** The text of the reply to a tool call, JSON or event stream. */
async function call(session, id, name, args, token) {
  const params = { name, arguments: args, ...(token && { _meta: { progressToken: token } }) };
  const response = await post(proxy.url, session, { jsonrpc: '2.0', id, method: 'tools/call', params });
  equal(response.status, 200, name);
  return response.text();
}

/** The last event id of a call that was answered as a stream. */
async function finishedCall(session, id) {
  const reply = await call(session, id, 'slow', { seconds: 0.2, steps: 2 }, `token-${id}`);
  const ids = [...reply.matchAll(/^id: ?(.*)$/gm)].map(match => match[1]);
  assert(ids.length > 0, `the reply carried no event id: ${reply}`);
  return ids.at(-1);
}

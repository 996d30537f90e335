// What every client program here shares: one line per check, deadlines, and a proxy that cuts streams.
import net from 'node:net';

/** Runs named checks in order and prints a line for each; a failed one does not stop the next. */
export class Checks {
  #client;
  #failed = 0;
  #passed = 0;

  constructor(client) {
    this.#client = client;
  }

  async check(name, body) {
    try {
      await withDeadline(body(), 60_000, name);
      this.#passed += 1;
      console.log(`ok   ${this.#client}: ${name}`);
    } catch (error) {
      this.#failed += 1;
      const cause = error?.cause ? `; cause: ${error.cause.stack ?? error.cause}` : '';
      console.log(`FAIL ${this.#client}: ${name}: ${error?.stack ?? error}${cause}`);
    }
  }

  /** Ends the process: sockets that a client forgot must not keep it alive. */
  finish() {
    console.log(`${this.#client}: ${this.#passed} passed, ${this.#failed} failed`);
    process.exit(this.#failed === 0 ? 0 : 1);
  }
}

export function assert(condition, message) {
  if (!condition) throw new Error(message);
}

export function equal(actual, expected, what) {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)];
  assert(a === e, `${what}: ${a} instead of ${e}`);
}

/** Rejects when `promise` takes longer than `ms`. */
export function withDeadline(promise, ms, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not done after ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

/** Waits until `condition()` holds; rejects after `ms` with what `describe()` then says. */
export async function until(condition, ms, describe) {
  const end = Date.now() + ms;
  while (!condition()) {
    assert(Date.now() < end, `not after ${ms} ms: ${describe()}`);
    await pause(10);
  }
}

/** The number reaches `expected` and stays there: once means not twice. */
export async function settlesAt(count, expected, quietMs, what) {
  await until(() => count() >= expected, 30_000, () => `${what}: ${count()} of ${expected}`);
  await pause(quietMs);
  equal(count(), expected, what);
}

/** The first field of a request in the bytes a client sends, e.g. `GET`. */
const startsGet = bytes => bytes.length > 4 && bytes.toString('latin1', 0, 4) === 'GET ';

/**
 * Forwards TCP to the server at `url`. `cut()` resets every connection that carries a GET, as a vanishing
 * network would; `gets` counts the GETs ever seen.
 */
export async function cuttingProxy(url) {
  const target = new URL(url);
  const streams = new Set();
  const state = { gets: 0 };
  const listener = net.createServer(client => {
    const upstream = net.connect(Number(target.port), target.hostname);
    const pair = [client, upstream];
    const end = () => {
      streams.delete(pair);
      pair.forEach(socket => socket.destroy());
    };
    client.on('data', bytes => {
      if (startsGet(bytes)) {
        state.gets += 1;
        streams.add(pair);
      }
      upstream.write(bytes);
    });
    upstream.on('data', bytes => client.write(bytes));
    pair.forEach(socket => socket.setNoDelay(true).on('error', end).on('close', end));
  });
  await new Promise(resolve => listener.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${listener.address().port}${target.pathname}`,
    get gets() {
      return state.gets;
    },
    get open() {
      return streams.size;
    },
    cut() {
      for (const pair of [...streams]) pair.forEach(socket => socket.resetAndDestroy());
      streams.clear();
    },
  };
}

const ACCEPT_BOTH = 'application/json, text/event-stream';

/** One bare POST in a session, to look at what an SDK hides. Returns the response, its body unread. */
export function post(url, sessionId, message, signal) {
  const headers = { 'content-type': 'application/json', accept: ACCEPT_BOTH };
  if (sessionId) headers['mcp-session-id'] = sessionId;
  return fetch(url, { method: 'POST', headers, body: JSON.stringify(message), signal });
}

/** The status of a bare request without a body in a session. */
export async function statusOf(url, method, sessionId) {
  const headers = { accept: 'text/event-stream', 'mcp-session-id': sessionId };
  const response = await fetch(url, { method, headers });
  await response.body?.cancel();
  return response.status;
}

/** Publishes a notification to everyone through the admin listener; returns what became of it. */
export async function publish(admin, method, params) {
  const response = await fetch(new URL('publish', admin), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ to: 'all', method, params }),
  });
  const counts = await response.json();
  equal(response.status, 200, `publishing: ${JSON.stringify(counts)}`);
  return counts;
}

/** The sum over all shards of a metric, named as without its shard. */
export async function metric(admin, name) {
  const text = await (await fetch(new URL('metrics', admin))).text();
  const lines = text.split('\n').map(line => line.replace(/shard="\d+",?/, '').replace('{}', ''));
  const values = lines.filter(line => line.startsWith(`${name} `)).map(line => Number(line.split(' ')[1]));
  assert(values.length > 0, `there is no metric ${name}`);
  return values.reduce((sum, value) => sum + value, 0);
}

/** Waits until the metric is `expected`. */
export async function untilMetric(admin, name, expected) {
  const end = Date.now() + 5_000;
  for (let value; (value = await metric(admin, name)) !== expected; await pause(20)) {
    assert(Date.now() < end, `${name}: ${value} instead of ${expected}`);
  }
}

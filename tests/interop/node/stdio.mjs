// Real stdio programs behind the server, driven by both TypeScript SDKs.
// Usage: node stdio.mjs v1|v2 BINARY PYTHON
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { behind } from './behind.mjs';
import { Checks, assert, equal, pause, until } from './checks.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const [version, binary, python] = process.argv.slice(2);
const { Client, Transport, call, handle } = await adapter(version);
const checks = new Checks(`stdio-${version}`);
const scratch = mkdtempSync(path.join(tmpdir(), 'moorline-interop-'));
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));

const server = name => ['node', path.join(here, 'node_modules/@modelcontextprotocol', name, 'dist/index.js')];
const EVERYTHING = server('server-everything');
const MEMORY = server('server-memory');
const FILESYSTEM = [...server('server-filesystem'), scratch];
const PYTHON = [python, path.join(here, '../python/stdio_server.py')];
const PER_SESSION = ['--stdio-mode', 'per-session', '--shards', '2'];
const SHARED = ['--stdio-mode', 'shared', '--shards', '2'];
// A program that is loaded while all cores are busy takes its time.
const OPTIONS = { timeout: 50_000 };

async function main() {
  for (const [mode, flags] of [['per-session', PER_SESSION], ['shared', SHARED]]) {
    await with_(`everything ${mode}`, flags, EVERYTHING, async (check, at) => {
      await check('tools, prompts, resources', () => surface(at));
      await check('progress', () => everythingProgress(at));
      await check('cancel', () => everythingCancel(at));
      await check('a bad call is an error', () => everythingError(at));
      if (mode === 'per-session') {
        await check('sampling', () => sampling(at, 'trigger-sampling-request', { prompt: 'Hi', maxTokens: 9 }));
        await check('elicitation', () => everythingElicitation(at));
        await check('roots', () => everythingRoots(at));
        await check('a child ends with its session', () => childEnds(at));
      } else {
        await check('200 sessions at once', () => manySessions(at));
        await check('killed under load', () => killed(at));
      }
    });
    const memory = ['--child-env', `MEMORY_FILE_PATH=${scratch}/memory-${mode}.json`];
    await with_(`memory ${mode}`, [...flags, ...memory], MEMORY, async (check, at) => {
      await check('a graph is kept', () => graph(at));
    });
    await with_(`filesystem ${mode}`, flags, FILESYSTEM, async (check, at) => {
      await check('files are read and written', () => files(at, mode));
    });
    await with_(`python ${mode}`, flags, PYTHON, async (check, at) => {
      await check('call and progress', () => pythonCalls(at));
      await check('state', () => pythonState(at, mode));
      if (mode === 'per-session') {
        await check('sampling', () => sampling(at, 'ask_model', { prompt: 'Hi' }));
        await check('elicitation', () => pythonElicitation(at));
      }
    });
  }
  const wrapped = ['sh', '-c', `exec 3<&0; ${EVERYTHING.join(' ')} <&3 & wait`];
  await with_('everything in a shell', PER_SESSION, wrapped, async (check, at) => {
    await check('the grandchild ends with its session', () => childEnds(at));
  });
  checks.finish();
}

// --- Scaffolding --------------------------------------------------------------------------------

/** Runs checks against a program behind the server; whether it stops without a trace is the last one. */
async function with_(name, flags, command, body) {
  let at;
  await checks.check(`${name}: start`, async () => (at = await behind(binary, flags, command)));
  if (!at) return;
  await body((what, check) => checks.check(`${name}: ${what}`, check), at);
  await checks.check(`${name}: nothing is left behind`, () => at.stop());
}

async function adapter(version) {
  if (version === 'v1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const types = await import('@modelcontextprotocol/sdk/types.js');
    const schemas = {
      'sampling/createMessage': types.CreateMessageRequestSchema,
      'elicitation/create': types.ElicitRequestSchema,
      'roots/list': types.ListRootsRequestSchema,
    };
    return {
      Client,
      Transport: StreamableHTTPClientTransport,
      call: (client, params, options) => client.callTool(params, undefined, { ...OPTIONS, ...options }),
      handle: (client, method, handler) => client.setRequestHandler(schemas[method], handler),
    };
  }
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  return {
    Client,
    Transport: StreamableHTTPClientTransport,
    call: (client, params, options) => client.callTool(params, { ...OPTIONS, ...options }),
    handle: (client, method, handler) => client.setRequestHandler(method, handler),
  };
}

/** Runs `body` with a connected client and ends its session. `handlers`: what it can be asked for, by method. */
async function session(at, body, capabilities = {}, handlers = {}) {
  const client = new Client({ name: 'moorline-interop', version: '1.0.0' }, { capabilities });
  for (const [method, handler] of Object.entries(handlers)) handle(client, method, handler);
  const transport = new Transport(new URL(at.url));
  await client.connect(transport, OPTIONS);
  try {
    return await body(client, transport);
  } finally {
    await transport.terminateSession().catch(() => {});
    await client.close();
  }
}

const tool = (client, name, args = {}, options) => call(client, { name, arguments: args }, options);
const textOf = result => result.content[0].text;

async function echo(client, message) {
  equal(textOf(await tool(client, 'echo', { message })), `Echo: ${message}`, 'echo');
}

// --- server-everything --------------------------------------------------------------------------

const surface = at =>
  session(at, async client => {
    equal(client.getServerVersion().name, 'mcp-servers/everything', 'the server that answered');
    assert(client.getInstructions()?.length > 0, 'no instructions');
    const { tools } = await client.listTools();
    assert(tools.some(({ name }) => name === 'echo'), 'no echo');
    await echo(client, 'Grüße, 世界 \u2028 "quoted"\nand a line');
    const { prompts } = await client.listPrompts();
    assert(prompts.length > 0, 'no prompts');
    const { resources } = await client.listResources();
    const { contents } = await client.readResource({ uri: resources[0].uri });
    assert(contents.length > 0, 'an empty resource');
    await client.subscribeResource({ uri: resources[0].uri });
    await client.unsubscribeResource({ uri: resources[0].uri });
    await client.setLoggingLevel('error');
    await client.ping();
  });

const everythingProgress = at =>
  session(at, async client => {
    const seen = [];
    const options = { onprogress: ({ progress }) => seen.push(progress) };
    const slow = { duration: 0.6, steps: 3 };
    const both = [tool(client, 'trigger-long-running-operation', slow, options), echo(client, 'meanwhile')];
    await Promise.all(both);
    equal(seen, [1, 2, 3], 'progress');
  });

const everythingCancel = at =>
  session(at, async client => {
    const controller = new AbortController();
    const slow = { duration: 20, steps: 2 };
    const options = { signal: controller.signal };
    const outcome = tool(client, 'trigger-long-running-operation', slow, options).then(
      () => 'answered',
      () => 'cancelled',
    );
    setTimeout(() => controller.abort('enough'), 200);
    equal(await outcome, 'cancelled', 'outcome');
    await echo(client, 'after the cancellation');
  });

const everythingError = at =>
  session(at, async client => {
    const outcome = await tool(client, 'no-such-tool').then(
      result => result.isError === true,
      error => error.code === -32602,
    );
    assert(outcome, 'no error');
  });

async function sampling(at, name, args) {
  let asked = 0;
  const answer = () => {
    asked += 1;
    return { model: 'm', role: 'assistant', content: { type: 'text', text: 'the model said this' } };
  };
  const handlers = { 'sampling/createMessage': answer };
  await session(
    at,
    async client => {
      const result = await tool(client, name, args);
      assert(JSON.stringify(result.content).includes('the model said this'), JSON.stringify(result));
      equal(asked, 1, 'questions');
    },
    { sampling: {} },
    handlers,
  );
}

async function everythingElicitation(at) {
  const handlers = { 'elicitation/create': () => ({ action: 'accept', content: { name: 'Ada' } }) };
  await session(
    at,
    async client => {
      const result = await tool(client, 'trigger-elicitation-request');
      assert(JSON.stringify(result.content).includes('Ada'), JSON.stringify(result));
    },
    { elicitation: {} },
    handlers,
  );
}

/** The program asks for roots by itself, after `initialized`: the question travels on the listener. */
async function everythingRoots(at) {
  let asked = 0;
  const answer = () => {
    asked += 1;
    return { roots: [{ uri: 'file:///somewhere', name: 'somewhere' }] };
  };
  await session(
    at,
    async client => {
      await until(() => asked > 0, 30_000, () => 'nobody asked for roots');
      const result = await tool(client, 'get-roots-list');
      assert(JSON.stringify(result.content).includes('somewhere'), JSON.stringify(result));
    },
    { roots: { listChanged: true } },
    { 'roots/list': answer },
  );
}

async function childEnds(at) {
  await until(() => at.processes().length === 0, 20_000, () => `${at.processes()} are left`);
  await session(at, async client => {
    await echo(client, 'alive');
    assert(at.processes().length > 0, 'no child');
  });
  await until(() => at.processes().length === 0, 20_000, () => `${at.processes()} are left`);
}

async function manySessions(at) {
  const one = number =>
    session(at, async client => {
      for (let call = 0; call < 3; call += 1) await echo(client, `session ${number} call ${call}`);
      await pause(500);
      await echo(client, `session ${number} at the end`);
    });
  await Promise.all(Array.from({ length: 200 }, (_, number) => one(number)));
  equal(at.processes().length, 2, 'children');
}

/** Calls fail while the program is started again; the session goes on. */
async function killed(at) {
  await session(at, async client => {
    let failures = 0;
    let isOver = false;
    const load = async () => {
      while (!isOver) await echo(client, 'load').catch(() => ((failures += 1), pause(50)));
    };
    const loads = Array.from({ length: 8 }, load);
    await pause(300);
    at.processes().forEach(pid => process.kill(pid, 'SIGKILL'));
    await until(() => failures > 0, 30_000, () => 'no call failed');
    await until(() => at.processes().length === 2, 30_000, () => 'no new children');
    isOver = true;
    await Promise.all(loads);
    const works = () => echo(client, 'well again').then(() => true, () => false);
    let isWell = await works();
    for (let tries = 0; !isWell && tries < 100; tries += 1) {
      await pause(100);
      isWell = await works();
    }
    assert(isWell, 'the session did not survive');
  });
}

// --- The others ---------------------------------------------------------------------------------

const graph = at =>
  session(at, async client => {
    const ada = { name: 'Ada', entityType: 'person', observations: ['writes programs'] };
    await tool(client, 'create_entities', { entities: [ada] });
    const result = await tool(client, 'search_nodes', { query: 'programs' });
    equal(result.structuredContent.entities.map(({ name }) => name), ['Ada'], 'found');
  });

const files = (at, mode) =>
  session(at, async client => {
    const file = path.join(scratch, `${mode}.txt`);
    await tool(client, 'write_file', { path: file, content: 'written\nthrough' });
    equal(readFileSync(file, 'utf8'), 'written\nthrough', 'the file');
    const large = path.join(scratch, `${mode}-large.txt`);
    writeFileSync(large, 'x'.repeat(2_000_000));
    equal(textOf(await tool(client, 'read_text_file', { path: large })).length, 2_000_000, 'length');
    const listing = textOf(await tool(client, 'list_directory', { path: scratch }));
    assert(listing.includes(`${mode}.txt`), listing);
  });

const pythonCalls = at =>
  session(at, async client => {
    equal(Number(textOf(await tool(client, 'add', { a: 19, b: 23 }))), 42, 'add');
    const seen = [];
    const options = { onprogress: ({ progress }) => seen.push(progress) };
    equal(textOf(await tool(client, 'count', { steps: 3, seconds: 0.3 }, options)), 'counted to 3', 'count');
    equal(seen, [1, 2, 3], 'progress');
    const { contents } = await client.readResource({ uri: 'note://7' });
    equal(contents[0].text, 'note 7', 'resource');
  });

/** What one client leaves in the program is seen by another only where they share it. */
async function pythonState(at, mode) {
  const remember = note => session(at, async client => (await tool(client, 'remember', { note })).content.length);
  const lengths = [];
  for (const note of ['a', 'b', 'c', 'd', 'e']) lengths.push(await remember(note));
  if (mode === 'per-session') equal(lengths, [1, 1, 1, 1, 1], 'notes');
  else assert(Math.max(...lengths) > 1, `notes: ${lengths}`);
}

async function pythonElicitation(at) {
  const handlers = { 'elicitation/create': () => ({ action: 'accept', content: { name: 'Grace' } }) };
  const body = async client => equal(textOf(await tool(client, 'ask_name')), 'Grace', 'name');
  await session(at, body, { elicitation: {} }, handlers);
}

await main();

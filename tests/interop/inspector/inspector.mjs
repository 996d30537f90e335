// The MCP Inspector's command line in both eras. Usage: node inspector.mjs URL FIXTURES-URL
// Every check is a process of its own, as a user would start it: discovery or handshake, one method, and out.
import { execFile } from 'node:child_process';
import { Checks, assert, equal } from '../node/checks.mjs';

const [url, fixtures] = process.argv.slice(2);
const launcher = new URL('node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js', import.meta.url);
const SERVER_INFO = 'io.modelcontextprotocol/serverInfo';

const checks = new Checks('inspector');
for (const era of ['legacy', 'modern', 'auto']) {
  await checks.check(`${era}: call`, async () => {
    const { result } = await inspect(url, era, 'tools/call', '--tool-name', 'echo', '--tool-arg', 'message=Grüße');
    equal(result.content[0].text, 'Grüße', 'echo');
    // What the results of 2026-07-28 say and no others do tells which era was spoken.
    equal(result._meta?.[SERVER_INFO]?.name, era === 'legacy' ? undefined : 'moorline', 'server of the result');
  });
}
for (const era of ['legacy', 'modern']) {
  await checks.check(`${era}: list tools`, async () => {
    const { result } = await inspect(url, era, 'tools/list');
    equal(result.tools.map(tool => tool.name).sort(), ['add', 'echo', 'notify', 'slow'], 'tool names');
  });
  await checks.check(`${era}: tools are portable`, () => inspect(url, era, 'tools/list', '--strict'));
  await checks.check(`${era}: resources`, async () => {
    const { result } = await inspect(fixtures, era, 'resources/list');
    assert(result.resources.some(({ uri }) => uri === 'test://static-text'), 'test://static-text is not listed');
    const read = await inspect(fixtures, era, 'resources/read', '--uri', 'test://static-text');
    assert(read.result.contents[0].text.length > 0, 'no text');
  });
  await checks.check(`${era}: prompts`, async () => {
    const { result } = await inspect(fixtures, era, 'prompts/list');
    assert(result.prompts.some(({ name }) => name === 'test_simple_prompt'), 'test_simple_prompt is not listed');
    const got = await inspect(fixtures, era, 'prompts/get', '--prompt-name', 'test_simple_prompt');
    equal(got.result.messages.length, 1, 'messages');
  });
}
checks.finish();

/** One run of the Inspector; its only line of output. */
function inspect(server, era, method, ...options) {
  const args = ['--cli', '--server-url', server, '--transport', 'http', '--protocol-era', era];
  args.push('--format', 'json', '--quiet', '--method', method, ...options);
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [launcher.pathname, ...args], { timeout: 30_000 }, (error, stdout, stderr) => {
      if (error) reject(new Error(`${method}: exit code ${error.code}: ${stderr}${stdout}`));
      else resolve(JSON.parse(stdout));
    });
  });
}

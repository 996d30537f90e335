// A server under test with a real stdio program behind it, and a look at what it leaves behind.
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { assert, equal, until } from './checks.mjs';

let marks = 0;

/** Starts `binary serve FLAGS -- COMMAND`; every process that comes of it carries a mark in its environment. */
export async function behind(binary, flags, command) {
  const mark = `MARK_OF_INTEROP=${process.pid}-${(marks += 1)}`;
  const settings = ['serve', '--listen', '127.0.0.1:0', '--child-env', mark, ...flags, '--', ...command];
  const child = spawn(binary, settings, { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', text => (log += text));
  const exit = new Promise(resolve => child.on('exit', (code, signal) => resolve(code ?? signal)));
  const ready = () => log.match(/^listening on (\S+)\n/m)?.[1];
  const processes = () => pidsOf(mark);
  // Whatever happens to this program, nothing stays.
  const kill = () => [child.pid, ...processes()].forEach(pid => attempt(() => process.kill(pid, 'SIGKILL')));
  process.on('exit', kill);
  await until(() => ready() || child.exitCode !== null, 30_000, () => `the server is not ready: ${log}`);
  assert(ready(), `the server ended: ${log}`);
  return {
    url: ready(),
    processes,
    log: () => log,
    async stop() {
      child.kill('SIGTERM');
      equal(await exit, 0, `exit of the server; its log: ${log}`);
      // What was killed may outlive its killer for a moment: the kernel takes it down in its own time.
      await until(() => processes().length === 0, 20_000, () => `left behind: ${processes()}`);
      process.off('exit', kill);
    },
  };
}

function pidsOf(mark) {
  const pids = readdirSync('/proc').filter(name => /^\d+$/.test(name));
  const environment = pid => attempt(() => readFileSync(`/proc/${pid}/environ`, 'latin1')) ?? '';
  return pids.filter(pid => environment(pid).split('\0').includes(mark)).map(Number);
}

/** The value of `action()`, or nothing if it throws: a process may end while it is looked at. */
function attempt(action) {
  try {
    return action();
  } catch {
    return undefined;
  }
}

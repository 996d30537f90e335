// Clients of three SDKs in both eras at one URL, listening and calling while changes are published: each hears each change once, in
// the order of publication. Usage: node crowd.mjs URL ADMIN-URL COUNT PYTHON RUST-CLIENT
// Every program that takes part brings COUNT clients of each era.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Checks, assert, equal, metric, pause, publish, untilMetric, withDeadline } from './checks.mjs';

const [url, admin, count, python, rust] = process.argv.slice(2);
const ROUNDS = 20;
const QUIET_MS = 400;
const PATIENCE_MS = 30_000;
// Each kind once a round, and a round only when the last was heard: an SDK may merge equal changes that nobody has taken yet.
const ORDERS = [
  ['tools', 'prompts', 'resources'],
  ['resources', 'tools', 'prompts'],
  ['prompts', 'tools', 'resources'],
];

const here = name => new URL(name, import.meta.url).pathname;
const programs = {
  'typescript-sdk-v2': [process.execPath, here('crowd-member.mjs')],
  'python-sdk-v2': [python, '-W', 'ignore', here('../python/crowd_member.py')],
  rmcp: [rust, 'crowd'],
};

const checks = new Checks('crowd');
// Clients of other tests may have left without a DELETE.
const others = await metric(admin, 'moorline_sessions_active');
const members = Object.entries(programs).map(([name, command]) => join(name, command));
const streams = members.length * Number(count);
const published = [];
await checks.check('everybody listens', async () => {
  for (const member of members) equal(await member.line(), 'ready', member.name);
  await untilMetric(admin, 'moorline_streams_held{kind="listener"}', streams);
  await untilMetric(admin, 'moorline_streams_held{kind="listen"}', streams);
});
await checks.check('each publication counts sessions and listen streams', async () => {
  for (let round = 0; round < ROUNDS; round++) {
    for (const kind of ORDERS[round % ORDERS.length]) {
      const method = `notifications/${kind}/list_changed`;
      const { sessions, listens } = await publish(admin, method);
      equal([sessions, listens], [others + streams, streams], 'sessions and listen streams');
      published.push(method);
    }
    for (const member of members) await member.untilHeard(published.length);
  }
  await pause(QUIET_MS);
});
for (const member of members) {
  let heard;
  await checks.check(`${member.name}: reports`, async () => void (heard = await member.report()));
  for (const era of heard ? ['modern', 'legacy'] : []) {
    await checks.check(`${member.name}, ${era}: each of ${count} hears each change once`, async () => {
      equal(heard[era].length, Number(count), 'clients');
      const order = isOrdered(member.name, era) ? methods => methods : methods => [...methods].sort();
      for (const methods of heard[era]) equal(order(methods), order(published), 'changes');
    });
  }
  member.process.stdin.end();
}
await checks.check('nothing is left of them', async () => {
  await untilMetric(admin, 'moorline_streams_held{kind="listener"}', 0);
  await untilMetric(admin, 'moorline_streams_held{kind="listen"}', 0);
});
for (const { process } of members) process.kill('SIGKILL');
checks.finish();

/** The Rust SDK runs the handlers of a session's notifications side by side. */
function isOrdered(name, era) {
  return name !== 'rmcp' || era === 'modern';
}

/** Starts a program that takes part. */
function join(name, [program, ...args]) {
  const child = spawn(program, [...args, url, count], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  child.on('error', error => console.log(`${name}: ${error}`));
  const line = async () => {
    const { value, done } = await withDeadline(lines.next(), PATIENCE_MS, `a line of ${name}`);
    assert(!done, `${name} has ended`);
    return value;
  };
  const report = async () => {
    child.stdin.write('report\n');
    return JSON.parse(await line());
  };
  const untilHeard = async expected => {
    for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await pause(20)) {
      const { modern, legacy } = await report();
      if ([...modern, ...legacy].every(methods => methods.length >= expected)) return;
    }
    // Who lacks what is told by the checks of each.
  };
  return { name, process: child, line, report, untilHeard };
}

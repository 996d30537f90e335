// Reads what a run of the conformance suite left behind and says what it comes to.
//
//   node verdict.mjs NAME EXPECTED DIRECTORY
//
// A scenario passes if it has checks, at least one of which succeeded, and none failed or warned: the suite itself lets
// warnings and empty scenarios pass. One scenario is named here that the suite has yet to write: all it does is skip. As many scenarios must have run as EXPECTED, lest a suite that ran half counts as
// whole. The last line is `NAME: N passed, N failed`.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const unwritten = new Set(['tasks-status-notifications']);

const [name, expected, directory] = process.argv.slice(2);
let passed = 0;
let failed = 0;

const fail = (what, why) => {
  failed += 1;
  console.log(`FAIL ${name} ${what}: ${why}`);
};

for (const run of readdirSync(directory).sort()) {
  const scenario = run.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '');
  const checks = JSON.parse(readFileSync(join(directory, run, 'checks.json'), 'utf8'));
  const bad = checks.filter(check => ['FAILURE', 'WARNING'].includes(check.status));
  if (bad.length > 0) {
    fail(scenario, bad.map(check => `${check.status} ${check.id}: ${check.errorMessage ?? check.description}`).join('; '));
  } else if (!unwritten.has(scenario) && !checks.some(check => check.status === 'SUCCESS')) {
    fail(scenario, 'no check has succeeded');
  } else {
    passed += 1;
  }
}
if (passed + failed !== Number(expected)) fail('suite', `${passed + failed} scenarios ran instead of ${expected}`);
console.log(`${name}: ${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

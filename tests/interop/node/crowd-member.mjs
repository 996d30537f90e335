// The TypeScript SDK's part of a crowd: clients of both eras that listen at one URL. Usage: node crowd-member.mjs URL COUNT
// Says `ready` once all of them listen. Told `report`, prints what each has heard, in order; leaves when its input ends.
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, count] = process.argv.slice(2);
const EVERYTHING = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };

const heard = { modern: [], legacy: [] };
for (let i = 0; i < Number(count); i++) {
  for (const era of ['modern', 'legacy']) heard[era].push(await join(era));
}
console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'report') console.log(JSON.stringify(heard));
}
process.exit(0);

/** A client that listens; what it hears is added to the array returned. */
async function join(era) {
  const methods = [];
  const mode = era === 'modern' ? { pin: '2026-07-28' } : 'legacy';
  const client = new Client({ name: 'moorline-interop', version: '1.0.0' }, { versionNegotiation: { mode } });
  client.fallbackNotificationHandler = async ({ method }) => void methods.push(method);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  if (era === 'modern') await client.listen(EVERYTHING);
  setInterval(() => client.callTool({ name: 'echo', arguments: { message: 'between' } }).catch(() => process.exit(1)), 500);
  return methods;
}

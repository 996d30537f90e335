// TypeScript SDK, first major version. Usage: node sdk-v1.mjs URL
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { run } from './scenario.mjs';

await run(
  {
    name: 'typescript-sdk-v1',
    Client,
    Transport: StreamableHTTPClientTransport,
    call: (client, params, options) => client.callTool(params, undefined, options),
  },
  process.argv[2],
);

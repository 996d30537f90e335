// TypeScript SDK, second major version, which opens with the `initialize` handshake unless told otherwise.
// Usage: node sdk-v2.mjs URL
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { run } from './scenario.mjs';

await run(
  {
    name: 'typescript-sdk-v2',
    Client,
    Transport: StreamableHTTPClientTransport,
    call: (client, params, options) => client.callTool(params, options),
  },
  process.argv[2],
);

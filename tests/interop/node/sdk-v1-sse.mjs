// TypeScript SDK, first major version, over HTTP+SSE of 2024-11-05. Usage: node sdk-v1-sse.mjs URL
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { runCarried } from './scenario.mjs';

await runCarried(
  {
    name: 'typescript-sdk-v1-sse',
    Client,
    Transport: SSEClientTransport,
    call: (client, params, options) => client.callTool(params, undefined, options),
  },
  new URL('/sse', process.argv[2]).href,
);

// A small server on the TypeScript SDK over standard input and output that speaks 2026-07-28, and nothing older unless told to.
// Usage: node newer-server.mjs [both]
import { McpServer, ResourceTemplate, acceptedContent, completable, fromJsonSchema, inputRequired } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const WATCHED = 'test://watched';
const isOlderToo = process.argv[2] === 'both';
const text = value => ({ content: [{ type: 'text', text: String(value) }] });
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

function make() {
  const server = new McpServer(
    { name: 'newer', version: '1.0.0' },
    { capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: {}, logging: {} } },
  );
  const tool = (name, shape, handler) => server.registerTool(name, { description: name, inputSchema: z.object(shape) }, handler);
  tool('echo', { message: z.string() }, async ({ message }) => text(`Echo: ${message}`));
  tool('pid', {}, async () => text(process.pid));
  tool('count', { steps: z.number(), seconds: z.number() }, async ({ steps, seconds }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress += 1) {
      await pause((seconds * 1000) / steps);
      if (ctx.mcpReq.signal.aborted) return text('cancelled');
      if (progressToken !== undefined) await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress } });
    }
    return text(`counted to ${steps}`);
  });
  tool('ask_name', {}, async (_, ctx) => {
    const schema = z.object({ name: z.string() });
    const answer = acceptedContent(ctx.mcpReq.inputResponses, 'who', schema);
    if (answer) return text(answer.name);
    const who = inputRequired.elicit({ message: 'Who are you?', requestedSchema: schema });
    return inputRequired({ inputRequests: { who } });
  });
  tool('ask_model', { prompt: z.string() }, async ({ prompt }, ctx) => {
    const said = ctx.mcpReq.inputResponses?.said;
    if (said) return text(JSON.stringify(said));
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    return inputRequired({ inputRequests: { said: inputRequired.createMessage({ messages, maxTokens: 9 }) } });
  });
  tool('update', {}, async () => {
    await server.server.sendResourceUpdated({ uri: WATCHED });
    return text('updated');
  });
  tool('change', {}, async () => {
    await server.server.sendToolListChanged();
    return text('changed');
  });
  server.registerTool('list', { description: 'list', inputSchema: z.object({}), outputSchema: fromJsonSchema({ type: 'array' }) }, async () => ({
    ...text('[1]'),
    structuredContent: [1],
  }));
  const contents = uri => ({ contents: [{ uri: uri.href, text: `read ${uri.href}` }] });
  server.registerResource('watched', WATCHED, { mimeType: 'text/plain' }, async uri => contents(uri));
  server.registerResource('note', new ResourceTemplate('note://{index}', { list: undefined }), {}, async uri => contents(uri));
  const language = completable(z.string(), value => ['python', 'perl', 'rust'].filter(known => known.startsWith(value)));
  server.registerPrompt('review', { argsSchema: z.object({ language }) }, async args => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Review this ${args.language}` } }],
  }));
  if (isOlderToo) {
    for (const method of ['resources/subscribe', 'resources/unsubscribe']) server.server.setRequestHandler(method, () => ({}));
  }
  return server;
}

serveStdio(make, { legacy: isOlderToo ? 'serve' : 'reject' });

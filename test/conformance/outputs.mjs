// Calls every listed tool as its description's example says, or plans it if it changes something, with a TypeScript client, which compiles the output schemas and holds each result to them:
// outputs.mjs v1|v2 COMMAND ARG… prints [tool, isError, has structured content] for each.
const [kind, command, ...args] = process.argv.slice(2);
const info = { name: 'outputs', version: '1' };
const to = { command, args, env: process.env, stderr: 'ignore' };
let client, request;
if (kind === 'v1') {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
  client = new Client(info, { capabilities: {} });
  await client.connect(new StdioClientTransport(to));
  request = (params) => client.callTool(params);
} else {
  const { Client } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  client = new Client(info, { capabilities: {}, versionNegotiation: { mode: 'auto' } });
  await client.connect(new StdioClientTransport(to));
  request = (params) => client.callTool(params);
}
const seen = [];
for (const tool of (await client.listTools()).tools) {
  if (!tool.outputSchema) throw new Error(`${tool.name} has no output schema`);
  const example = JSON.parse(/Example: (\{.*?\})(?: |$|\n)(?!.*Example)/s.exec(tool.description)?.[1] ?? 'null');
  if (!example) throw new Error(`${tool.name} has no example: ${tool.description}`);
  const _meta = tool.annotations.readOnlyHint ? {} : { 'io.caponier/plan': true };
  try {
    const r = await request({ name: tool.name, arguments: example, _meta });
    seen.push([tool.name, r.isError === true, r.structuredContent !== undefined]);
  } catch (e) {
    throw new Error(`${tool.name}: ${e.message}`);
  }
}
await client.close();
console.log(JSON.stringify(seen));

// Drives a host through one scenario with a TypeScript client and prints what it saw as JSON: clients.mjs v1|v2|v2-legacy URL | COMMAND ARG…
// differential_test.go does the same with the Go client and compares.
const [kind, target, ...args] = process.argv.slice(2);
const http = target.startsWith('http://');
const info = { name: 'differential', version: '1' };
const caps = { capabilities: { elicitation: {} } };
const answer = async () => ({ action: 'accept', content: { username: 'anna', email: 'anna@example.org' } });

let client, transport, request;
if (kind === 'v1') {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { ElicitRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
  client = new Client(info, caps);
  client.setRequestHandler(ElicitRequestSchema, answer);
  transport = http
    ? new (await import('@modelcontextprotocol/sdk/client/streamableHttp.js')).StreamableHTTPClientTransport(new URL(target))
    : new (await import('@modelcontextprotocol/sdk/client/stdio.js')).StdioClientTransport({ command: target, args, env: process.env, stderr: 'ignore' });
  request = (params, options) => client.callTool(params, undefined, options);
} else {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  client = new Client(info, kind === 'v2' ? { ...caps, versionNegotiation: { mode: 'auto' } } : caps);
  client.setRequestHandler('elicitation/create', answer);
  transport = http
    ? new StreamableHTTPClientTransport(new URL(target))
    : new (await import('@modelcontextprotocol/client/stdio')).StdioClientTransport({ command: target, args, env: process.env, stderr: 'ignore' });
  request = (params, options) => client.callTool(params, options);
}
await client.connect(transport);

const seen = {};
const tools = (await client.listTools()).tools.filter((t) => !t.description.startsWith('A fixture'));
seen.tools = tools.map((t) => [t.name, t.annotations.readOnlyHint, t.annotations.destructiveHint]);
const call = async (params, options) => {
  try {
    const r = await request(params, options);
    const own = r._meta['io.caponier/call'];
    return {
      error: r.isError === true,
      content: r.content.map((c) => c.text?.replace(/[0-9A-V]{26}/g, 'ID') ?? `${c.type} ${c.mimeType ?? c.resource.uri}`),
      outcome: own.outcome, code: own.error?.code ?? '', failed: own.refused.flatMap((x) => x.failed),
    };
  } catch (e) {
    return { protocol: e.code };
  }
};
seen.text = await call({ name: 'test_simple_text', arguments: {} });
seen.mixed = await call({ name: 'test_multiple_content_types', arguments: {} });
seen.fails = await call({ name: 'test_error_handling', arguments: {} });
seen.invalid = await call({ name: 'test_simple_text', arguments: { vmid: 103.5 } });
seen.unknown = await call({ name: 'test_nothing', arguments: {} });
seen.refused = await call({ name: 'test_refused', arguments: {} });
seen.asked = await call({ name: 'test_elicitation', arguments: { message: 'who?' } });
const progress = [];
seen.steps = await call({ name: 'test_tool_with_progress', arguments: {} }, { onprogress: (p) => progress.push(p.progress) });
seen.progress = progress[0] ?? -1; // clients drop what arrives together with the result
seen.resource = (await client.readResource({ uri: 'test://static-text' })).contents[0].text;
seen.prompt = (await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } })).messages[0].content.text;
seen.templates = (await client.listResourceTemplates()).resourceTemplates.map((t) => [t.uriTemplate, t.mimeType]).sort();
const templated = (await client.readResource({ uri: 'test://template/7-a/data' })).contents[0];
seen.templated = [templated.uri, templated.mimeType, templated.text];
await client.close();
console.log(JSON.stringify(seen));

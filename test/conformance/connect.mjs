// `caponier connect` as a client of the official suite: connect.mjs URL, with the program in $CAPONIER. The person who is asked to sign in opens the URL and agrees.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const home = mkdtempSync(join(tmpdir(), 'connect-'));
const version = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '2025-11-25';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const flags = ['connect', process.argv.at(-1), '--no-browser'];
if (context.client_id) flags.push('--client-id', context.client_id);
if (context.client_secret) {
  writeFileSync(join(home, 'secret'), context.client_secret, { mode: 0o600 });
  flags.push('--client-secret-file', join(home, 'secret'));
}
const bridge = spawn(process.env.CAPONIER, flags, { env: { ...process.env, XDG_CONFIG_HOME: home, CAPONIER_TOKEN: '' } });
createInterface(bridge.stderr).on('line', (line) => {
  console.error(line);
  if (line.startsWith('http')) fetch(line).catch((e) => console.error(String(e)));
});
const answers = createInterface(bridge.stdout)[Symbol.asyncIterator]();

const client = { name: 'connect', version: '1' };
const meta = version < '2026' ? {} : {
  _meta: {
    'io.modelcontextprotocol/protocolVersion': version,
    'io.modelcontextprotocol/clientInfo': client,
    'io.modelcontextprotocol/clientCapabilities': {},
  },
};
const send = (message) => bridge.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);

// ask sends a request and waits for its answer.
async function ask(id, method, params) {
  send({ id, method, params: { ...params, ...meta } });
  for (;;) {
    const { value, done } = await answers.next();
    if (done) return;
    console.log(value);
    if (JSON.parse(value).id === id) return;
  }
}

if (version < '2026') {
  await ask(1, 'initialize', { protocolVersion: version, capabilities: {}, clientInfo: client });
  send({ method: 'notifications/initialized' });
} else await ask(1, 'server/discover', {});
await ask(2, 'tools/list', {});
await ask(3, 'tools/call', { name: 'test-tool', arguments: {} });
bridge.stdin.end();
await new Promise((done) => bridge.on('close', done));
rmSync(home, { recursive: true });

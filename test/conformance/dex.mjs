// Signs a TypeScript client in at a Dex that runs already, as docs/identity/dex.md sets both up: dex.mjs URL ISSUER. dex_test.go says what it must print.
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { browse } from './oidc.mjs';

const [url] = process.argv.slice(2);
const redirectURI = 'http://127.0.0.1:1/callback';
const kept = { saved: 0 };
const provider = {
  get redirectUrl() { return redirectURI; },
  get clientMetadata() { return { client_name: 'test', redirect_uris: [redirectURI], token_endpoint_auth_method: 'none' }; },
  state: () => 'the state',
  clientInformation: () => ({ client_id: 'laptop' }),
  tokens: () => kept.tokens,
  saveTokens: (t) => { kept.tokens = t; kept.saved++; },
  saveCodeVerifier: (v) => { kept.verifier = v; },
  codeVerifier: () => kept.verifier,
  async redirectToAuthorization(to) {
    kept.answer = await browse(to, redirectURI, { login: 'dana@example.org', password: 'a password of a test' });
    if (!kept.answer.get('code')) throw new Error(`the provider did not let the client in: ${kept.answer}`);
  },
};
const connect = async () => {
  const client = new Client({ name: 'dex', version: '1' }, { versionNegotiation: { mode: 'auto' } });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  try {
    await client.connect(transport);
  } catch (e) {
    if (!kept.answer || e.constructor.name !== 'UnauthorizedError') throw e;
    await transport.finishAuth(kept.answer);
    kept.answer = undefined;
    return connect();
  }
  return client;
};
const show = (token) => new Promise((done, fail) => {
  const req = request(url, { method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } }, (res) => { res.resume(); done(res.statusCode); });
  req.on('error', fail);
  req.end('{}');
});
const client = await connect();
const tools = (await client.listTools()).tools.length;
const claims = JSON.parse(Buffer.from(kept.tokens.access_token.split('.')[1], 'base64url'));
const idToken = await show(kept.tokens.id_token);
await sleep(6000);
const after = (await client.listTools()).tools.length;
await client.close();
console.log(JSON.stringify({ tools, after, saved: kept.saved, claims, idToken }));
process.exit(0);

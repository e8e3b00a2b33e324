// Signs a TypeScript client in at a host that it knows only the URL of, uses it past the end of its token, and then shows the host what it must not accept: oauth.mjs v1|v2|v2-legacy URL PORT OTHERPORT.
// It prints what happened as JSON; oauth_test.go says what it must be.
import { createHash, randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { browse, start } from './oidc.mjs';

const [kind, url, port, otherPort] = process.argv.slice(2);
const tokenSeconds = 3;
const redirectURI = 'http://127.0.0.1:1/callback';
const idp = await start(Number(port), tokenSeconds);
const other = await start(Number(otherPort), 600);
const seen = { requests: [], versions: [] };

const watched = async (input, init) => {
  const at = new URL(input instanceof Request ? input.url : input);
  const headers = new Headers(init?.headers);
  if (at.href === url) {
    const version = headers.get('mcp-protocol-version');
    if (version && !seen.versions.includes(version)) seen.versions.push(version);
  } else {
    const form = new URLSearchParams(typeof init?.body === 'string' ? '' : init?.body);
    seen.requests.push([at.port === port ? 'provider' : 'host', init?.method ?? 'GET', at.pathname, form.get('grant_type') ?? '', form.get('resource') ?? '']);
  }
  return fetch(input, init);
};

const kept = {};
const provider = {
  get redirectUrl() { return redirectURI; },
  get clientMetadata() { return { client_name: 'test', redirect_uris: [redirectURI], application_type: 'native', grant_types: ['authorization_code', 'refresh_token'], token_endpoint_auth_method: 'none' }; },
  state: () => 'the state',
  clientInformation: () => kept.client,
  saveClientInformation: (c) => { kept.client = c; },
  tokens: () => kept.tokens,
  saveTokens: (t) => { kept.tokens = t; kept.saved = (kept.saved ?? 0) + 1; },
  saveCodeVerifier: (v) => { kept.verifier = v; },
  codeVerifier: () => kept.verifier,
  async redirectToAuthorization(to) {
    const q = to.searchParams;
    seen.asked = { issuer: to.origin === idp.issuer, pkce: q.get('code_challenge_method'), resource: q.get('resource'), scope: q.get('scope') };
    kept.answer = await browse(to, redirectURI);
    if (!kept.answer.get('code')) throw new Error(`the provider did not let the client in: ${kept.answer}`);
  },
};

const v1 = kind === 'v1';
const { Client } = await import(v1 ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StreamableHTTPClientTransport } = await import(v1 ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client');
const connect = async () => {
  const client = new Client({ name: 'oauth', version: '1' }, kind === 'v2' ? { versionNegotiation: { mode: 'auto' } } : {});
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider, fetch: watched });
  try {
    await client.connect(transport);
  } catch (e) {
    if (!kept.answer || e.constructor.name !== 'UnauthorizedError') throw e;
    seen.unauthorized = true;
    await (v1 ? transport.finishAuth(kept.answer.get('code')) : transport.finishAuth(kept.answer));
    kept.answer = undefined;
    return connect();
  }
  return client;
};
const client = await connect();
seen.tools = (await client.listTools()).tools.length;
const first = kept.tokens;
await sleep((tokenSeconds + 1) * 1000);
seen.toolsAfterItsEnd = (await client.listTools()).tools.length;
seen.refreshed = kept.saved === 2 && kept.tokens.access_token !== first.access_token;
await client.close();

// What the host must not accept. Each comes from an address of its own, because failures are counted by address.
let from = 1;
const show = (token) => new Promise((done, fail) => {
  const req = request(url, {
    method: 'POST', localAddress: `127.0.3.${from++}`,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
  }, (res) => { res.resume(); done(`${res.statusCode} ${/error="(\w+)"/.exec(res.headers['www-authenticate'] ?? '')?.[1] ?? ''}`.trim()); });
  req.on('error', fail);
  req.end(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } } }));
});
const post = async (issuer, path, body, type) => (await fetch(issuer + path, { method: 'POST', headers: { 'content-type': type }, body })).json();
const register = (issuer) => post(issuer, '/reg', JSON.stringify({ redirect_uris: [redirectURI], application_type: 'native', token_endpoint_auth_method: 'none', grant_types: ['authorization_code', 'refresh_token'] }), 'application/json');
const form = 'application/x-www-form-urlencoded';
const challenge = (verifier) => createHash('sha256').update(verifier).digest('base64url');
const authorize = (issuer, id, change) => browse(`${issuer}/auth?${new URLSearchParams(Object.entries({
  response_type: 'code', client_id: id, redirect_uri: redirectURI, scope: 'openid caponier', resource: url, code_challenge: challenge('v'.repeat(43)), code_challenge_method: 'S256', ...change,
}).filter(([, v]) => v))}`, redirectURI);
const redeem = (issuer, id, code, change) => post(issuer, '/token', new URLSearchParams({ grant_type: 'authorization_code', client_id: id, code, redirect_uri: redirectURI, code_verifier: 'v'.repeat(43), ...change }), form);
const obtain = async (issuer, change, redeemed) => {
  const { client_id: id } = await register(issuer);
  return redeem(issuer, id, (await authorize(issuer, id, change)).get('code'), redeemed);
};

const good = await obtain(idp.issuer, {});
const elsewhere = await obtain(idp.issuer, { resource: 'https://other.example/mcp' });
seen.shown = {
  good: await show(good.access_token),
  'for another resource': await show(elsewhere.access_token),
  'of another issuer': await show((await obtain(other.issuer, {})).access_token),
  'without the scope': await show((await obtain(idp.issuer, { scope: 'openid' })).access_token),
  'an ID token': await show(good.id_token),
  'a refresh token': await show(good.refresh_token),
  'an opaque token': await show((await obtain(idp.issuer, { resource: undefined, scope: 'openid' })).access_token),
  'a code': await show(randomBytes(32).toString('base64url')),
};
const { client_id: id } = await register(idp.issuer);
const { client_id: second } = await register(idp.issuer);
const code = async () => (await authorize(idp.issuer, id, {})).get('code');
const used = await code();
await redeem(idp.issuer, id, used);
const rotated = await post(idp.issuer, '/token', new URLSearchParams({ grant_type: 'refresh_token', client_id: kept.client.client_id, refresh_token: first.refresh_token }), form);
seen.provider = {
  'no PKCE': (await authorize(idp.issuer, id, { code_challenge: undefined, code_challenge_method: undefined })).get('error'),
  'plain PKCE': (await authorize(idp.issuer, id, { code_challenge: 'v'.repeat(43), code_challenge_method: 'plain' })).get('error'),
  'another redirect URI': (await authorize(idp.issuer, id, { redirect_uri: `${redirectURI}/../evil` })).get('error'),
  'a code with another verifier': (await redeem(idp.issuer, id, await code(), { code_verifier: 'w'.repeat(43) })).error,
  'a code of another client': (await redeem(idp.issuer, second, await code())).error,
  'a code twice': (await redeem(idp.issuer, id, used)).error,
  'a refresh token twice': rotated.error,
};
idp.stop();
other.stop();
console.log(JSON.stringify(seen));
process.exit(0);

// A real OpenID provider with one confidential client: signin.mjs PORT REDIRECT. It prints the client as JSON, and ends with its input.
import { start } from './oidc.mjs';

const [port, redirect] = process.argv.slice(2);
const idp = await start(Number(port), 60);
const res = await fetch(`${idp.issuer}/reg`, {
  method: 'POST', headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ redirect_uris: [redirect], application_type: 'native', grant_types: ['authorization_code'], token_endpoint_auth_method: 'client_secret_basic' }),
});
console.log(JSON.stringify(await res.json()));
process.stdin.on('end', () => process.exit(0)).resume();

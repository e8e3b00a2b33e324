// A real OpenID provider (npm's oidc-provider) on loopback that knows one person, who agrees at once to whatever is asked; clients register by themselves.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

export const person = 'auth0|5f7c8ec7c33c6c004bbafe82';

export async function start(port, tokenSeconds) {
  const issuer = `http://127.0.0.1:${port}`;
  const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
  const provider = new Provider(issuer, {
    jwks: { keys: [{ ...key, use: 'sig', alg: 'RS256', kid: `key-${port}` }] },
    cookies: { keys: ['of a test'] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    scopes: ['openid', 'offline_access', 'caponier'],
    clientDefaults: { grant_types: ['authorization_code', 'refresh_token'], token_endpoint_auth_method: 'none' },
    issueRefreshToken: () => true,
    rotateRefreshToken: () => true,
    interactions: { url: (_, i) => `/interaction/${i.uid}` },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope: 'caponier', audience: resource, accessTokenTTL: tokenSeconds,
          accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
    async loadExistingGrant(ctx) {
      const grant = new ctx.oidc.provider.Grant({ accountId: ctx.oidc.session.accountId, clientId: ctx.oidc.client.clientId });
      grant.addOIDCScope('openid offline_access caponier');
      for (const resource of [ctx.oidc.params.resource].flat()) if (resource) grant.addResourceScope(resource, 'caponier');
      await grant.save();
      return grant;
    },
  });
  const callback = provider.callback();
  const server = createServer((req, res) => {
    if (!req.url.startsWith('/interaction/')) return callback(req, res);
    return provider.interactionFinished(req, res, { login: { accountId: person }, consent: {} }).catch((e) => res.writeHead(500).end(String(e)));
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  return { issuer, stop: () => { server.close(); server.closeAllConnections(); } };
}

// browse follows the redirects of a browser from an authorization request to the client's redirect URI, and returns its parameters, or what the provider said instead. It fills in the first form of each page with the fields.
export async function browse(url, redirectURI, fields) {
  const cookies = new Map();
  let body;
  for (let at = new URL(url), n = 0; n < 10; n++) {
    if (at.href.startsWith(redirectURI)) return at.searchParams;
    const res = await fetch(at, { method: body ? 'POST' : 'GET', body, redirect: 'manual', headers: { cookie: [...cookies].map(([k, v]) => `${k}=${v}`).join('; ') } });
    body = undefined;
    for (const c of res.headers.getSetCookie()) {
      const [, name, value] = c.match(/^([^=]+)=([^;]*)/);
      cookies.set(name, value);
    }
    if (!res.headers.get('location')) {
      const page = await res.text();
      const form = fields && /<form method="post"(?: action="([^"]*)")?>?(.*?)<\/form>/s.exec(page);
      if (!form) return new URLSearchParams({ error: /\b(invalid_\w+)\b/.exec(page)?.[1] ?? `status ${res.status}` });
      at = new URL(form[1]?.replaceAll('&amp;', '&') ?? at, at);
      body = new URLSearchParams(fields);
      for (const [, name, value] of form[2].matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)) body.set(name, value);
      continue;
    }
    at = new URL(res.headers.get('location'), at);
  }
  throw new Error('the provider redirects without end');
}

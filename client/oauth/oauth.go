// Package oauth signs a person in at the provider of a host, in a browser. The flow is that of
// package auth of the MCP SDK: protected resource metadata (RFC 9728), the provider's metadata (RFC
// 8414), authorization code with PKCE, iss (RFC 9207), resource (RFC 8707), and registration of the
// client (RFC 7591) where no client id is given.
package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// Options say for which host somebody signs in, and how.
type Options struct {
	URL      string // of the host: its /mcp
	ClientID string // of a client at the provider; "" registers one
	// Secret is that client's, "" for a public one.
	Secret string
	// Port is that of the redirect URI http://127.0.0.1:PORT/callback; 0 is any.
	Port int
	Dir  string // where tokens are kept; "" is the user's own directory
	// Open shows a URL in a browser. Nil, or an error: the person opens the URL that Say has.
	Open      func(url string) error
	Say       io.Writer         // for people
	Transport http.RoundTripper // to host and provider; nil: the default one
}

// SignIn has the tokens for one host. Its methods may be called concurrently, also by processes
// that share a directory.
type SignIn struct {
	o      Options
	client *http.Client
	file   file

	mu     sync.Mutex // guards the following, and that one person signs in once
	kept   *kept      // nil: nobody is signed in
	latest string     // the access token that was refreshed or signed in for last
	failed error      // why the last person did not sign in,
	when   time.Time  // and when
}

// New returns a SignIn with what is kept for the host. Tokens that others could read are an error.
func New(o Options) (*SignIn, error) {
	f, err := fileOf(o.Dir, o.URL)
	if err != nil {
		return nil, err
	}
	s := &SignIn{o: o, file: f, client: careful(o.Transport)}
	if s.kept, err = f.read(); err == nil && s.kept != nil && s.kept.URL != o.URL {
		err = fmt.Errorf("%s is for %q: remove it with --logout", f, s.kept.URL)
	}
	return s, err
}

// Token returns an access token, which it refreshes when it has expired, or "" where somebody has
// to sign in first.
func (s *SignIn) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept != nil && !s.kept.Token.Valid() {
		if err := s.refresh(ctx, false); err != nil {
			return "", err
		}
	}
	if s.kept == nil {
		return "", nil
	}
	return s.kept.Token.AccessToken, nil
}

// Refused gets another token after the host refused a request that had this one, and returns nil
// when the request can be made again. It waits for a person, for five minutes at most; requests
// that wait together ask one person once. It closes the body of res.
func (s *SignIn) Refused(ctx context.Context, res *http.Response, token string) error {
	defer res.Body.Close()
	came := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil && s.when.After(came) {
		return s.failed
	}
	if s.kept != nil && s.kept.Token.AccessToken != token { // another request got it
		return nil
	}
	if s.kept != nil && res.StatusCode == http.StatusUnauthorized && s.latest != token {
		if err := s.refresh(ctx, true); err == nil && s.kept != nil {
			return nil
		}
	}
	s.failed = s.authorize(ctx, res)
	s.when = time.Now()
	return s.failed
}

// Login signs somebody in before a client needs it.
func (s *SignIn) Login(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.o.URL, nil)
	if err != nil {
		return err
	}
	res, err := s.client.Do(r)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusUnauthorized {
		res.Body.Close()
		return fmt.Errorf("%s answers %s without a token: it asks nobody to sign in", s.o.URL,
			res.Status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authorize(ctx, res)
}

// Forget removes what is kept for a host, and reports whether there was anything.
func Forget(dir, url string) (was bool, err error) {
	f, err := fileOf(dir, url)
	if err != nil {
		return false, err
	}
	return f.remove()
}

// refresh gets another access token, or forgets one that the provider no longer refreshes. Of
// several processes one does it: a refresh token counts once.
func (s *SignIn) refresh(ctx context.Context, always bool) error {
	free, err := s.file.lock(ctx)
	if err != nil {
		return err
	}
	defer free()
	was := s.kept.Token.AccessToken
	if s.kept, err = s.file.read(); err != nil || s.kept == nil {
		return err
	}
	if s.kept.Token.Valid() && (!always || s.kept.Token.AccessToken != was) {
		return nil
	}
	old := *s.kept.Token
	old.Expiry = time.Unix(1, 0)
	t, err := s.kept.config().TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.client),
		&old).Token()
	no := (*oauth2.RetrieveError)(nil)
	if old.RefreshToken == "" || errors.As(err, &no) && no.Response.StatusCode/100 == 4 {
		s.kept = nil // to sign in anew
		_, err = s.file.remove()
		return err
	} else if err != nil {
		return fmt.Errorf("refreshing the sign-in: %w", err)
	}
	s.kept.Token, s.latest = t, t.AccessToken
	return s.file.write(s.kept)
}

// authorize has a person sign in at the provider that the host names.
func (s *SignIn) authorize(ctx context.Context, res *http.Response) error {
	if err := s.named(ctx, res.Header); err != nil {
		return err
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.o.Port))
	if err != nil {
		return fmt.Errorf("waiting for the browser: %w", err)
	}
	defer l.Close()
	to := fmt.Sprintf("http://%s/callback", l.Addr())
	had := []string{} // who is asked for more keeps what there was
	if s.kept != nil {
		had = s.kept.Scopes
	}
	c := &auth.AuthorizationCodeHandlerConfig{RedirectURL: to, Client: s.client,
		RequestRefreshToken: true, AcceptUnadvertisedIss: true,
		ScopeFilter: func(asked []string) []string {
			return slices.Compact(slices.Sorted(slices.Values(slices.Concat(had, asked))))
		},
		AuthorizationCodeFetcher: func(ctx context.Context, a *auth.AuthorizationArgs) (
			*auth.AuthorizationResult, error) {
			return s.browse(ctx, l, a.URL)
		},
		NewTokenSource: func(_ context.Context, c *oauth2.Config, t *oauth2.Token) (
			oauth2.TokenSource, error) {
			s.kept, s.latest = keep(s.o.URL, c, t), t.AccessToken
			return oauth2.StaticTokenSource(t), s.file.write(s.kept)
		}}
	if s.o.ClientID != "" {
		c.PreregisteredClient = &oauthex.ClientCredentials{ClientID: s.o.ClientID}
		if s.o.Secret != "" {
			c.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{
				ClientSecret: s.o.Secret}
		}
	} else {
		c.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{to},
				ClientName: "Caponier connect", TokenEndpointAuthMethod: "none",
				GrantTypes: []string{"authorization_code", "refresh_token"}}}
	}
	handler, err := auth.NewAuthorizationCodeHandler(c)
	if err == nil {
		at, _ := url.Parse(s.o.URL) // named has
		err = handler.Authorize(ctx, &http.Request{URL: at}, res)
	}
	if err != nil {
		if s.o.ClientID == "" && strings.Contains(err.Error(), "registration") {
			err = fmt.Errorf("%w; or register a public client with the redirect URI "+
				"http://127.0.0.1:PORT/callback, and give --client-id and --redirect-port", err)
		}
		return fmt.Errorf("signing in: %w", err)
	}
	fmt.Fprintln(s.o.Say, "caponier connect: signed in; this is kept until --logout")
	return nil
}

// named refuses what names no provider, and metadata on another site than the host. A host that
// does not say where its metadata are has them at a place that everybody knows (RFC 9728, section
// 3.1).
func (s *SignIn) named(ctx context.Context, h http.Header) error {
	host, err := url.Parse(s.o.URL)
	if err != nil {
		return err
	}
	all, err := oauthex.ParseWWWAuthenticate(h.Values("WWW-Authenticate"))
	if err != nil {
		return fmt.Errorf("what the host says of signing in: %w", err)
	}
	for _, c := range all {
		if at := c.Params["resource_metadata"]; c.Scheme == "bearer" && at != "" {
			u, err := url.Parse(at)
			if err != nil || u.Scheme != host.Scheme || u.Host != host.Host {
				return fmt.Errorf("the host refers to another site for its sign-in: %q", at)
			}
			return nil
		}
	}
	root := &url.URL{Scheme: host.Scheme, Host: host.Host}
	known := root.JoinPath("/.well-known/oauth-protected-resource")
	for at, of := range map[string]string{known.JoinPath(host.Path).String(): s.o.URL,
		known.String(): root.String()} {
		if m, err := oauthex.GetProtectedResourceMetadata(ctx, at, of, s.client); err == nil &&
			m != nil && len(m.AuthorizationServers) > 0 {
			return nil
		}
	}
	return errors.New("the host wants a token (401), and names no provider to sign in at: the " +
		"operator makes one with `caponier token new`; give it by --token-file")
}

// careful is a client for what a provider says of itself: little of it, soon, from nobody else, and
// encrypted.
func careful(t http.RoundTripper) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: bounded{cmp.Or(t,
		http.DefaultTransport)}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

type bounded struct{ next http.RoundTripper }

const maxAnswer = 1 << 20 // bytes

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !safe(r.URL) {
		return nil, fmt.Errorf("%s is neither https nor on this machine", r.URL.Redacted())
	}
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// safe reports whether a URL is https, or of this machine.
func safe(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" && u.Host != "" || u.Scheme == "http" &&
		(u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

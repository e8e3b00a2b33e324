package signin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"
)

const (
	maxAnswer    = 1 << 20         // bytes of one answer of the provider
	providerTime = 4 * time.Second // for one answer
	fresh        = 10 * time.Minute
	skew         = time.Minute // how far the provider's clock may be ahead
	// attempts that may begin in a second, of all people, and at once: a flood fills neither what
	// keeps them nor the provider
	often, burst = 2, 20
)

// Errors that tell who must act. All others are about the provider's answer.
var (
	ErrProvider = errors.New("the identity provider cannot be asked")
	ErrOften    = errors.New("too many people begin to sign in")
	ErrUnknown  = errors.New("the identity provider knows you, but you may not sign in here")
)

// Provider signs people in with one issuer. It is safe for concurrent use.
type Provider struct {
	opt      Options
	redirect string
	client   *http.Client
	now      func() time.Time
	begun    *rate.Limiter

	turn  chan struct{} // holds one token, and guards the following
	found *endpoints
	since time.Time
}

// endpoints are the endpoints in the provider's own description.
type endpoints struct {
	oauth2.Config
	verifier *oidc.IDTokenVerifier
	named    bool // it promises to say in each response who it is (RFC 9207)
}

// New makes a Provider that sends people back to redirect. client and now may be nil.
func New(o Options, redirect string, client *http.Client, now func() time.Time) *Provider {
	bounded := http.Client{}
	if client != nil {
		bounded = *client
	}
	if bounded.Transport == nil {
		bounded.Transport = http.DefaultTransport
	}
	bounded.Timeout = providerTime
	bounded.Transport = short{bounded.Transport}
	bounded.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the provider redirects, which is not followed")
	}
	if now == nil {
		now = time.Now
	}
	return &Provider{opt: o, redirect: redirect, client: &bounded, now: now,
		begun: rate.NewLimiter(often, burst), turn: make(chan struct{}, 1)}
}

// short bounds how much the provider answers.
type short struct{ next http.RoundTripper }

func (s short) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// URL returns the address where a browser signs in. Only that browser and this host know secret. It
// identifies one attempt: the state, the nonce and the PKCE verifier are derived from it, each with
// a one-way function.
func (p *Provider) URL(ctx context.Context, secret string) (string, error) {
	if !p.begun.Allow() {
		return "", ErrOften
	}
	at, err := p.ready(ctx)
	if err != nil {
		return "", err
	}
	return at.AuthCodeURL(derive(secret, "state"), oidc.Nonce(derive(secret, "nonce")),
		oauth2.S256ChallengeOption(derive(secret, "verifier")),
		oauth2.SetAuthURLParam("response_mode", "query")), nil
}

// State returns the state of the attempt with this secret.
func State(secret string) string { return derive(secret, "state") }

func derive(secret, what string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("caponier signin " + what))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Name returns the person who returned from the provider, with these parameters, for the attempt
// with this secret. The caller must ensure that each attempt is used once.
func (p *Provider) Name(ctx context.Context, secret string, back url.Values) (string, error) {
	for _, k := range []string{"state", "code", "iss", "error"} {
		if len(back[k]) > 1 {
			return "", fmt.Errorf("there are %d of %s in the response", len(back[k]), k)
		}
	}
	if secret == "" || !same(back.Get("state"), State(secret)) {
		return "", errors.New("the state is not that of this browser's attempt")
	}
	at, err := p.ready(ctx)
	if err != nil {
		return "", err
	}
	// Before the code is sent anywhere: it may be another provider's (mix-up).
	if iss := back.Get("iss"); iss != p.opt.Issuer && (at.named || back.Has("iss")) {
		return "", fmt.Errorf("the response is of issuer %.100q, not of %q", iss, p.opt.Issuer)
	}
	if back.Has("error") || back.Get("code") == "" {
		return "", fmt.Errorf("the provider signed nobody in: %.100q", back.Get("error"))
	}
	token, err := at.Exchange(oidc.ClientContext(ctx, p.client), back.Get("code"),
		oauth2.VerifierOption(derive(secret, "verifier")))
	if err != nil {
		return "", exchange(err)
	}
	// What else the provider gave, access and refresh tokens, is dropped here.
	raw, _ := token.Extra("id_token").(string)
	claims, err := p.claims(ctx, at, raw)
	if err != nil {
		return "", err
	}
	if nonce, _ := claims["nonce"].(string); !same(nonce, derive(secret, "nonce")) {
		return "", errors.New("the ID token has the nonce of another attempt")
	}
	name, err := p.opt.name(claims)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return name, nil
}

// exchange distinguishes a refusal from a missing answer. Neither error contains the code or a
// token.
func exchange(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response.StatusCode < 500 {
		return fmt.Errorf("the provider refused the code: %d %.100q",
			refused.Response.StatusCode, refused.ErrorCode)
	}
	if refused != nil {
		return fmt.Errorf("%w: it answers %d", ErrProvider, refused.Response.StatusCode)
	}
	return fmt.Errorf("%w: %w", ErrProvider, err)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// claims returns the claims of a valid ID token that the provider signed for this client.
func (p *Provider) claims(ctx context.Context, at *endpoints, raw string) (map[string]any, error) {
	token, err := at.verifier.Verify(oidc.ClientContext(ctx, p.client), raw)
	if err != nil {
		return nil, fmt.Errorf("the ID token: %w", err)
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return nil, fmt.Errorf("the ID token: %w", err)
	}
	if azp, there := claims["azp"]; there && azp != p.opt.ClientID ||
		!there && len(token.Audience) > 1 {
		return nil, fmt.Errorf("the ID token was issued to client %.100q (azp)", fmt.Sprint(azp))
	}
	if token.IssuedAt.After(p.now().Add(skew)) {
		return nil, fmt.Errorf("the ID token is of %s, and now is %s", token.IssuedAt.UTC(),
			p.now().UTC())
	}
	return claims, nil
}

// ready returns where the provider is, and asks it when that was long ago. One asks at a time.
func (p *Provider) ready(ctx context.Context) (*endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*providerTime)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrProvider, ctx.Err())
	}
	if age := p.now().Sub(p.since); p.found != nil && age >= 0 && age < fresh {
		return p.found, nil
	}
	found, err := p.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrProvider, p.opt.Issuer, err)
	}
	p.found, p.since = found, p.now()
	return found, nil
}

func (p *Provider) find(ctx context.Context) (*endpoints, error) {
	// Keys are fetched again later with the same client, when this request is over.
	at, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client),
		p.opt.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%.300s", err) // it may have all of the answer
	}
	var says struct {
		Keys    string   `json:"jwks_uri"`
		Named   bool     `json:"authorization_response_iss_parameter_supported"`
		Methods []string `json:"code_challenge_methods_supported"`
		Auth    []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := at.Claims(&says); err != nil {
		return nil, err
	}
	// Some providers support S256 without listing it. A provider that lists only others does not.
	if len(says.Methods) > 0 && !slices.Contains(says.Methods, "S256") {
		return nil, fmt.Errorf("it supports PKCE only with %.100q, not with S256", says.Methods)
	}
	where := at.Endpoint()
	for what, raw := range map[string]string{"authorization": where.AuthURL,
		"token": where.TokenURL, "keys": says.Keys} {
		if u, err := url.Parse(raw); err != nil || !private(u) {
			return nil, fmt.Errorf("its address for %s is %.200q, which is not https", what, raw)
		}
	}
	// Not tried in turn: a code is sent once.
	where.AuthStyle = oauth2.AuthStyleInHeader
	if len(says.Auth) > 0 && !slices.Contains(says.Auth, "client_secret_basic") {
		where.AuthStyle = oauth2.AuthStyleInParams
	}
	return &endpoints{named: says.Named,
		Config: oauth2.Config{ClientID: p.opt.ClientID, ClientSecret: p.opt.ClientSecret,
			Endpoint: where, RedirectURL: p.redirect,
			Scopes: append([]string{oidc.ScopeOpenID}, p.opt.Scopes...)},
		verifier: at.Verifier(&oidc.Config{ClientID: p.opt.ClientID, Now: p.now,
			SupportedSigningAlgs: []string{"RS256", "PS256", "ES256", "EdDSA"}}),
	}, nil
}

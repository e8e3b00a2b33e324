package test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.` +
	`modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/` +
	`clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}}}`

// from asks as a machine with the address would: all of 127/8 is loopback, and failures are counted
// by address.
func from(address string) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 5 * time.Second}
	return &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true},
	}
}

func (s *site) append(t *testing.T, format string, args ...any) {
	t.Helper()
	data, err := os.ReadFile(s.config)
	must(t, err)
	must(t, os.WriteFile(s.config, append(data, fmt.Sprintf(format, args...)...), 0o600))
}

// asked requests the list of tools with the headers, and returns the answer.
func asked(
	t *testing.T,
	c *http.Client,
	url string,
	header http.Header,
) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(listTools))
	must(t, err)
	maps.Copy(req.Header, header)
	for k, v := range map[string]string{"Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/list"} {
		req.Header.Set(k, v)
	}
	res, err := c.Do(req)
	must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, res.Header, string(body)
}

func TestTokensThroughTheRealBinary(t *testing.T) {
	s := newSite(t)
	numbers := freeAddress(t)
	s.append(
		t,
		"\n[front]\nmetrics = %q\n[identity]\ntokens = %q\n[[identity.principals]]\nid = "+
			"\"demo\"\nroles = [\"operator\", \"viewer\"]\n",
		numbers,
		filepath.Join(s.dir, "tokens.json"),
	)
	s.rewrite(
		t,
		"demo: {auth: [config, token], roles: [operator]}",
		"demo: {auth: [config, token], roles: [operator, viewer]}",
	)
	token := func(args ...string) string {
		out, err := s.command(append([]string{"token", "new", "demo"}, args...)...).Output()
		must(t, err)
		return strings.TrimSpace(string(out))
	}
	full, narrow, near, brief, dead := token(), token(
		"--roles",
		"viewer",
	), token(
		"--cidr",
		"127.0.7.0/24",
	), token(
		"--lifetime",
		"3s",
	), token()
	ends := time.Now().Add(3 * time.Second)
	if out, err := s.command("token", "revoke", dead[:12]).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	url := s.serveHTTP(t)
	refused := func() string {
		res, err := http.Get("http://" + numbers + "/metrics")
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		return regexp.MustCompile(
			`caponier_refused_requests_total\{reason="identity"\} (\d+)`).FindStringSubmatch(
			string(body))[1]
	}
	auth := func(v ...string) http.Header { return http.Header{"Authorization": v} }
	counted := 0
	for i, c := range []struct {
		name   string
		header http.Header
		query  string
		status int
		says   string
		not    string
	}{
		{"a token", auth("Bearer " + full), "", 200, "proxmox_stop_container", ""},
		{"one for fewer roles", auth("Bearer " + narrow), "", 200, "proxmox_list_containers",
			"proxmox_stop_container"},
		{"one for another network", auth("Bearer " + near), "", 401, "", ""},
		{"one that was revoked", auth("Bearer " + dead), "", 401, "", ""},
		{"none", nil, "", 401, "", ""},
		{"an empty one", auth(""), "", 401, "", ""},
		{"Bearer alone", auth("Bearer"), "", 401, "", ""},
		{"another scheme", auth("Basic " + full), "", 401, "", ""},
		{"two in one header", auth("Bearer " + full + ", Bearer " + full), "", 401, "", ""},
		{"two headers", auth("Bearer "+full, "Bearer "+full), "", 400, "twice", ""},
		{"its prefix", auth("Bearer " + full[:12]), "", 401, "", ""},
		{"in upper case", auth("Bearer " + strings.ToUpper(full)), "", 401, "", ""},
		{"with a space before it", auth("Bearer  " + full), "", 401, "", ""},
		{"with more behind it", auth("Bearer " + full + "A"), "", 401, "", ""},
		{"its digest", auth("Bearer " + fmt.Sprintf("%x", sha256.Sum256([]byte(full)))), "", 401,
			"", ""},
		{"a long one", auth("Bearer " + strings.Repeat("a", 20_000)), "", 401, "", ""},
		{"in the address", nil, "?access_token=" + full, 401, "", ""},
		{"in a cookie", http.Header{"Cookie": {"Authorization=Bearer " + full}}, "", 401, "", ""},
		{"under a proxy's header", http.Header{"X-Forwarded-Authorization": {"Bearer " + full},
			"X-Forwarded-User": {"demo"}, "X-Forwarded-For": {"127.0.7.1"}}, "", 401, "", ""},
		{"for its network by a header's word",
			http.Header{"Authorization": {"Bearer " + near}, "X-Forwarded-For": {"127.0.7.1"},
				"X-Real-Ip": {"127.0.7.1"}, "Forwarded": {"for=127.0.7.1"}}, "", 401, "", ""},
	} {
		status, header, body := asked(
			t,
			from(fmt.Sprintf("127.0.9.%d", i+1)),
			url+"/mcp"+c.query,
			c.header,
		)
		if status != c.status || !strings.Contains(body, c.says) ||
			c.not != "" && strings.Contains(body, c.not) {
			t.Errorf("%s: %d %.200s, want %d", c.name, status, body, c.status)
		}
		if status == 401 {
			counted++
			if ch := header.Get("Www-Authenticate"); !strings.HasPrefix(
				ch,
				`Bearer realm="caponier"`,
			) ||
				strings.Contains(ch, "invalid_token") != (c.header.Get("Authorization") != "") {
				t.Errorf("%s: challenge %q", c.name, ch)
			}
		}
	}
	if got := refused(); got != fmt.Sprint(counted) {
		t.Errorf("%s are counted, want %d", got, counted)
	}
	if status, _, _ := asked(t, from("127.0.7.3"), url+"/mcp",
		auth("Bearer "+near)); status != 200 {
		t.Errorf("from its network: %d", status)
	}
	for n := range 7 { // a guesser is slowed, and locks nobody else out
		want := 401
		if n >= 5 {
			want = 429
		}
		if status, header, _ := asked(t, from("127.0.8.1"), url+"/mcp",
			auth("Bearer guess")); status != want ||
			(status == 429) != (header.Get("Retry-After") != "") {
			t.Errorf("guess %d: %d", n, status)
		}
	}
	if status, _, _ := asked(t, from("127.0.8.1"), url+"/mcp",
		auth("Bearer "+full)); status != 200 {
		t.Errorf("a good token beside the guesser: %d", status)
	}
	if status, _, _ := asked(t, from("127.0.8.2"), url+"/mcp",
		auth("Bearer guess")); status != 401 {
		t.Errorf("a guess from elsewhere: %d", status)
	}

	// A session that was opened with a token ends with it.
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		mine := token()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
			Connect(t.Context(),
				&mcp.StreamableClientTransport{
					Endpoint:   url + "/mcp",
					HTTPClient: &http.Client{Transport: bearer(mine)},
					MaxRetries: -1,
				}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		must(t, err)
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if out, err := s.command("token", "revoke", mine[:12]).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if _, err := session.ListTools(t.Context(), nil); err == nil ||
			!strings.Contains(err.Error(), "Unauthorized") {
			t.Errorf("%s: an open session after its token was revoked: %v", version, err)
		}
		session.Close()
	}
	time.Sleep(time.Until(ends))
	if status, _, _ := asked(t, from("127.0.6.1"), url+"/mcp",
		auth("Bearer "+brief)); status != 401 {
		t.Errorf("after it expired: %d", status)
	}
	out, err := s.command("--json", "token", "list").Output()
	must(t, err)
	var list []struct {
		Prefix   string
		LastUsed time.Time `json:"last_used"`
	}
	must(t, json.Unmarshal(out, &list))
	if len(list) != 7 || time.Since(list[0].LastUsed) > 3*time.Minute ||
		!list[4].LastUsed.IsZero() ||
		bytes.Contains(out, []byte(full)) {
		t.Errorf("the list: %s", out)
	}
}

// A local OpenID provider authenticates a caller that the site's data does not list.
func TestOpenIDThroughTheRealBinary(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	var provider *httptest.Server
	provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := map[string]any{
			"issuer":                                provider.URL,
			"jwks_uri":                              provider.URL + "/keys",
			"authorization_endpoint":                provider.URL + "/a",
			"token_endpoint":                        provider.URL + "/t",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
		if r.URL.Path == "/keys" {
			body = map[string]any{
				"keys": []any{
					map[string]any{
						"kty": "RSA",
						"kid": "1",
						"use": "sig",
						"alg": "RS256",
						"n":   b64(key.N.Bytes()),
						"e":   b64(big.NewInt(int64(key.E)).Bytes()),
					},
				},
			}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	defer provider.Close()
	sign := func(change map[string]any) http.Header {
		claims := map[string]any{
			"iss":   provider.URL,
			"aud":   "https://ops.example/mcp",
			"sub":   "dana",
			"exp":   time.Now().Add(time.Hour).Unix(),
			"iat":   time.Now().Unix(),
			"roles": []string{"viewer"},
			"scope": "caponier:use",
		}
		for k, v := range change {
			claims[k] = v
		}
		body, err := json.Marshal(claims)
		must(t, err)
		text := b64([]byte(`{"alg":"RS256","kid":"1","typ":"at+jwt"}`)) + "." + b64(body)
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		must(t, err)
		return http.Header{"Authorization": {"Bearer " + text + "." + b64(sig)}}
	}
	s := newSite(t)
	s.rewrite(t, "claimable_roles: []", "claimable_roles: [viewer]")
	s.append(
		t,
		"\n[identity.oidc]\nissuer = %q\naudience = \"https://ops.example/mcp\"\nroles_claim = \"roles\"\nscopes = [\"caponier:use\"]\n",
		provider.URL,
	)
	url := s.serveHTTP(t)
	for i, c := range []struct {
		name      string
		change    map[string]any
		status    int
		says, not string
	}{
		{"a good one", nil, 200, "proxmox_list_containers", "proxmox_stop_container"},
		{"a role that nobody may claim", map[string]any{"roles": []string{"operator"}}, 200,
			`"tools":[]`, "proxmox"},
		{"for another audience", map[string]any{"aud": "https://other.example/mcp"}, 401, "", ""},
		{"of another issuer", map[string]any{"iss": "https://evil.example"}, 401, "", ""},
		{"that expired", map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}, 401, "", ""},
		{"without the scope", map[string]any{"scope": "other"}, 403, "scope", ""},
		{"without a role", map[string]any{"roles": []string{}}, 401, "", ""},
		{"for nobody", map[string]any{"sub": "../x"}, 401, "", ""},
	} {
		status, header, body := asked(
			t,
			from(fmt.Sprintf("127.0.5.%d", i+1)),
			url+"/mcp",
			sign(c.change),
		)
		if status != c.status || !strings.Contains(body, c.says) ||
			c.not != "" && strings.Contains(body, c.not) {
			t.Errorf("%s: %d %.300s, want %d", c.name, status, body, c.status)
		}
		if status == 401 || status == 403 {
			if ch := header.Get("Www-Authenticate"); !strings.Contains(
				ch,
				`resource_metadata="https://ops.example/.well-known/oauth-protected-resource/mcp"`,
			) ||
				!strings.Contains(ch, `scope="caponier:use"`) ||
				strings.Contains(ch, "insufficient_scope") != (status == 403) {
				t.Errorf("%s: challenge %q", c.name, ch)
			}
		}
	}
	res, err := http.Get(url + "/.well-known/oauth-protected-resource/mcp")
	must(t, err)
	defer res.Body.Close()
	meta, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(meta), `"resource":"https://ops.example/mcp"`) ||
		!strings.Contains(string(meta), `"authorization_servers":["`+provider.URL+`"]`) {
		t.Errorf("metadata %s, %v", meta, err)
	}
}

func TestItListensBeyondLoopbackOnlyWithAuthenticationAndTLS(t *testing.T) {
	s := newSite(t)
	whole, err := os.ReadFile(s.config)
	must(t, err)
	for name, c := range map[string]struct{ config, says string }{
		"nobody proves anything": {
			"[identity]\nhttp = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n",
			"callers who prove who they are"},
		"tokens without TLS": {
			"[identity]\ntokens = \"tokens.json\"\n[[identity.principals]]\nid = \"demo\"\n",
			"more than loopback needs TLS"},
		"no identity at all": {"", "no caller is accepted over HTTP"},
		"a caller without a token beside tokens": {"[identity]\nhttp = \"demo\"\ntokens = " +
			"\"tokens.json\"\n[[identity.principals]]\nid = \"demo\"\n", "would be let in"},
		"half a certificate": {
			"[front]\ntls_cert = \"x.pem\"\n[identity]\ntokens = \"tokens.json\"\n",
			"set both or neither"},
	} {
		must(t, os.WriteFile(s.config, append(bytes.Clone(whole), "\n"+c.config...), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		cmd := exec.CommandContext(ctx, bin, "--config", s.config, "serve", "--http", "0.0.0.0:0")
		cmd.Env = s.command().Env
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v %s, want %q", name, err, out, c.says)
		}
	}
}

//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// free returns a port of loopback that nobody listens on.
func free(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// protected starts the host with this table of its provider; its resource is
// replaced by the host's own.
// ended ends it, and returns its log.
func protected(t *testing.T, provider string) (url string, ended func() string) {
	t.Helper()
	shipped, err := os.ReadFile("config.toml")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", free(t))
	url = "http://" + address + "/mcp"
	head, _, _ := strings.Cut(string(shipped), "[identity]")
	head = regexp.MustCompile(`"(site|\.\./[^"]*)"`).ReplaceAllString(head, `"`+here+`/$1"`)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	provider = strings.Replace(provider, "https://caponier.example.org/mcp", url, 1)
	if err := os.WriteFile(config, []byte(head+"\n"+provider), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAPONIER_AUDIT_DIR", filepath.Join(dir, "journal"))
	t.Setenv("CAPONIER_STORE_DIR", filepath.Join(dir, "store"))
	cmd := exec.Command(host, "--config", config, "serve", "--http", address)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = sync.OnceValue(func() string {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		return log.String()
	})
	t.Cleanup(func() { ended() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return url, ended
		}
		if time.Now().After(end) {
			t.Fatalf("the host does not listen: %v\n%s", err, ended())
		}
	}
}

// Clients that know nothing but the URL sign in at a real provider, in both protocol versions, and
// go on when their token ends. What else a provider gives out lets nobody in.
func TestOAuthFromEndToEnd(t *testing.T) {
	for client, version := range map[string]string{"v1": "2025-11-25", "v2": "2026-07-28",
		"v2-legacy": "2025-11-25"} {
		t.Run(client, func(t *testing.T) {
			provider, other := free(t), free(t)
			url, ended := protected(t, fmt.Sprintf(`[identity.oidc]
issuer = "http://127.0.0.1:%d"
audience = "https://caponier.example.org/mcp"
scopes = ["caponier"]
[[identity.oidc.callers]]
claim = "auth0|5f7c8ec7c33c6c004bbafe82"
principal = "suite"
`, provider))
			cmd := exec.CommandContext(t.Context(), node, "oauth.mjs", client, url,
				fmt.Sprint(provider), fmt.Sprint(other))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v %s", err, stderr.String())
			}
			var seen struct {
				Requests                [][]string
				Versions                []string
				Asked                   map[string]any
				Unauthorized, Refreshed bool
				Tools, ToolsAfterItsEnd int
				Shown, Provider         map[string]string
			}
			lines := bytes.Split(bytes.TrimSpace(out), []byte("\n")) // the provider says more
			if err := json.Unmarshal(lines[len(lines)-1], &seen); err != nil {
				t.Fatal(err)
			}
			path := func(want ...string) bool {
				for _, r := range seen.Requests {
					if reflect.DeepEqual(r, want) {
						return true
					}
				}
				return false
			}
			if !seen.Unauthorized || !seen.Refreshed || seen.Tools < 5 ||
				seen.ToolsAfterItsEnd != seen.Tools ||
				seen.Versions[len(seen.Versions)-1] != version ||
				!path("host", "GET", "/.well-known/oauth-protected-resource/mcp", "", "") ||
				!path("provider", "GET", "/.well-known/oauth-authorization-server", "", "") &&
					!path("provider", "GET", "/.well-known/openid-configuration", "", "") ||
				!path("provider", "POST", "/token", "authorization_code", url) ||
				!path("provider", "POST", "/token", "refresh_token", url) ||
				seen.Asked["issuer"] != true || seen.Asked["pkce"] != "S256" ||
				seen.Asked["resource"] != url ||
				!strings.Contains(fmt.Sprint(seen.Asked["scope"]), "caponier") {
				t.Errorf("the client saw %s", out)
			}
			for what, want := range map[string]string{"good": "200",
				"for another resource": "401 invalid_token",
				"of another issuer":    "401 invalid_token",
				"without the scope":    "403 insufficient_scope",
				"an ID token":          "401 invalid_token", "a refresh token": "401 invalid_token",
				"an opaque token": "401 invalid_token", "a code": "401 invalid_token"} {
				if seen.Shown[what] != want {
					t.Errorf("a token %s: %q, want %q", what, seen.Shown[what], want)
				}
			}
			log := ended()
			for _, why := range []string{
				`the token is for audience [\"https://other.example/mcp\"]`,
				fmt.Sprintf(`the token is of issuer \"http://127.0.0.1:%d\"`, other),
				"scope caponier is missing", "not a JWT", "token is expired"} {
				if !strings.Contains(log, why) {
					t.Errorf("the log does not say %s:\n%s", why, log)
				}
			}
			if want := map[string]string{"a code of another client": "invalid_grant",
				"a code twice": "invalid_grant", "a refresh token twice": "invalid_grant",
				"a code with another verifier": "invalid_grant", "no PKCE": "invalid_request",
				"plain PKCE":           "invalid_request",
				"another redirect URI": "invalid_redirect_uri"}; !reflect.DeepEqual(
				seen.Provider, want) {
				t.Errorf("the provider says %q, want %q", seen.Provider, want)
			}
		})
	}
}

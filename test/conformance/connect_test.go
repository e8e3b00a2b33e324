//go:build conformance

package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// `caponier connect` signs a person in at npm's oidc-provider, which holds it to PKCE, to the exact
// redirect URI and to each refresh token once; in both protocol versions, and for the next process.
func TestConnectSignsInAtARealProvider(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	for version, lines := range map[string][]string{
		"2025-11-25": {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` +
			`{"protocolVersion":"2025-11-25","capabilities":{},` +
			`"clientInfo":{"name":"t","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}`},
		"2026-07-28": {`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{` + meta + `}}`},
	} {
		t.Run(version, func(t *testing.T) {
			port := free(t)
			realClient(t, port, "http://127.0.0.1/other")
			url, _ := protected(t, fmt.Sprintf(`[identity.oidc]
issuer = "http://127.0.0.1:%d"
audience = "https://caponier.example.org/mcp"
scopes = ["caponier"]
[[identity.oidc.callers]]
claim = "auth0|5f7c8ec7c33c6c004bbafe82"
principal = "suite"
`, port))
			until(t, strings.TrimSuffix(url, "/mcp")+"/health")
			home := t.TempDir()
			if out, said := connected(t, home, url, lines); !strings.Contains(out,
				`"id":7,"result":{`) || !strings.Contains(said, "signed in; this is kept") {
				t.Fatalf("%s\n%s", out, said)
			}
			again := func(what string) {
				t.Helper()
				out, said := connected(t, home, url, lines)
				if !strings.Contains(out, `"id":7,"result":{`) || strings.Contains(said, "sign") {
					t.Errorf("%s: %s\n%s", what, out, said)
				}
			}
			again("another process")
			files, err := filepath.Glob(filepath.Join(home, "caponier/signed-in/*.json"))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			kept, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			old := regexp.MustCompile(`"expiry":"[^"]*"`).ReplaceAll(kept,
				[]byte(`"expiry":"2026-01-01T00:00:00Z"`))
			if err := os.WriteFile(files[0], old, 0o600); err != nil {
				t.Fatal(err)
			}
			again("after the token's end")
			if now, err := os.ReadFile(files[0]); err != nil || string(now) == string(old) {
				t.Error("nothing was refreshed", err)
			}
			// the provider takes a used refresh token for a theft, and the person signs in anew
			if err := os.WriteFile(files[0], old, 0o600); err != nil {
				t.Fatal(err)
			}
			out, said := connected(t, home, url, lines)
			if !strings.Contains(out, `"id":7,"result":{`) ||
				!strings.Contains(said, "signed in;") {
				t.Errorf("with a used refresh token: %s\n%s", out, said)
			}
		})
	}
}

// result is a scenario of a suite as the official suite prints it.
var result = regexp.MustCompile(
	`(?m)^. auth/(\S+): (\d+) passed, (\d+) failed(, \d+ warnings)?$`)

// The official suite's scenarios of authorization, of each version, with `caponier connect` as the
// client. Warned is what it is alone: a client that is known by the address of a document about it.
func TestConnectPassesTheSuitesAuthorization(t *testing.T) {
	runs := [][]string{{"--suite", "auth", "--spec-version", "2025-11-25"},
		{"--suite", "auth", "--spec-version", "2026-07-28"}}
	for _, name := range []string{"resource-mismatch", "offline-access-scope",
		"offline-access-not-supported", "authorization-server-migration", "iss-supported",
		"iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected",
		"iss-normalized", "metadata-issuer-mismatch"} {
		runs = append(runs, []string{"--scenario", "auth/" + name})
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs(host)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		cmd := exec.CommandContext(t.Context(), node, append([]string{filepath.Join(here,
			"node_modules/@modelcontextprotocol/conformance/dist/index.js"), "client",
			"--command", filepath.Join(here, node) + " " + filepath.Join(here, "connect.mjs"),
			"-o", t.TempDir()}, run...)...)
		cmd.Env = append(os.Environ(), "CAPONIER="+program)
		out, _ := cmd.CombinedOutput() // a warning is an exit code of 1
		whole := result.FindAllSubmatch(out, -1)
		for _, m := range whole {
			if string(m[2]) == "0" || string(m[3]) != "0" ||
				len(m[4]) > 0 && string(m[1]) != "basic-cimd" {
				t.Errorf("%q: %s", run, m[0])
			}
		}
		one := regexp.MustCompile(`Passed: ([1-9]\d*)/\d+, 0 failed, 0 warnings`).Match(out)
		if run[0] == "--suite" && len(whole) < 14 || run[0] != "--suite" && !one {
			t.Errorf("%q: %d scenarios: %s", run, len(whole), out)
		}
	}
}

// until waits for a host.
func until(t *testing.T, health string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		res, err := http.Get(health)
		if err == nil {
			res.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// connected bridges these lines; whoever is asked to sign in does. It returns what the client and
// the person saw.
func connected(t *testing.T, home, url string, lines []string) (out, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), host, "connect", url, "--no-browser")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home, "CAPONIER_TOKEN=")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	var seen strings.Builder
	cmd.Stdout = &seen
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(stderr); scan.Scan(); {
		said += scan.Text() + "\n"
		if !strings.HasPrefix(scan.Text(), "http://") {
			continue
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Jar: jar}).Get(scan.Text())
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(page), "You can close this page") {
			t.Errorf("the browser comes to %d %s", res.StatusCode, page)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	return seen.String(), said
}

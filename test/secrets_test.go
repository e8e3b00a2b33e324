package test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// One secret of each kind is used, successfully and unsuccessfully. None of them appears outside
// its own place: not in the host's log, the journal, any other file of the host, answers and
// errors, metrics, a plugin's memory, or the process table.
func TestCanarySecretsAppearNowhere(t *testing.T) {
	canaries := map[string]string{
		"credential": "canary-credential-5d1f",
		"argument":   "canary-argument-09be",
		"webhook":    "canary-webhook-secret-of-32-bytes-1c",
		"sink":       "canary-sink-token-77aa",
	}
	var mu sync.Mutex // guards reached and exported
	var reached []string
	exported := map[string][]byte{} // by kind of sink
	evidence := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zip, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		text, err := io.ReadAll(zip)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+canaries["sink"] {
			t.Error(err, r.Header)
		}
		mu.Lock()
		exported[r.URL.Path] = append(exported[r.URL.Path], text...)
		mu.Unlock()
	}))
	defer evidence.Close()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		reached = append(reached, r.Header.Get("Authorization"))
		mu.Unlock()
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://127.0.0.1:1/"+canaries["credential"], http.StatusFound)
			return
		}
		fmt.Fprintf(w, "you sent %q", r.Header.Get("Authorization"))
	}))
	defer web.Close()
	at, err := url.Parse(web.URL)
	must(t, err)

	s := newSite(t, filepath.Join(plugins, "web.wasm"), filepath.Join(guests, "callers.wasm"))
	s.rewrite(
		t,
		"\ntiers:\n",
		"\ntiers:\n  \"tool:curl_execute\": yellow\n",
		"blob_read, blob_write, ask, list_commands, undo_steps, snapshots]",
		"blob_read, blob_write, ask, list_commands, undo_steps, snapshots, http_request]",
		"\negress: {}\n",
		"\negress:\n  127.0.0.1: {schemes: [http], ports: ["+at.Port()+
			"], methods: [GET, POST], classes: [loopback], max_hops: 2, max_body_bytes: 200000}\n",
	)
	stranger, _ := sshtest.NewKeyFile(t) // a key that the lab does not take
	pem, err := os.ReadFile(stranger)
	must(t, err)
	canaries["stranger's key"] = strings.Split(string(pem), "\n")[2]
	numbers := freeAddress(t)
	config, err := os.ReadFile(s.config)
	must(t, err)
	pve1 := regexp.MustCompile(`(?s)\[\[remote.nodes\]\]\nname = "pve1".*?\ndefault = true`).
		FindString(string(config))
	edge := regexp.MustCompile(`identity_file = .*`).
		ReplaceAllString(strings.NewReplacer(`"pve1"`, `"edge"`, "\ndefault = true",
			"").Replace(pve1), fmt.Sprintf("identity_file = %q", stranger))
	must(t, os.WriteFile(s.config, fmt.Appendf(config, `
%s
[[egress.credentials]]
name = "api"
origins = [%q]
tools = ["curl_execute"]
secret = %q
[approval]
approvers = ["ann"]
wait = "100ms"
[approval.webhook]
url = %q
secret = %q
[identity]
tokens = %q
[[identity.principals]]
id = "demo"
[front]
metrics = %q
[export]
[[export.sinks]]
name = "opa"
kind = "opa"
url = %q
token = %q
[[export.sinks]]
name = "otlp"
kind = "otlp"
url = %q
token = %q
[[export.sinks]]
name = "lines"
kind = "jsonl"
file = %q
`, edge, web.URL, canaries["credential"], web.URL+"/hook", canaries["webhook"],
		filepath.Join(s.dir, "tokens.json"), numbers, evidence.URL+"/opa", canaries["sink"],
		evidence.URL+"/otlp", canaries["sink"], filepath.Join(s.dir, "exported.jsonl")), 0o600))

	key := regexp.MustCompile(`identity_file = "([^"]+)"`).FindStringSubmatch(string(config))
	pem, err = os.ReadFile(key[1])
	must(t, err)
	canaries["key"] = strings.Split(string(pem), "\n")[2]
	token, err := s.command("token", "new", "demo").Output()
	must(t, err)
	canaries["token"] = strings.TrimSpace(string(token))

	cmd := s.command("serve", "--http", "127.0.0.1:0")
	log, err := os.Create(filepath.Join(s.dir, "stderr.log"))
	must(t, err)
	cmd.Stderr = log
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	base := ""
	eventually(t, "it serves", func() bool {
		text, err := os.ReadFile(log.Name())
		if m := regexp.MustCompile(`url=(http://\S+)/mcp`).FindSubmatch(text); m != nil {
			base = string(m[1])
		}
		return err == nil && base != ""
	})
	var seen bytes.Buffer // everything that callers are told
	get := func(path string, header ...string) {
		at := base
		if path == "/metrics" {
			at = "http://" + numbers
		}
		req, err := http.NewRequest("GET", at+path, nil)
		must(t, err)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		defer res.Body.Close()
		must(t, res.Write(&seen))
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: base + "/mcp",
			HTTPClient: &http.Client{Transport: bearer(canaries["token"])}}, nil)
	must(t, err)
	call := func(tool string, args map[string]any, want string) string {
		t.Helper()
		how, _, text := outcome(t, session, tool, args)
		if how != want {
			t.Errorf("%s %v: %s %s, want %s", tool, args, how, text, want)
		}
		seen.WriteString(text)
		return text
	}
	call(
		"proxmox_container_exec_command",
		map[string]any{"vmid": 101, "command": "env; hostname"},
		"succeeded",
	)
	call("callers_list", map[string]any{"node": "edge"}, "failed") // the lab does not take its key
	if text := call("curl_execute", map[string]any{"url": web.URL + "/", "credential": "api"},
		"succeeded"); !strings.Contains(
		text,
		"[redacted]",
	) {
		t.Errorf("the credential was not scrubbed, or did not arrive: %s", text)
	}
	call(
		"curl_execute",
		map[string]any{"url": web.URL + "/away", "credential": "api", "follow_redirects": true},
		"failed",
	)
	call(
		"curl_execute",
		map[string]any{"url": web.URL + "/", "token": canaries["argument"]},
		"succeeded",
	)
	call(
		"curl_execute",
		map[string]any{"url": web.URL + "/", "token": canaries["argument"], "unknown": 1},
		"refused",
	)
	// tells the webhook
	call("proxmox_stop_container", map[string]any{"vmid": 110, "node": "pve2"}, "waiting")
	get("/metrics", "Authorization", "Bearer "+canaries["token"])
	get("/metrics", "Authorization", "Bearer "+canaries["token"]+"x")
	get("/metrics", "Authorization", "Basic "+canaries["token"])
	get("/mcp?access_token="+canaries["token"], "Cookie", "token="+canaries["token"])
	get("/" + canaries["token"])
	get("/health")
	masked := func(text string) (m []int) {
		for _, b := range []byte(text) {
			m = append(m, int(b^90))
		}
		return m
	}
	if text := call("callers_search", map[string]any{"masked": masked("a word that is there"),
		"plain": "a word that is there"}, "succeeded"); strings.Contains(
		text,
		"found 0 ",
	) {
		t.Fatalf("the search finds nothing at all: %s", text)
	}
	for name, canary := range canaries {
		if text := call("callers_search", map[string]any{"masked": masked(canary)},
			"succeeded"); !strings.Contains(
			text,
			"found 0 ",
		) {
			t.Errorf("the plugin's memory holds the %s: %s", name, text)
		}
	}
	for _, file := range []string{"cmdline", "environ"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, file))
		must(t, err)
		seen.Write(data)
	}
	must(t, session.Close())
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()

	mu.Lock()
	defer mu.Unlock()
	// The search must be able to find something: the secrets were used, and other values are not
	// hidden.
	if all := strings.Join(reached, " "); !strings.Contains(
		all,
		"Bearer "+canaries["credential"],
	) ||
		!strings.Contains(all, canaries["argument"]) {
		t.Errorf("the server was sent %s", all)
	}
	lines, err := os.ReadFile(filepath.Join(s.dir, "exported.jsonl"))
	must(t, err)
	exported["/jsonl"] = lines
	for _, kind := range []string{"/opa", "/otlp", "/jsonl"} {
		if !bytes.Contains(exported[kind], []byte("curl_execute")) {
			t.Errorf("%s: the sink got nothing: %.200s", kind, exported[kind])
		}
		for name, canary := range canaries {
			if at := bytes.Index(exported[kind], []byte(canary)); at >= 0 {
				t.Errorf("%s: the sink got the %s: …%s", kind, name,
					exported[kind][max(0, at-200):at])
			}
		}
	}
	own := map[string]bool{s.config: true, key[1]: true}
	must(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || own[path] {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		for name, canary := range canaries {
			if bytes.Contains(data, []byte(canary)) {
				at := bytes.Index(data, []byte(canary))
				t.Errorf("%s holds the %s: …%s", path, name, data[max(0, at-200):at+len(canary)])
			}
		}
		return err
	}))
	for name, canary := range canaries {
		// The argument is the caller's own, and the server told it to the caller.
		if at := bytes.Index(seen.Bytes(), []byte(canary)); at >= 0 && name != "argument" {
			t.Errorf("callers are shown the %s: …%s", name, seen.Bytes()[max(0, at-200):at])
		}
	}
	if !bytes.Contains(seen.Bytes(), []byte("caponier_calls_total")) ||
		!strings.Contains(seen.String(), "web01") {
		t.Error("nothing was seen at all")
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

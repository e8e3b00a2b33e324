package test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// rewrite replaces text of the site's data.yaml.
func (s *site) rewrite(t *testing.T, pairs ...string) {
	t.Helper()
	file := filepath.Join(s.dir, "site", "data.yaml")
	data, err := os.ReadFile(file)
	must(t, err)
	text := string(data)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("data.yaml has no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

// restOfLine returns what follows mark on its line of text, and whether mark is there.
func restOfLine(text, mark string) (string, bool) {
	_, rest, found := strings.Cut(text, mark)
	line, _, _ := strings.Cut(rest, "\n")
	return line, found
}

// A site that switches web, jq and llm on: real plugins in the real binary, against servers on this
// machine.
func TestOutside(t *testing.T) {
	const key = "sk-a-key-that-nobody-sees"
	var hidden atomic.Int64
	other := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hidden.Add(1) }),
	)
	defer other.Close()
	var authorized atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/rows":
			fmt.Fprint(
				w,
				`{"rows":[`+strings.Repeat(
					`{"name":"one of many rows"},`,
					180_000,
				)+`{"name":"the last"}]}`,
			)
		case "/ten": // as large as an answer may be, in rows as Proxmox gives them
			const row = `{"id":"qemu/%05d","type":"qemu","vmid":%d,"node":"pve1","name":"web01",` +
				`"status":"running","cpu":0.012345,"maxcpu":4,"mem":%d,"maxmem":4294967296,` +
				`"disk":0,"maxdisk":34359738368,"uptime":123456,"netin":1234567,"netout":7654321},`
			var b strings.Builder
			for i := 0; b.Len() < 10<<20-300; i++ {
				fmt.Fprintf(&b, row, i, 100+i%900, i)
			}
			fmt.Fprint(w, "["+strings.TrimSuffix(b.String(), ",")+"]")
		case "/home":
			http.Redirect(w, r, "/small", http.StatusFound)
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/v1/chat/completions":
			if r.Header.Get("Authorization") == "Bearer "+key {
				authorized.Add(1)
			}
			fmt.Fprintf(
				w,
				`{"model":"m","choices":[{"message":{"content":%q},"finish_reason":"stop"}],`+
					`"usage":{"prompt_tokens":100,"completion_tokens":100}}`,
				"you sent "+r.Header.Get("Authorization"),
			)
		default:
			fmt.Fprint(w, `{"a":[1,{"b":"x"}]}`)
		}
	}))
	defer srv.Close()
	at, err := url.Parse(srv.URL)
	must(t, err)

	s := newSite(
		t,
		filepath.Join(plugins, "web.wasm"),
		filepath.Join(plugins, "jq.wasm"),
		filepath.Join(plugins, "llm.wasm"),
	)
	s.rewrite(
		t,
		"\ntiers:\n",
		"\ntiers:\n  \"tool:curl_execute\": yellow\n  \"resource:curl://docs/api\": green\n  \"resource:curl-docs\": green\n  \"prompt:api-test\": green\n  \"prompt:api-discovery\": green\n  \"tool:llm_query\": yellow\n",
		"blob_read, blob_write, ask, list_commands, undo_steps, snapshots]",
		"blob_read, blob_write, ask, list_commands, undo_steps, snapshots, http_request]",
		"usd_micros_per_day: 0",
		"usd_micros_per_day: 100000",
		"\negress: {}\n",
		"\negress:\n  127.0.0.1: {schemes: [http], ports: ["+at.Port()+
			"], methods: [GET, POST], classes: [loopback], max_hops: 2, max_body_bytes: 200000}\n",
	)
	data, err := os.ReadFile(s.config)
	must(t, err)
	must(t, os.WriteFile(s.config, fmt.Appendf(data, `
[egress]
usd_micros_per_day = 2500
[[egress.credentials]]
name = "openai"
origins = [%q]
tools = ["llm_query"]
secret = %q
[[egress.prices]]
origin = %[1]q
model = "m"
input_usd_micros = 2000000
output_usd_micros = 10000000
`, srv.URL, key), 0o600))
	session := s.stdio(t)

	how, _, text := outcome(t, session, "curl_execute", map[string]any{"url": srv.URL + "/rows"})
	id, saved := restOfLine(text, "saved as artifact ")
	if how != "succeeded" || !saved {
		t.Fatalf("a long answer: %s %s", how, text)
	}
	if files, err := filepath.Glob(filepath.Join(s.dir, "state/blobs/*")); err != nil ||
		len(files) != 1 {
		t.Errorf("artifacts on disk: %v, %v", files, err)
	} else if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the artifact: %v, %v", info, err)
	}
	ask := func(tool string, args map[string]any, wantHow string, words ...string) {
		t.Helper()
		how, _, text := outcome(t, session, tool, args)
		for _, w := range words {
			if how != wantHow || !strings.Contains(text, w) {
				t.Errorf("%s %v: %s %.500s; want %s with %q", tool, args, how, text, wantHow, w)
			}
		}
		if strings.Contains(text, key) {
			t.Errorf("%s shows the key: %s", tool, text)
		}
	}
	ask(
		"jq_query",
		map[string]any{"artifact": id, "jq_filter": ".rows.180000.name"},
		"succeeded",
		"the last",
	)
	ask(
		"jq_query",
		map[string]any{"artifact": strings.Repeat("a", 26), "jq_filter": "."},
		"failed",
		"no such blob",
	)
	ask(
		"jq_query",
		map[string]any{"json": "1", "jq_filter": `"x" * 1000000000`},
		"failed",
		"plugin_memory",
	)
	_, _, text = outcome(t, session, "curl_execute", map[string]any{"url": srv.URL + "/ten"})
	ten, _ := restOfLine(text, "saved as artifact ")
	for filter, want := range map[string]string{"map(select(.vmid == 102)) | length": "51",
		".[] | select(.id == \"qemu/41999\") | .mem": "41999",
		"[.[40000:].[0:2][].mem] | add":              "80001", "length": "45440"} {
		ask("jq_query", map[string]any{"artifact": ten, "jq_filter": filter}, "succeeded", want)
	}
	ask(
		"jq_query",
		map[string]any{"artifact": ten, "jq_filter": "sort_by(.mem) | length"},
		"failed",
		"plugin_memory",
		"Ask for less at a time",
	)
	ask(
		"jq_query",
		map[string]any{"artifact": ten, "jq_filter": ".[0:20000] | sort_by(-.mem) | .[0].mem"},
		"succeeded",
		"19999",
	)
	ask(
		"jq_query",
		map[string]any{"json": `{"a":[1,2]}`, "jq_filter": ".a | add"},
		"succeeded",
		"3",
	)
	ask(
		"curl_execute",
		map[string]any{"url": srv.URL + "/home", "follow_redirects": true, "jq_filter": ".a.1.b"},
		"succeeded",
		`"x"`,
		"redirected with 302",
	)
	ask(
		"curl_execute",
		map[string]any{"url": srv.URL + "/away", "follow_redirects": true},
		"failed",
		"egress",
		"led here",
	)
	ask("curl_execute", map[string]any{"url": other.URL}, "failed", "egress")
	ask(
		"curl_execute",
		map[string]any{"url": srv.URL + "/", "credential": "openai"},
		"failed",
		"for the tool curl_execute",
	)
	how, _, text = outcome(
		t,
		session,
		"curl_execute",
		map[string]any{"url": srv.URL + "/small", "output_dir": "api/today"},
	)
	file, saved := restOfLine(text, "saved in your workspace as ")
	file = filepath.Join(s.dir, "lab/workspace/demo", file)
	if info, err := os.Stat(file); how != "succeeded" || !saved || err != nil ||
		info.Mode().Perm() != 0o600 ||
		!strings.HasPrefix(filepath.Base(file), "response-") ||
		filepath.Ext(file) != ".json" {
		t.Errorf("an answer for the workspace: %s %s, %v", how, text, err)
	}
	if body, err := os.ReadFile(file); string(body) != `{"a":[1,{"b":"x"}]}` {
		t.Errorf("the file holds %s, %v", body, err)
	}
	s.journaled(
		t,
		`"type":"intent".*"op":"blob_read".*"tier":"yellow".*"action":"get".*"local":"api/today/`+
			`response-`,
	)
	must(t, os.Symlink(t.TempDir(), filepath.Join(s.dir, "lab/workspace/demo/out")))
	ask(
		"curl_execute",
		map[string]any{"url": srv.URL + "/small", "output_dir": "out"},
		"failed",
		"not_saved",
		"answered with status 200",
	)
	for _, dir := range []string{"../demo2", "/tmp", ".hidden", "a/../../b", ""} {
		ask(
			"curl_execute",
			map[string]any{"url": srv.URL + "/small", "output_dir": dir},
			"refused",
			"output_dir",
		)
	}
	if n := hidden.Load(); n != 0 {
		t.Errorf("the server that is not listed was reached %d times", n)
	}

	question := map[string]any{
		"provider":   "openai",
		"model":      "m",
		"prompt":     "Hi",
		"max_tokens": 150,
		"base_url":   srv.URL + "/v1",
	}
	// 100*2 + 100*10 = 1200 of 2500
	ask("llm_query", question, "succeeded", "you sent Bearer [redacted]")
	ask("llm_query", question, "failed", "go over the day's limit of 2500")
	ask(
		"llm_query",
		map[string]any{
			"provider": "openai",
			"model":    "dear",
			"prompt":   "Hi",
			"base_url": srv.URL + "/v1",
		},
		"failed",
		"not among those",
	)
	ask(
		"llm_query",
		map[string]any{
			"provider": "openai",
			"base_url": srv.URL + "/v1",
			"model":    "m",
			"prompt":   strings.Repeat("word ", 30_000),
		},
		"failed",
		"the limit is 102400",
	)
	// before any plugin runs
	ask(
		"llm_query",
		map[string]any{
			"provider": "openai",
			"base_url": "http://169.254.169.254/v1",
			"model":    "m",
			"prompt":   "Hi",
		},
		"refused",
		"egress",
	)
	if n := authorized.Load(); n != 1 {
		t.Errorf("%d requests had the key, want the one that was within the budget", n)
	}

	if list, err := session.ListResources(t.Context(), nil); err != nil ||
		len(list.Resources) != 1 ||
		list.Resources[0].MIMEType != "text/markdown" {
		t.Errorf("resources: %v %+v", err, list)
	}
	res, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "curl://docs/api"})
	if err != nil || len(res.Contents) != 1 || res.Contents[0].MIMEType != "text/markdown" ||
		!strings.Contains(res.Contents[0].Text, "follow_redirects") {
		t.Errorf("the resource gave %+v, %v", res, err)
	}
	for name, args := range map[string]map[string]string{"api-test": {"url": srv.URL,
		"expected": "200"}, "api-discovery": {"base_url": srv.URL}} {
		p, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: args})
		if err != nil || len(p.Messages) != 1 ||
			!strings.Contains(p.Messages[0].Content.(*mcp.TextContent).Text, srv.URL) {
			t.Errorf("prompt %s gave %+v, %v", name, p, err)
		}
	}
	must(t, session.Close())
	if files, err := filepath.Glob(filepath.Join(s.dir, "state/blobs/*")); err != nil ||
		len(files) != 0 {
		t.Errorf("artifacts after the end: %v, %v", files, err)
	}
	_ = filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if b, e := os.ReadFile(path); err == nil && e == nil && path != s.config &&
			strings.Contains(string(b), key) {
			t.Errorf("%s holds the key", path)
		}
		return nil
	})
}

// A filter that never ends, or fills the memory, dies with its call; the next one finds everything
// as it was.
func TestAHostileFilterDiesWithItsBudget(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "jq.wasm"))
	s.rewrite(t, "timeout_ms: 0", "timeout_ms: 1500")
	session := s.stdio(t)
	for _, filter := range []string{"def f: f; f", "[range(1e18)]",
		"reduce range(1e12) as $i (\"\"; . + \"xxxxxxxxxxxxxxxx\")",
		"\"x\" * 1e9 | test(\"(x+x+)+y\")"} {
		began := time.Now()
		res, err := session.CallTool(
			t.Context(),
			&mcp.CallToolParams{
				Name:      "jq_query",
				Arguments: map[string]any{"json": "1", "jq_filter": filter},
			},
		)
		wire := (*jsonrpc.Error)(nil)
		switch {
		case errors.As(err, &wire) && wire.Code == -32001 &&
			strings.Contains(string(wire.Data), `"may_have_executed":false`):
		case err == nil && res.IsError && strings.Contains(res.Content[0].(*mcp.TextContent).Text,
			"plugin_"):
		default:
			t.Errorf("%s: %v, %+v", filter, err, res)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s went on for %s", filter, took)
		}
	}
	if how, _, text := outcome(t, session, "jq_query",
		map[string]any{"json": `{"a":[1,2]}`, "jq_filter": ".a | add"}); how != "succeeded" ||
		!strings.Contains(text, "3") {
		t.Errorf("afterwards: %s %s", how, text)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

// serve is a server that speaks both protocols, strictly. It adds the key as the host does.
func serve(t *testing.T, h *sdktest.Host) (url string, seen *[]map[string]any) {
	seen = &[]map[string]any{}
	fail := func(w http.ResponseWriter, status int, msg string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"x"}}`, msg)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m map[string]any
		body, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" ||
			json.Unmarshal(body, &m) != nil {
			fail(w, 400, "not a request")
			return
		}
		*seen = append(*seen, m)
		model, _ := m["model"].(string)
		limit, _ := m["max_tokens"].(float64)
		switch {
		case r.Header.Get("Test-Key") != "openai" && r.URL.Path == "/v1/chat/completions" &&
			model != "open",
			r.Header.Get("Test-Key") != "anthropic" && r.URL.Path == "/v1/messages":
			fail(w, 401, "bad key")
		case model == "missing":
			fail(w, 404, "no such model")
		case model == "busy":
			fail(w, 429, "slow down")
		case model == "broken":
			w.WriteHeader(502)
			io.WriteString(w, "<html>")
		case model == "strange":
			io.WriteString(w, `{"type":"ping"}`)
		case model == "moved":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case model == "new" && limit > 0:
			fail(w, 400,
				"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
		case r.URL.Path == "/v1/chat/completions":
			fmt.Fprint(
				w,
				`{"id":"1","object":"chat.completion","model":"m-1","choices":[{"index":0,`+
					`"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"}],`+
					`"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`,
			)
		case r.URL.Path == "/v1/messages" && r.Header.Get("anthropic-version") == "2023-06-01" &&
			limit > 0:
			fmt.Fprint(
				w,
				`{"id":"1","type":"message","role":"assistant","model":"m-2",`+
					`"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Par"},`+
					`{"type":"text","text":"is"}],"stop_reason":"end_turn",`+
					`"usage":{"input_tokens":7,"output_tokens":2}}`,
			)
		default:
			fail(w, 400, "neither protocol")
		}
	}))
	t.Cleanup(s.Close)
	h.HTTPRequest = func(q sdk.Request) (sdk.Response, error) {
		url := strings.NewReplacer("https://api.openai.com:443", s.URL, "https://api.openai.com",
			s.URL, "https://api.anthropic.com", s.URL).
			Replace(q.URL)
		req, err := http.NewRequest(q.Method, url, bytes.NewReader(q.Body))
		if err != nil {
			return sdk.Response{}, &sdk.OpError{Code: "bad_request", Message: err.Error()}
		}
		for _, kv := range q.Headers {
			req.Header.Set(kv[0], kv[1])
		}
		req.Header.Set("Test-Key", q.Credential)
		r, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return sdk.Response{}, &sdk.OpError{
				Code:    "connection",
				Message: err.Error(),
				Unknown: true,
			}
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		return sdk.Response{Status: r.StatusCode, Body: body, Bytes: int64(len(body))}, err
	}
	return s.URL, seen
}

// arguments are those of a test with the provider's own address, unless they name another.
func arguments(prompt, args, url string) string {
	if !strings.Contains(args, "base_url") {
		provider := "openai"
		if strings.Contains(args, "anthropic") {
			provider = "anthropic"
		}
		args += `,"base_url":"https://api.` + provider + `.com/v1"`
	}
	return `{"prompt":"` + prompt + `",` + strings.ReplaceAll(args, "BASE", url) + `}`
}

func TestBothProtocols(t *testing.T) {
	for name, tt := range map[string]struct{ args, want, code, words string }{
		"OpenAI": {args: `"provider":"openai","model":"m","system":"Be ` +
			`short.","temperature":0.5`, want: `{"answer":"Paris","model":"m-1",` +
			`"stop_reason":"stop","input_tokens":7,"output_tokens":2}`},
		"Anthropic": {args: `"provider":"anthropic","model":"m","system":"Be ` +
			`short.","max_tokens":5`, want: `{"answer":"Paris","model":"m-2",` +
			`"stop_reason":"end_turn","input_tokens":7,"output_tokens":2}`},
		"a newer model of OpenAI": {args: `"provider":"openai","model":"new"`,
			want: `{"answer":"Paris","model":"m-1","stop_reason":"stop","input_tokens":7,` +
				`"output_tokens":2}`},
		"a server without keys": {args: `"provider":"openai","model":"open","credential":"none",` +
			`"base_url":"BASE/v1/"`, want: `{"answer":"Paris","model":"m-1","stop_reason":"stop",` +
			`"input_tokens":7,"output_tokens":2}`},
		"a key of another name": {args: `"provider":"openai","model":"m","credential":"other"`,
			code: "not_authorized", words: "bad key"},
		"a model that is not there": {args: `"provider":"openai","model":"missing"`,
			code: "not_found", words: "no such model"},
		"too many questions": {args: `"provider":"anthropic","model":"busy"`,
			code: "rate_limited", words: "slow down"},
		"a provider that is down": {args: `"provider":"anthropic","model":"broken"`,
			code: "provider_failed", words: "502"},
		"an answer of another protocol": {args: `"provider":"anthropic","model":"strange"`,
			code: "bad_response", words: "not a message"},
		"no choices": {args: `"provider":"openai","model":"strange"`,
			code: "bad_response", words: "no choices"},
		"a redirect": {args: `"provider":"openai","model":"moved"`,
			code: "redirected", words: "307"},
		"an address with " +
			"a query": {args: `"provider":"openai","model":"m",` +
			`"base_url":"https://api.openai.com/v1?x="`, code: "bad_input",
			words: "without ? and #"},
	} {
		t.Run(name, func(t *testing.T) {
			h := sdktest.New(t)
			url, seen := serve(t, h)
			out, err := h.Call("llm_query", arguments("The capital of France?", tt.args, url))
			if err != nil {
				t.Fatal(err)
			}
			if tt.code != "" {
				if out.Error == nil || out.Error.Code != tt.code ||
					!strings.Contains(out.Error.Message, tt.words) {
					t.Errorf("error %+v, want %s with %q", out.Error, tt.code, tt.words)
				}
				return
			}
			if out.Error != nil || string(out.Structured) != tt.want || out.Text != "Paris" {
				t.Errorf("got %s %q, error %+v; want %s", out.Structured, out.Text, out.Error,
					tt.want)
			}
			sent, _ := json.Marshal(*seen)
			if strings.Contains(tt.args, "system") &&
				!strings.Contains(string(sent), "Be short.") ||
				!strings.Contains(string(sent), "The capital of France?") {
				t.Errorf("sent %s", sent)
			}
		})
	}
}

func TestWhatIsReserved(t *testing.T) {
	for args, want := range map[string]bool{`"provider":"openai","model":"m",` +
		`"max_tokens":100`: true, `"provider":"openai","model":"m","max_tokens":100,` +
		`"base_url":"https://api.openai.com:443/v1/"`: true, `"provider":"openai","model":"open",` +
		`"credential":"none","base_url":"BASE/v1"`: false} {
		h := sdktest.New(t)
		url, _ := serve(t, h)
		ask := h.HTTPRequest
		var got sdk.Request
		h.HTTPRequest = func(q sdk.Request) (sdk.Response, error) { got = q; return ask(q) }
		if out, err := h.Call("llm_query", arguments("x", args, url)); err != nil ||
			out.Error != nil {
			t.Fatal(err, out.Error)
		}
		if (got.ReserveUSDMicros > 100*dearOutput) != want || got.MaxHops != 0 {
			t.Errorf("%s reserves %d and follows %d redirects", args, got.ReserveUSDMicros,
				got.MaxHops)
		}
	}
}

func TestTheGuardSaysWhyNothingWasSent(t *testing.T) {
	code := strings.Repeat("if err != nil {\n\treturn err;\n}\n", 200)
	for name, tt := range map[string]struct{ prompt, code, words string }{
		"over 100 KB": {strings.Repeat("word ", 21_000), "input_too_large",
			"105001 bytes, the limit is 102400"},
		"just under 100 KB": {strings.Repeat("word ", 20_000), "", ""},
		"a private key": {"what is\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
			"input_secret", "private key"},
		"a repository": {strings.Repeat("=== src/main.go ===\npackage main\n", 6),
			"input_paste", "6 headers of files"},
		"a large diff": {strings.Repeat("diff --git a/x b/x\n@@ -1 +1 @@\n-a\n+b\n", 6),
			"input_paste", "6 headers of files"},
		"files in fences": {strings.Repeat("```go host/main.go\nx\n```\n", 6), "input_paste",
			"6 headers of files"},
		"one small diff": {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\nIs " +
			"this right?", "", ""},
		"a code base": {code, "input_paste", "lines are code"},
		"some code":   {code[:2000] + "\nWhat does this do?", "", ""},
		"an encoded file": {strings.Repeat("QUJD", 3000), "input_paste", "12000 bytes " +
			"without a space"},
		"a long text of prose": {strings.Repeat("This is a sentence; it means little, and goes on "+
			"for a while.\n", 1500), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := sdktest.New(t)
			serve(t, h)
			args, _ := json.Marshal(map[string]any{
				"provider": "openai",
				"base_url": "https://api.openai.com/v1",
				"model":    "m",
				"prompt":   tt.prompt,
			})
			out, err := h.Call("llm_query", string(args))
			if err != nil {
				t.Fatal(err)
			}
			if tt.code == "" {
				if out.Error != nil {
					t.Errorf("refused: %+v", out.Error)
				}
			} else if out.Error == nil || out.Error.Code != tt.code ||
				!strings.Contains(out.Error.Message, tt.words) || len(h.Requests) > 0 {
				t.Errorf("error %+v after %d requests, want %s with %q", out.Error, len(h.Requests),
					tt.code, tt.words)
			}
		})
	}
}

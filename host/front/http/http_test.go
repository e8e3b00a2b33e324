package http

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	mcpfront "github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t",` +
		`"version":"1"}}}`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.` +
		`modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/` +
		`clientInfo":{"name":"t","version":"1"}}`
	modernList = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`
	modernCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello",` +
		`"arguments":%s,` + modernMeta + `}}`
)

func TestEraListsAreTheSDKs(t *testing.T) {
	ours := append(slices.Clone(sessionVersions), mcpfront.StatelessVersions()...)
	theirs := mcp.SupportedProtocolVersions()
	slices.Sort(ours)
	slices.Sort(theirs)
	if !slices.Equal(ours, theirs) {
		t.Errorf("we route %v, the SDK speaks %v: sort the new version into an era", ours, theirs)
	}
}

// TestTricksOverHTTP sends one request each that somebody might try. Every status but 200 and 202
// must leave the server healthy, and what the front refused itself must be counted.
func TestTricksOverHTTP(t *testing.T) {
	s := newServer(t, helloDoor(), func(o *opts) {
		o.MaxBody = 64 << 10
		o.Hosts = []string{"ops.example:8443"}
		o.Origins = []string{"https://console.example"}
	})
	url, _ := serve(t, s)
	legacy := map[string]string{}
	modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
	call := map[string]string{
		"Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method":           "tools/call",
		"Mcp-Name":             "hello",
	}
	with := func(base map[string]string, kv ...string) map[string]string {
		m := map[string]string{}
		for k, v := range base {
			m[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct {
		name, method, path, body string
		headers                  map[string]string
		status                   int
		contains                 string
	}{
		{"initialize", "POST", "/mcp", initialize, legacy, 200, "2025-11-25"},
		{"2026 list", "POST", "/mcp", modernList, modern, 200, `"cacheScope":"private"`},
		{"2026 call", "POST", "/mcp", fmt.Sprintf(modernCall, `{"vmid":1}`), call, 200, "hi"},
		{"health", "GET", "/health", "", legacy, 200, `"policy_revision":"rev1"`},
		{"metrics have an address of their own", "GET", "/metrics", "", legacy, 404,
			"this server has /mcp, /health and /ready"},

		{"published by the identity", "GET", "/.well-known/x", "", legacy, 200, "published"},
		{"published by the identity, rebound", "GET", "/.well-known/x", "",
			with(legacy, "Host", "evil.example"), 403, ""},

		{"rebound host", "POST", "/mcp", initialize, with(legacy, "Host", "evil.example"), 403,
			"front.hosts"},
		{"rebound host, health", "GET", "/health", "", with(legacy, "Host", "evil.example"), 403,
			"front.hosts"},
		{"rebound host, metrics", "GET", "/metrics", "", with(legacy, "Host", "evil.example"), 403,
			"front.hosts"},
		{"localhost as a prefix", "POST", "/mcp", initialize,
			with(legacy, "Host", "localhost.evil.example"), 403, ""},
		{"localhost as user", "POST", "/mcp", initialize,
			with(legacy, "Host", "localhost@evil.example"), 403, ""},
		{"localhost with a dot", "POST", "/mcp", initialize, with(legacy, "Host", "localhost."),
			403, ""},
		{"loopback as one number", "POST", "/mcp", initialize, with(legacy, "Host", "2130706433"),
			403, ""},
		{"loopback shortened", "POST", "/mcp", initialize, with(legacy, "Host", "127.1"), 403, ""},
		{"LOCALHOST", "POST", "/mcp", initialize, with(legacy, "Host", "LOCALHOST:1"), 200, ""},
		{"IPv6 loopback", "POST", "/mcp", initialize, with(legacy, "Host", "[::1]:80"), 200, ""},
		{"listed host", "GET", "/health", "", with(legacy, "Host", "ops.example:8443"), 200, ""},
		{"listed host on another port", "GET", "/health", "", with(legacy, "Host", "ops.example:1"),
			403, ""},

		{"foreign origin", "POST", "/mcp", initialize, with(legacy, "Origin", "http://evil.example"), 403, "front.origins"},
		{"foreign origin, GET", "GET", "/mcp", "", with(legacy, "Origin", "http://evil.example"), 403, "front.origins"},
		{"foreign origin, health", "GET", "/health", "", with(legacy, "Origin", "http://evil.example"), 403, "front.origins"},
		{"foreign origin, metrics", "GET", "/metrics", "", with(legacy, "Origin", "http://evil.example"), 403, "front.origins"},
		{"foreign origin, what the identity publishes", "GET", "/.well-known/x", "", with(legacy, "Origin", "http://evil.example"), 403, "front.origins"},
		{"foreign origin, nowhere", "GET", "/none", "", with(legacy, "Origin", "http://evil.example"), 403, "front.origins"},
		{"null origin", "POST", "/mcp", initialize, with(legacy, "Origin", "null"), 403, ""},
		{"empty origin", "POST", "/mcp", initialize, with(legacy, "Origin", ""), 403, ""},
		{"origin of another port", "POST", "/mcp", initialize, with(legacy, "Origin", "http://localhost:6274"), 403, ""},
		{"origin with our name as a prefix", "POST", "/mcp", initialize, with(legacy, "Origin", "https://console.example.evil"), 403, ""},
		{"listed origin", "POST", "/mcp", initialize, with(legacy, "Origin", "https://console.example"), 200, ""},
		{"listed origin, cross-site", "POST", "/mcp", initialize, with(legacy, "Origin", "https://console.example", "Sec-Fetch-Site", "cross-site"), 200, ""},
		{"cross-site", "POST", "/mcp", initialize, with(legacy, "Sec-Fetch-Site", "cross-site"),
			403, ""},
		{"our own name over http", "POST", "/mcp", initialize, with(legacy, "Host", "localhost:8000", "Origin", "http://localhost:8000", "Sec-Fetch-Site", "same-site"), 403, "other sites"},
		{"cross-site image", "GET", "/health", "", with(legacy, "Sec-Fetch-Site", "cross-site"),
			403, ""},
		{"preflight", "OPTIONS", "/mcp", "", with(legacy, "Origin", "https://console.example"), 405, ""},

		{"unknown path", "POST", "/", initialize, legacy, 404, "/mcp"},
		{"escaped path", "POST", "/%6dcp", initialize, legacy, 404, ""},
		{"doubled slash", "POST", "//mcp", initialize, legacy, 404, ""},
		{"path with dots", "POST", "/x/../mcp", initialize, legacy, 404, ""},
		{"debug", "GET", "/debug/pprof/", "", legacy, 404, ""},
		{"PUT", "PUT", "/mcp", initialize, legacy, 405, ""},
		{"TRACE", "TRACE", "/mcp", "", legacy, 405, ""},
		{"GET without a session", "GET", "/mcp", "", with(legacy, "Accept", "text/event-stream"),
			400, ""},
		{"2026 GET", "GET", "/mcp", "", modern, 405, ""},
		{"2026 DELETE", "DELETE", "/mcp", "", modern, 405, ""},
		{"post to health", "POST", "/health", "{}", legacy, 405, ""},

		{"unknown version", "POST", "/mcp", modernList,
			with(modern, "Mcp-Protocol-Version", "2027-01-01"), 400, "-32022"},
		{"version above all", "POST", "/mcp", modernList,
			with(modern, "Mcp-Protocol-Version", "zzzz"), 400, `"requested":"zzzz"`},
		{"version with spaces inside", "POST", "/mcp", modernList,
			with(modern, "Mcp-Protocol-Version", "2026-07-28, 2025-11-25"), 400, "-32022"},
		{"2026 header, 2025 meta", "POST", "/mcp",
			strings.Replace(modernList, "2026-07-28", "2025-11-25", 1), modern, 400, "-32020"},
		{"2026 header, no meta", "POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, modern, 400, "-32602"},
		{"2026 meta, no header", "POST", "/mcp", modernList, legacy, 400, "-32022"},
		{"2026 meta, 2025 header", "POST", "/mcp", modernList,
			with(legacy, "Mcp-Protocol-Version", "2025-11-25"), 400, "-32022"},
		{"2026 without Mcp-Method", "POST", "/mcp", modernList,
			with(legacy, "Mcp-Protocol-Version", "2026-07-28"), 400, "-32020"},
		{"2026 with another Mcp-Name", "POST", "/mcp", fmt.Sprintf(modernCall, `{}`),
			with(call, "Mcp-Name", "harmless"), 400, "-32020"},
		{"2026 unknown tool", "POST", "/mcp",
			strings.Replace(fmt.Sprintf(modernCall, `{}`), `"hello"`, `"nope"`, 1),
			with(call, "Mcp-Name", "nope"), 400, "-32602"},
		{"2026 unknown method", "POST", "/mcp",
			strings.Replace(modernList, "tools/list", "tools/eat", 1),
			with(modern, "Mcp-Method", "tools/eat"), 404, "-32601"},

		{"call without a session", "POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello"}}`, legacy, 400,
			"initialize first"},
		{"made-up session", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			with(legacy, "Mcp-Session-Id", "x"), 404, "session not found"},
		{"made-up session, DELETE", "DELETE", "/mcp", "", with(legacy, "Mcp-Session-Id", "x"), 404,
			""},

		{"duplicate method", "POST", "/mcp", strings.Replace(modernList, `"id":1`,
			`"id":1,"method":"initialize"`, 1), modern, 400, "repeats"},
		{"duplicate name", "POST", "/mcp", strings.Replace(fmt.Sprintf(modernCall, `{}`),
			`"name":"hello"`, `"name":"hello","name":"hidden"`, 1), call, 400, "repeats"},
		{"name in another case", "POST", "/mcp",
			strings.Replace(fmt.Sprintf(modernCall, `{}`), `"name":"hello"`,
				`"Name":"hidden","name":"hello"`, 1), call, 400, "repeats"},
		{"duplicate arguments", "POST", "/mcp",
			strings.Replace(fmt.Sprintf(modernCall, `{}`), `"arguments":{}`,
				`"arguments":{},"arguments":{"vmid":103}`, 1), call, 400, "repeats"},
		{"duplicate arguments of a prompt", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,` +
			`"method":"prompts/get","params":{"name":"hello","arguments":{"vmid":"101",` +
			`"vmid":"103"},` + modernMeta + `}}`,
			with(call, "Mcp-Method", "prompts/get"), 400, "repeats"},
		{"arguments of a prompt in another case, before its method", "POST", "/mcp",
			`{"jsonrpc":"2.0","id":1,"params":{"arguments":{"vmid":"101","VMID":"103"},` +
				`"name":"hello",` + modernMeta + `},"method":"prompts/get"}`,
			with(call, "Mcp-Method", "prompts/get"), 400, "repeats"},
		{"duplicate version in meta", "POST", "/mcp",
			strings.Replace(modernList, `"_meta":{`,
				`"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25",`, 1), modern, 400,
			"repeats"},
		{"Method in another case", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"Method":"tools/list"}`,
			legacy, 400, "lower case"},
		{"Kelvin sign for k", "POST", "/mcp",
			strings.Replace(modernList, `"_meta":{`, `"_meta":{"k":1,"\u212a":2,`, 1), modern, 400,
			"repeats"},
		{"two messages", "POST", "/mcp", modernList + modernList, modern, 400, "more after"},
		{"batch", "POST", "/mcp", "[" + modernList + "]", modern, 400, "batches"},
		{"batch, legacy", "POST", "/mcp", "[" + initialize + "]", legacy, 400, "batches"},
		{"nested too deep", "POST", "/mcp", strings.Replace(modernList, `"_meta":{`, `"x":`+deep+
			`,"_meta":{`, 1), modern, 400, "nested deeper"},
		{"not UTF-8", "POST", "/mcp", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xff\"}", legacy,
			400, "UTF-8"},
		{"NUL in a key", "POST", "/mcp", strings.Replace(modernList, `"_meta":{`,
			`"a\u0000":1,"_meta":{`, 1), modern, 400, "NUL"},
		{"empty body", "POST", "/mcp", "", legacy, 400, "empty"},
		{"not JSON", "POST", "/mcp", "hello", legacy, 400, "-32700"},
		{"half JSON", "POST", "/mcp", `{"jsonrpc":`, legacy, 400, "-32700"},
		{"id 1.5", "POST", "/mcp", strings.Replace(modernList, `"id":1`, `"id":1.5`, 1), modern,
			400, "integer"},
		{"id 1e400", "POST", "/mcp", strings.Replace(modernList, `"id":1`, `"id":1e400`, 1), modern,
			400, "integer"},
		{"id null", "POST", "/mcp", strings.Replace(modernList, `"id":1`, `"id":null`, 1), modern,
			400, "id is neither"},
		{"id object", "POST", "/mcp", strings.Replace(modernList, `"id":1`, `"id":{"a":1}`, 1),
			modern, 400, ""},
		{"compressed, it says", "POST", "/mcp", initialize,
			with(legacy, "Content-Encoding", "gzip"), 415, "Content-Encoding"},
		{"identity encoding", "POST", "/mcp", initialize,
			with(legacy, "Content-Encoding", "identity"), 200, ""},
		{"byte order mark", "POST", "/mcp", "\ufeff" + initialize, legacy, 400, "-32700"},
		{"UTF-16", "POST", "/mcp", "{\x00\"\x00", legacy, 400, "-32700"},
		{"lone surrogates as keys", "POST", "/mcp",
			strings.Replace(modernList, `"_meta":{`, `"\ud800":1,"\udfff":2,"_meta":{`, 1), modern,
			400, "repeats"},
		{"upgrade", "GET", "/mcp", "", with(legacy, "Connection", "Upgrade", "Upgrade", "websocket",
			"Accept", "text/event-stream"), 400, ""},
		{"method override", "GET", "/health", "",
			with(legacy, "X-Http-Method-Override", "DELETE", "X-Original-Url", "/metrics",
				"X-Rewrite-Url", "/mcp"), 200, "healthy"},
		{"wrong content type", "POST", "/mcp", initialize,
			with(legacy, "Content-Type", "text/plain"), 415, ""},
		{"form content type", "POST", "/mcp", initialize,
			with(legacy, "Content-Type", "application/x-www-form-urlencoded"), 415, ""},
		{"no stream accepted", "POST", "/mcp", initialize,
			with(legacy, "Accept", "application/json"), 400, "Accept"},
		{"oversize", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"` +
			strings.Repeat("a", 64<<10) + `"}`, legacy, 413, "over the limit of 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.refusals()
			status, body := send(t, url, c.method, c.path, c.body, c.headers)
			if got := s.refusals() - before; (status >= 400) != (got == 1) || got > 1 {
				t.Errorf("status %d is counted as %v refusals", status, got)
			}
			if status != c.status || !strings.Contains(body, c.contains) {
				t.Errorf("got %d, want %d with %q: %.300s", status, c.status, c.contains, body)
			}
			if status, body := send(t, url, "GET", "/health", "", nil); status != 200 ||
				!strings.Contains(
					body,
					`"status":"healthy","service":"caponier","ssh_connected":true`,
				) {
				t.Errorf("not healthy afterwards: %d %s", status, body)
			}
		})
	}
	counted := s.numbers()
	for _, reason := range []string{"host", "origin", "path", "version", "message", "size",
		"session", "method"} {
		if !strings.Contains(counted, `caponier_refused_requests_total{reason="`+reason+`"}`) {
			t.Errorf("nothing counted for %s", reason)
		}
	}
	for _, twice := range []string{"Authorization", "Mcp-Protocol-Version", "Mcp-Session-Id",
		"Content-Type"} {
		raw := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
			"2\r\n" + twice + ": a\r\n" + strings.ToLower(
			twice,
		) + ": b\r\n\r\n{}"
		if got := rawHTTP(t, url, raw); !strings.HasPrefix(got, "HTTP/1.1 400") ||
			!strings.Contains(got, "twice") {
			t.Errorf("%s twice: %.100s", twice, got)
		}
	}
	rawCounted := func(name, raw string, starts ...string) {
		t.Helper()
		before := s.refusals()
		got := rawHTTP(t, url, raw)
		if !slices.ContainsFunc(
			starts,
			func(want string) bool { return strings.HasPrefix(got, "HTTP/1.1 "+want) },
		) {
			t.Errorf("%s: %.100s", name, got)
		}
		eventually(t, name+" is counted", func() bool { return s.refusals() == before+1 })
	}
	rawCounted(
		"headers over the limit",
		"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: "+strings.Repeat("a", 36<<10),
		"431",
	)
	for name, raw := range map[string]string{
		"two Hosts": "POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n" +
			"Connection: close\r\n\r\n",
		"length and chunked": "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: " +
			"close\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil " +
			"HTTP/1.1\r\n\r\n",
		"no Host":                    "POST /mcp HTTP/1.1\r\nConnection: close\r\n\r\n",
		"absolute form, foreign":     "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"header with a line break":   "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: http://localhost\r\n http://evil\r\n\r\n",
		"Origin twice, second empty": "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: http://localhost\r\nOrigin: http://evil\r\n\r\n",
	} {
		rawCounted(name, raw, "400", "403")
	}
}

func send(t *testing.T, url, method, path, body string, headers map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = path
	if strings.HasPrefix(path, "//") {
		req.URL.Opaque, req.URL.Path, req.URL.RawPath = "", path, ""
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	client := http.Client{
		Timeout: 5 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func rawHTTP(t *testing.T, url, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		t.Fatal(err)
	}
	return string(got)
}

type nopResponse struct{ http.ResponseWriter }

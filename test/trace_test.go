package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// traced adds a traceparent to what a client sends over HTTP.
type traced struct {
	http.RoundTripper
	parent string
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("traceparent", t.parent)
	return t.RoundTripper.RoundTrip(r)
}

// A client's trace continues in the journal and in the spans, from _meta, or else from the header.
func TestATraceOfAClientGoesOn(t *testing.T) {
	const inMeta = "4bf92f3577b34da6a3ce929d0e0e4736"
	const inHeader = "0af7651916cd43dd8448eb211c80319c"
	s := newSite(t)
	s.add(t, "\n[identity]\ntokens = \"tokens.json\"\n[[identity.principals]]\nid = \"demo\"\n")
	url := s.serveHTTP(t)
	token, err := s.command("token", "new", "demo").Output()
	must(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: traced{
			bearer(strings.TrimSpace(string(token))), "00-" + inHeader + "-b7ad6b7169203331-01"}},
	}, nil)
	must(t, err)
	defer session.Close()
	for _, meta := range []mcp.Meta{nil,
		{"traceparent": "00-" + inMeta + "-00f067aa0ba902b7-01"}} {
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: meta,
			Name: "proxmox_container_status", Arguments: map[string]any{"vmid": 101}})
		if err != nil || r.IsError {
			t.Fatalf("%+v %v", r, err)
		}
	}
	spans := map[string][]string{}
	out, err := s.command("audit", "export", "--print", "otlp-traces").Output()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		var span struct{ TraceID, Name, ParentSpanID string }
		must(t, json.Unmarshal([]byte(line), &span))
		if span.ParentSpanID == "" {
			t.Errorf("a span without a parent: %s", line)
		}
		spans[span.TraceID] = append(spans[span.TraceID], span.Name)
	}
	for _, trace := range []string{inMeta, inHeader} {
		if got := strings.Join(spans[trace], ", "); !strings.Contains(got, "ssh_exec") ||
			!strings.HasSuffix(got, "tools/call proxmox_container_status") {
			t.Errorf("trace %s has the spans %s", trace, got)
		}
	}
	if len(spans) != 2 {
		t.Errorf("%d traces", len(spans))
	}
}

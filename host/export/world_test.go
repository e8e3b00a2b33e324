package export

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/terms"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// journal opens a journal that the test may write to.
func journal(t testing.TB, dir string) *audit.Journal {
	t.Helper()
	j, err := audit.Open(audit.Options{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// write writes n calls, an intent and an outcome each, with ids that begin with this text.
func write(t testing.TB, j *audit.Journal, id string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		r := terms.Record{Type: "intent", Time: time.Now(), ID: fmt.Sprintf("%s-%d", id, i),
			Kind:   "call",
			CallID: "C" + id, Principal: "agent-a", Source: "http",
			Tool: "proxmox_container_status",
			Node: "pve1", Tier: "green", Revision: strings.Repeat("ab", 32),
			Input: json.RawMessage(`{"schema":"caponier.call/1","targets":{"vmids":["101"]},"x":"` +
				strings.Repeat("x", 500) + `"}`)}
		must(t, j.Intent(t.Context(), r, false))
		ids = append(ids, r.ID)
		r.Type, r.Input, r.Outcome = "outcome", nil, terms.Succeeded
		must(t, j.Outcome(t.Context(), r))
		ids = append(ids, r.ID+".outcome")
	}
	return ids
}

// receiver is a sink's other side. It keeps the ids of what it got.
type receiver struct {
	mu   sync.Mutex
	got  map[string]int
	gaps []string
	bad  []error
	raw  bytes.Buffer
}

func newReceiver() *receiver { return &receiver{got: map[string]int{}} }

func (r *receiver) note(raw []byte, id, gap string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.raw.Write(raw); err != nil {
		r.bad = append(r.bad, err)
	}
	if gap != "" {
		r.gaps = append(r.gaps, gap)
	} else if id != "" {
		r.got[id]++
	}
}

// event takes an event in JSON.
func (r *receiver) event(raw []byte) {
	var e event
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&e)
	id := e.ID
	if e.Type == "outcome" || e.Type == "shadow" {
		id += "." + e.Type
	}
	r.note(raw, id, e.Gap, err)
}

// opa takes a body as a service of OPA's decision logs does, with OPA's type.
func (r *receiver) opa(body []byte) error {
	var events []eventV1
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&events); err != nil {
		r.note(body, "", "", err)
		return err
	}
	r.note(body, "", "", nil)
	for _, e := range events {
		var err error
		result, _ := (*(cmpResult(e.Result))).(map[string]any)
		_, allow := result["allow"].(bool)
		decision := strings.HasSuffix(e.Path, "/decision")
		if e.DecisionID == "" || e.Timestamp.IsZero() || e.Labels["id"] == "" || decision &&
			!allow {
			err = fmt.Errorf("event %+v", e)
		}
		gap, _ := e.Custom["gap"].(string)
		r.note(nil, e.DecisionID, gap, err)
	}
	return nil
}

// eventV1 is a copy of OPA's type, which TestEventsAreThoseOfOPA compares with the original: that
// one would bring all of OPA's plugins.
type eventV1 struct {
	Labels      map[string]string       `json:"labels"`
	DecisionID  string                  `json:"decision_id"`
	Bundles     map[string]BundleInfoV1 `json:"bundles,omitempty"`
	Path        string                  `json:"path,omitempty"`
	Input       *any                    `json:"input,omitempty"`
	Result      *any                    `json:"result,omitempty"`
	Erased      []string                `json:"erased,omitempty"`
	RequestedBy string                  `json:"requested_by,omitempty"`
	TraceID     string                  `json:"trace_id,omitempty"`
	SpanID      string                  `json:"span_id,omitempty"`
	Timestamp   time.Time               `json:"timestamp"`
	Custom      map[string]any          `json:"custom,omitempty"`
}

type BundleInfoV1 struct {
	Revision string `json:"revision,omitempty"`
}

// TestEventsAreThoseOfOPA reads the source of the OPA that this host is built with.
func TestEventsAreThoseOfOPA(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/open-policy-agent/opa").Output()
	must(t, err)
	fields := func(file any, name string, src any) map[string]string {
		parsed, err := parser.ParseFile(token.NewFileSet(), file.(string), src, 0)
		must(t, err)
		all := map[string]string{}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, is := n.(*ast.TypeSpec); is && spec.Name.Name == name {
				for _, f := range spec.Type.(*ast.StructType).Fields.List {
					if f.Tag != nil {
						all[f.Tag.Value] = types.ExprString(f.Type)
					}
				}
			}
			return true
		})
		return all
	}
	theirs := filepath.Join(strings.TrimSpace(string(dir)), "v1/plugins/logs/plugin.go")
	for ours, name := range map[string]string{"eventV1": "EventV1",
		"BundleInfoV1": "BundleInfoV1"} {
		want, have := fields(theirs, name, nil), fields("world_test.go", ours, nil)
		if len(have) == 0 || len(want) == 0 {
			t.Fatalf("%s: %d fields of %d", name, len(have), len(want))
		}
		for tag, typ := range have {
			if want[tag] != typ {
				t.Errorf("%s %s %s: OPA has the type %q", name, tag, typ, want[tag])
			}
		}
	}
}

func cmpResult(v *any) *any {
	if v == nil {
		v = new(any)
	}
	return v
}

// otlp takes a body as OTLP/HTTP defines it in JSON. The types are those of
// opentelemetry-proto/logs/v1.
func (r *receiver) otlp(body []byte) error {
	type value struct {
		StringValue *string `json:"stringValue"`
	}
	type attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	var request struct {
		ResourceLogs []struct {
			Resource struct {
				Attributes []attribute `json:"attributes"`
			} `json:"resource"`
			ScopeLogs []struct {
				Scope struct {
					Name string `json:"name"`
				} `json:"scope"`
				LogRecords []struct {
					TimeUnixNano         uint64 `json:"timeUnixNano,string"`
					ObservedTimeUnixNano uint64 `json:"observedTimeUnixNano,string"`
					SeverityNumber       int    `json:"severityNumber"`
					SeverityText         string `json:"severityText"`
					EventName            string `json:"eventName"`
					TraceID              string `json:"traceId"`
					SpanID               string `json:"spanId"`
					Flags                uint32 `json:"flags"`
					Body                 value  `json:"body"`
					Attributes           []attribute
				} `json:"logRecords"`
			} `json:"scopeLogs"`
		} `json:"resourceLogs"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		r.note(body, "", "", err)
		return err
	}
	for _, rl := range request.ResourceLogs {
		for _, sl := range rl.ScopeLogs {
			for _, l := range sl.LogRecords {
				for _, a := range l.Attributes {
					if a.Key == "caponier.event" && l.SeverityNumber > 0 &&
						*l.Body.StringValue != "" {
						r.event([]byte(*a.Value.StringValue))
					}
				}
			}
		}
	}
	return nil
}

// body returns what a request holds, unpacked.
func body(req *http.Request) ([]byte, error) {
	zip, err := gzip.NewReader(req.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(zip)
}

// serve answers as a good service.
func (r *receiver) serve(take func([]byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		text, err := body(req)
		if err == nil {
			err = take(text)
		}
		if err != nil || req.Header.Get("Content-Type") != "application/json" {
			r.note(nil, "", "", fmt.Errorf("%v %v", err, req.Header))
			http.Error(w, "no", http.StatusBadRequest)
		}
	}
}

// stream takes syslog with octet counting from a listener until it is closed.
func (r *receiver) stream(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if err := r.connection(c); err != nil {
				r.note(nil, "", "", err)
			}
		}()
	}
}

// connection takes what one connection brings until it ends in order.
func (r *receiver) connection(c net.Conn) error {
	in := bufio.NewReader(c)
	for {
		n, err := in.ReadString(' ')
		if err == io.EOF && n == "" {
			return nil
		}
		size, bad := strconv.Atoi(strings.TrimSpace(n))
		message := make([]byte, max(size, 0))
		if _, err := io.ReadFull(in, message); err != nil || bad != nil {
			return fmt.Errorf("%q %v %v", n, bad, err)
		}
		r.syslog(message)
	}
}

// syslog takes a message of RFC 5424.
func (r *receiver) syslog(message []byte) {
	parts := strings.SplitN(string(message), " ", 8)
	if len(parts) != 8 || !strings.HasPrefix(parts[0], "<8") ||
		!strings.HasSuffix(parts[0], ">1") ||
		parts[3] != "caponier" {
		r.note(message, "", "", fmt.Errorf("no message of RFC 5424: %q", message))
		return
	}
	_, err := time.Parse(time.RFC3339Nano, parts[1])
	r.note(nil, "", "", err)
	r.event([]byte(parts[7]))
}

// journald takes a datagram of the native protocol.
func (r *receiver) journald(datagram []byte) {
	fields := map[string]string{}
	for line := range strings.Lines(string(datagram)) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok || strings.ToUpper(name) != name {
			r.note(datagram, "", "", fmt.Errorf("no field: %q", line))
		}
		fields[name] = value
	}
	if fields["MESSAGE"] == "" || fields["PRIORITY"] == "" {
		r.note(datagram, "", "", fmt.Errorf("fields are missing: %q", datagram))
	}
	r.event([]byte(fields["CAPONIER_EVENT"]))
}

// datagrams listens on a local socket until the test ends.
func datagramSocket(t testing.TB, take func([]byte)) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") // names of sockets are short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<20)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			take(bytes.Clone(buf[:n]))
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return path
}

// missing returns the ids that the receiver has not got.
func (r *receiver) missing(ids []string) (none []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if r.got[id] == 0 {
			none = append(none, id)
		}
	}
	return none
}

// holds fails unless the receiver has got these ids, and nothing odd.
func (r *receiver) holds(t testing.TB, ids []string) {
	t.Helper()
	eventually(t, func() bool { return len(r.missing(ids)) == 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bad) > 0 {
		t.Errorf("%d odd events, the first: %v", len(r.bad), r.bad[0])
	}
	if len(ids) == 0 {
		t.Errorf("nothing is looked for among %v", slices.Sorted(maps.Keys(r.got)))
	}
}

func eventually(t testing.TB, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in 20 s")
		}
	}
}

// exporter returns one with a single sink and its cursor in a folder of the test.
func exporter(t testing.TB, dir string, s SinkOptions) *Exporter {
	t.Helper()
	s.Name = "x"
	x, err := New(Options{Dir: filepath.Join(filepath.Dir(dir), "export"), Instance: "host.example",
		Version: "1", Sinks: []SinkOptions{s}}, dir)
	must(t, err)
	return x
}

// tlsPair returns the configuration of a server, and a file that says that it is to be trusted.
func tlsPair(t testing.TB, cert tls.Certificate, pem []byte) (server *tls.Config, ca string) {
	t.Helper()
	ca = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, pem, 0o600))
	return &tls.Config{Certificates: []tls.Certificate{cert}}, ca
}

package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// spanV1 has the names and types of opentelemetry-proto/trace/v1 in JSON.
type spanV1 struct {
	TraceID           string `json:"traceId"`
	SpanID            string `json:"spanId"`
	TraceState        string `json:"traceState"`
	ParentSpanID      string `json:"parentSpanId"`
	Flags             uint32 `json:"flags"`
	Name              string `json:"name"`
	Kind              int    `json:"kind"`
	StartTimeUnixNano uint64 `json:"startTimeUnixNano,string"`
	EndTimeUnixNano   uint64 `json:"endTimeUnixNano,string"`
	Attributes        []attributeV1
	Events            []struct {
		TimeUnixNano uint64 `json:"timeUnixNano,string"`
		Name         string `json:"name"`
		Attributes   []attributeV1
	} `json:"events"`
	Status struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	} `json:"status"`
}

type attributeV1 struct {
	Key   string `json:"key"`
	Value struct {
		StringValue *string `json:"stringValue"`
	} `json:"value"`
}

func (s spanV1) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return *a.Value.StringValue
		}
	}
	return ""
}

// spansOf sends records to a receiver of spans, and returns what it got by span.
func spansOf(t *testing.T, records ...terms.Record) (spans map[string]spanV1, raw string) {
	t.Helper()
	spans = map[string]spanV1{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, err := body(req)
		if err != nil {
			t.Error(err)
		}
		raw += string(text)
		var request struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes []attributeV1 `json:"attributes"`
				} `json:"resource"`
				ScopeSpans []struct {
					Scope struct {
						Name string `json:"name"`
					} `json:"scope"`
					Spans []spanV1 `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&request); err != nil {
			t.Error(err)
		}
		for _, rs := range request.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, one := range ss.Spans {
					if _, twice := spans[one.SpanID]; twice {
						t.Errorf("two spans have the id %s", one.SpanID)
					}
					spans[one.SpanID] = one
				}
			}
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "journal")
	j := journal(t, dir)
	for _, r := range records {
		must(t, j.Intent(t.Context(), r, false))
	}
	x := exporter(t, dir, SinkOptions{Kind: "otlp-traces", URL: s.URL + "/v1/traces"})
	must(t, x.Once(t.Context()))
	if now := x.States()[0]; now.Behind != 0 || now.Events != int64(len(spans)) {
		t.Errorf("%+v, with %d spans", now, len(spans))
	}
	return spans, raw
}

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
)

// recordsOfACall are those of one call with two operations, of which the second is refused.
func recordsOfACall(id, from string) (all []terms.Record) {
	now := time.Unix(1_700_000_000, 0)
	call := terms.Record{Type: "intent", Kind: "call", ID: id + ".c", CallID: id, Trace: from,
		Tool: "stop_guest", Principal: "ann", Source: "http", Tier: "red", Revision: "abc",
		Time: now, Input: json.RawMessage(`{"x":"canary-7f3a"}`)}
	op := call
	op.Kind, op.ID, op.Op, op.Node = "operation", id+".o1", "ssh_exec", "pve1"
	no := op
	no.Type, no.ID, no.Failed = "refused", id+".o2", []string{"protected"}
	outcome := func(r terms.Record, after time.Duration, how terms.Outcome) terms.Record {
		r.Type, r.Time, r.DurationUS, r.Input = "outcome", now.Add(after), after.Microseconds(), nil
		r.Outcome = how
		return r
	}
	return []terms.Record{call, op, outcome(op, 20*time.Millisecond, terms.Succeeded), no,
		outcome(call, 30*time.Millisecond, terms.Failed)}
}

func TestACallIsATraceWithASpanForEachOperation(t *testing.T) {
	for name, from := range map[string]string{"alone": "",
		"of a client": "00-" + clientTrace + "-" + clientSpan + "-01"} {
		spans, raw := spansOf(t, recordsOfACall("C1", from)...)
		if len(spans) != 3 || strings.Contains(raw, "canary") {
			t.Fatalf("%s: %d spans: %s", name, len(spans), raw)
		}
		var call spanV1
		for _, s := range spans {
			if s.Name == "tools/call stop_guest" {
				call = s
			}
			if len(s.TraceID) != 32 || len(s.SpanID) != 16 || s.EndTimeUnixNano <
				s.StartTimeUnixNano || s.TraceID != call.TraceID && call.TraceID != "" {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if call.EndTimeUnixNano-call.StartTimeUnixNano != 30_000_000 || call.Kind != 2 ||
			call.Status.Code != 2 || call.attribute("caponier.call_id") != "C1" {
			t.Errorf("%s: %+v", name, call)
		}
		if from != "" && (call.TraceID != clientTrace || call.ParentSpanID != clientSpan) ||
			from == "" && call.ParentSpanID != "" {
			t.Errorf("%s: the call is in trace %s below %q", name, call.TraceID, call.ParentSpanID)
		}
		for _, s := range spans {
			if s.Name != "ssh_exec" {
				continue
			}
			refused := s.attribute("caponier.outcome") == ""
			if s.ParentSpanID != call.SpanID || s.Kind != 3 || refused != (s.Status.Code == 2) ||
				s.attribute("server.address") != "pve1" || len(s.Events) != 1 ||
				s.Events[0].Name != "decision" || s.TraceID != call.TraceID {
				t.Errorf("%s: %+v", name, s)
			}
			if refused && !strings.Contains(fmt.Sprint(s.Status), "protected") {
				t.Errorf("%s: the span does not say what refused: %+v", name, s)
			}
		}
	}
}

// A client that does not sample gets no spans; the journal and the other sinks have the call.
func TestATraceThatIsNotSampledHasNoSpans(t *testing.T) {
	unsampled := "00-" + clientTrace + "-" + clientSpan + "-00"
	all := append(recordsOfACall("C1", unsampled), recordsOfACall("C2", "")...)
	if spans, raw := spansOf(t, all...); len(spans) != 3 || strings.Contains(raw, clientTrace) {
		t.Errorf("%d spans: %s", len(spans), raw)
	}
}

// What is sent twice, or by two hosts that read one journal, is the same span.
func TestARecordHasOneSpan(t *testing.T) {
	all := recordsOfACall("C1", "")
	first, _ := spansOf(t, all...)
	second, _ := spansOf(t, all...)
	for id := range first {
		if _, is := second[id]; !is {
			t.Errorf("span %s is there once", id)
		}
	}
	other, _ := spansOf(t, recordsOfACall("C2", "")...)
	for id := range other {
		if _, is := first[id]; is {
			t.Errorf("calls C1 and C2 have the span %s", id)
		}
	}
}

// Logs say to which span they belong.
func TestLogsNameTheSpan(t *testing.T) {
	end := recordsOfACall("C1", "00-"+clientTrace+"-"+clientSpan+"-01")[4]
	raw, err := otlp{}.encode(event{Record: end})
	must(t, err)
	spans, _ := spansOf(t, end)
	for id := range spans {
		if !strings.Contains(string(raw), `"traceId":"`+clientTrace+`","spanId":"`+id+`"`) {
			t.Errorf("%s", raw)
		}
	}
}

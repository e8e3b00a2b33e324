package export

import (
	"context"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// traces posts the calls and operations of the journal as spans, in the JSON encoding of OTLP/HTTP.
// A span is made of the record that ends it, so that one whose process was killed has none. Its ids
// are digests of ids of the journal: a span that is sent twice is the same span.
type traces struct{ otlp }

type (
	span struct {
		Trace  string      `json:"traceId"`
		ID     string      `json:"spanId"`
		Parent string      `json:"parentSpanId,omitempty"`
		Flags  uint32      `json:"flags"`
		Name   string      `json:"name"`
		Kind   int         `json:"kind"`
		Start  string      `json:"startTimeUnixNano"`
		End    string      `json:"endTimeUnixNano"`
		Fields []keyValue  `json:"attributes"`
		Events []spanEvent `json:"events"`
		Status spanStatus  `json:"status"`
	}
	spanEvent struct {
		Time   string     `json:"timeUnixNano"`
		Name   string     `json:"name"`
		Fields []keyValue `json:"attributes"`
	}
	spanStatus struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
)

// numbers of opentelemetry-proto/trace/v1
const (
	kindServer, kindClient = 2, 3
	statusError            = 2
)

// encode returns nil for a record that ends no call or operation, and for a trace that its client
// does not sample.
func (t traces) encode(e event) ([]byte, error) {
	ends := e.Type == "outcome" || e.Type == "refused"
	trace, id, parent, flags := where(e.Record)
	if !ends || e.Kind != "call" && e.Kind != "operation" || flags&flagSampled == 0 {
		return nil, nil
	}
	took := time.Duration(e.DurationUS) * time.Microsecond
	decided := nanos(e.Time.Add(-took))
	s := span{Trace: trace, ID: id, Parent: parent, Flags: flags, Kind: kindServer,
		Name: "tools/call " + e.Tool, Start: decided, End: nanos(e.Time),
		Fields: []keyValue{{"mcp.method.name", anyValue{"tools/call"}},
			{"gen_ai.tool.name", anyValue{e.Tool}}},
		Events: []spanEvent{{Time: decided, Name: "decision"}}}
	if e.Kind == "operation" {
		s.Kind, s.Name = kindClient, e.Op
		s.Fields = nil
		if e.Node != "" {
			s.Fields = []keyValue{{"server.address", anyValue{e.Node}}}
		}
	}
	for _, f := range e.fields() {
		field := keyValue{"caponier." + f[0], anyValue{f[1]}}
		switch f[0] {
		case "type", "kind", "journal_seq", "instance":
		case "decision_id", "tier", "failed", "revision":
			s.Events[0].Fields = append(s.Events[0].Fields, field)
		default:
			s.Fields = append(s.Fields, field)
		}
	}
	if e.Type == "refused" || e.Outcome == gate.Failed || e.Outcome == gate.Unknown {
		s.Status = spanStatus{statusError, e.says()}
	}
	return t.fits(s)
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func (t traces) send(ctx context.Context, encoded [][]byte) error {
	return t.sendAs(ctx, "resourceSpans", "scopeSpans", "spans", encoded)
}

package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// otlp posts log records in the JSON encoding of OTLP/HTTP (opentelemetry.io/docs/specs/otlp).
type otlp struct {
	*web
	instance, version string
}

type (
	anyValue struct {
		String string `json:"stringValue"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	logRecord struct {
		Time     string     `json:"timeUnixNano"` // 64-bit numbers are text in this encoding
		Observed string     `json:"observedTimeUnixNano"`
		Severity int        `json:"severityNumber"`
		Text     string     `json:"severityText"`
		Body     anyValue   `json:"body"`
		Fields   []keyValue `json:"attributes"`
		Event    string     `json:"eventName"`
		Trace    string     `json:"traceId"`
		Span     string     `json:"spanId"`
	}
)

func (o otlp) encode(e event) ([]byte, error) {
	whole, err := encode(e)
	if err != nil {
		return nil, err
	}
	s := e.severity()
	r := logRecord{Time: strconv.FormatInt(e.Time.UnixNano(), 10),
		Observed: strconv.FormatInt(time.Now().UnixNano(), 10), Severity: s.otel, Text: s.text,
		Body: anyValue{e.says()}, Event: "caponier." + e.Type,
		Fields: []keyValue{{"caponier.event", anyValue{string(whole)}}}}
	if e.CallID != "" {
		r.Trace, r.Span, _, _ = where(e.Record)
	}
	for _, f := range e.fields() {
		r.Fields = append(r.Fields, keyValue{"caponier." + f[0], anyValue{f[1]}})
	}
	return o.fits(r)
}

func (o otlp) send(ctx context.Context, encoded [][]byte) error {
	return o.sendAs(ctx, "resourceLogs", "scopeLogs", "logRecords", encoded)
}

// sendAs posts what was encoded as parts of a resource, under the names that OTLP gives them.
func (o otlp) sendAs(ctx context.Context, resources, scopes, parts string, encoded [][]byte) error {
	resource, err := encode([]keyValue{{"service.name", anyValue{"caponier"}},
		{"service.version", anyValue{o.version}}, {"service.instance.id", anyValue{o.instance}}})
	if err != nil {
		return err
	}
	answer, err := o.post(ctx, `{"`+resources+`":[{"resource":{"attributes":`+string(resource)+
		`},"`+scopes+`":[{"scope":{"name":"caponier/journal"},"`+parts+`":[`, encoded, `]}]}]}`)
	if err != nil {
		return err
	}
	var said struct {
		Partial struct {
			Logs  json.Number `json:"rejectedLogRecords"`
			Spans json.Number `json:"rejectedSpans"`
			Why   string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if err := answered(answer, &said); err != nil {
		return err
	}
	if n, _ := cmp.Or(said.Partial.Logs, said.Partial.Spans).Int64(); n > 0 {
		return &refusal{n, said.Partial.Why}
	}
	return nil
}

// answered reads the answer of a receiver, which may be empty.
func answered(answer []byte, said any) error {
	if answer = bytes.TrimSpace(answer); len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, said); err != nil || answer[0] != '{' {
		return errors.New("what it answered is no answer of OTLP: it begins with " +
			plaintext.Show(plaintext.Short(string(answer), 40)))
	}
	return nil
}

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
	if e.Type == "refused" || e.Outcome == terms.Failed || e.Outcome == terms.Unknown {
		s.Status = spanStatus{statusError, e.says()}
	}
	return t.fits(s)
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func (t traces) send(ctx context.Context, encoded [][]byte) error {
	return t.sendAs(ctx, "resourceSpans", "scopeSpans", "spans", encoded)
}

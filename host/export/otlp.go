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

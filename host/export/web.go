package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// web posts compressed JSON. It follows no redirect, which could lead the token elsewhere.
type web struct {
	client *http.Client
	o      SinkOptions
}

func newWeb(o SinkOptions) (*web, error) {
	tls, err := o.tls()
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig, t.MaxConnsPerHost = tls, 1
	return &web{o: o, client: &http.Client{Transport: t, Timeout: sendTime,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}, nil
}

// pack compresses parts with what stands around them.
func (w *web) pack(before string, parts [][]byte, after string) (*bytes.Buffer, error) {
	var body bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&body, gzip.BestSpeed) // the processors are the calls'
	_, _ = io.WriteString(zip, before)                   // a buffer takes everything
	_, _ = zip.Write(bytes.Join(parts, []byte{','}))
	_, _ = io.WriteString(zip, after)
	if err := zip.Close(); err != nil {
		return nil, err
	}
	if body.Len() > w.o.limit() {
		return nil, errTooLarge
	}
	return &body, nil
}

// fits returns an encoded event, and errTooLarge if a body with it alone would be too large.
func (w *web) fits(v any) ([]byte, error) {
	text, err := encode(v)
	if err == nil && w != nil && len(text) > w.o.limit()/2 {
		_, err = w.pack("", [][]byte{text}, strings.Repeat(" ", envelope))
	}
	return text, err
}

// envelope is more than what stands around events, in bytes.
const envelope = 1024

// post sends parts with what stands around them, and returns what was answered.
func (w *web) post(ctx context.Context, before string, parts [][]byte, after string) ([]byte,
	error) {
	body, err := w.pack(before, parts, after)
	if err != nil {
		return nil, err
	}
	wrote := make(chan error, 8)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { wrote <- i.Err }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "caponier")
	if w.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.o.Token)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if failed := status(resp); failed != nil {
		return nil, failed
	} else if err != nil {
		return nil, err
	}
	select {
	case err = <-wrote:
	case <-time.After(time.Second):
		err = fmt.Errorf("it answered %s before it was sent everything", resp.Status)
	}
	return answer, err
}

// status returns an error unless the answer is a success.
func status(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if resp.StatusCode == http.StatusRequestEntityTooLarge {
		return errTooLarge
	}
	err := fmt.Errorf("it answered %s", resp.Status)
	at := resp.Header.Get("Retry-After")
	if s, no := strconv.Atoi(at); no == nil && s > 0 {
		return later{err, time.Duration(min(s, 1<<20)) * time.Second}
	}
	if t, no := http.ParseTime(at); no == nil {
		return later{err, time.Until(t)}
	}
	return err
}

// opa posts events as OPA's decision_logs plugin does: arrays in JSON, compressed. Decisions have
// the path of the rule that made them; the other records of the journal have paths of their own.
type opa struct {
	*web
	labels map[string]string
}

// opaEvent has the names of OPA's EventV1.
type opaEvent struct {
	Labels     map[string]string            `json:"labels"`
	DecisionID string                       `json:"decision_id"`
	Bundles    map[string]map[string]string `json:"bundles,omitempty"`
	Path       string                       `json:"path"`
	Input      json.RawMessage              `json:"input,omitempty"`
	Result     any                          `json:"result,omitempty"`
	Erased     []string                     `json:"erased,omitempty"`
	By         string                       `json:"requested_by,omitempty"`
	Trace      string                       `json:"trace_id,omitempty"`
	Span       string                       `json:"span_id,omitempty"`
	Timestamp  time.Time                    `json:"timestamp"`
	Custom     event                        `json:"custom"`
}

type opaResult struct {
	Allow  bool           `json:"allow"`
	Tier   string         `json:"tier,omitempty"`
	Failed []string       `json:"failed"`
	Deny   []terms.Reason `json:"deny"`
}

func (o opa) encode(e event) ([]byte, error) {
	d := opaEvent{Labels: o.labels, DecisionID: e.ID, Path: "caponier/core/" + e.Kind + "/decision",
		Input: e.Input, By: e.Principal, Timestamp: e.Time.UTC(), Custom: e}
	d.Custom.Input = nil
	switch e.Type {
	case "intent", "refused":
		d.Result = opaResult{e.Type == "intent", e.Tier, append([]string{}, e.Failed...),
			append([]terms.Reason{}, e.Denied...)}
	default: // not a decision: its id must not hide that of one
		d.Path, d.DecisionID = "caponier/journal/"+e.Type, e.ID+"."+e.Type
	}
	if e.CallID != "" {
		d.Trace, d.Span, _, _ = where(e.Record)
	}
	if e.Gap != "" {
		d.DecisionID = e.ID
	}
	if e.Revision != "" {
		d.Bundles = map[string]map[string]string{"caponier": {"revision": e.Revision}}
	}
	for _, what := range e.Omitted {
		d.Erased = append(d.Erased, map[string]string{"input": "/input",
			"deny": "/result/deny"}[what])
	}
	return o.fits(d)
}

func (o opa) send(ctx context.Context, encoded [][]byte) error {
	_, err := o.post(ctx, "[", encoded, "]")
	return err
}

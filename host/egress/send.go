package egress

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxInline = 1 << 20  // bytes of a body in a response to the guest
	maxHead   = 64 << 10 // bytes of the headers of an answer
	maxSaid   = 300      // bytes of an error that may quote the server
	gzipExtra = 1 << 10  // bytes by which gzip may be longer than what is in it
)

type answer struct {
	status   int
	header   [][2]string
	location string
	mime     string
	body     []byte
}

// send makes one request on a new connection. sent reports whether the server may have read it.
func (e *Egress) send(
	ctx context.Context, r request, limit int64,
) (a answer, sent bool, err error) {
	tr := e.transport(r)
	defer tr.CloseIdleConnections()
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{WroteHeaderField: func(string, []string) { wrote.Store(true) }})
	req := (&http.Request{Method: r.method, URL: r.URL, Host: r.URL.Host, Header: r.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if len(r.body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	if _, named := req.Header["User-Agent"]; !named {
		req.Header.Set("User-Agent", "caponier")
	}
	req.Header.Set("Accept-Encoding", "gzip")
	if c := r.credential; c != nil {
		req.Header.Set(c.Header, c.Prefix+c.Secret)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return a, wrote.Load(), e.lost(ctx, r, wrote.Load(), err)
	}
	defer resp.Body.Close()
	body, err := read(resp, limit)
	if err != nil {
		return a, true, e.unread(ctx, r, resp.StatusCode, err)
	}
	a = answer{status: resp.StatusCode, mime: mediaType(resp.Header.Get("Content-Type")),
		location: e.text(resp.Header.Get("Location")), body: e.scrub(body)}
	for name, values := range resp.Header {
		if name == "Content-Encoding" || name == "Content-Length" { // of the body as it travelled
			continue
		}
		for _, v := range values {
			a.header = append(a.header,
				[2]string{e.text(name), e.text(strings.ToValidUTF8(v, "\uFFFD"))})
		}
	}
	slices.SortStableFunc(a.header, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return a, true, nil
}

// text is scrub of a string.
func (e *Egress) text(s string) string { return string(e.scrub([]byte(s))) }

// transport dials only addresses that were decided, one after the other.
func (e *Egress) transport(r request) *http.Transport {
	d := net.Dialer{FallbackDelay: -1, KeepAlive: -1,
		Control: func(network, address string, _ syscall.RawConn) error {
			return decided(r.addrs, network, address, r.port)
		}}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var errs []error
		for _, a := range r.addrs {
			each, cancel := context.WithTimeout(ctx, e.opts.Timeout/time.Duration(len(r.addrs)))
			conn, err := d.DialContext(each, "tcp", net.JoinHostPort(a.IP, strconv.Itoa(r.port)))
			cancel()
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	return &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHead, TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: e.roots, ServerName: r.host}}
}

var errTooLong = errors.New("too long")

// read takes at most limit bytes of a body, compressed and not.
func read(resp *http.Response, limit int64) ([]byte, error) {
	var r io.Reader = resp.Body
	switch enc := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ",")); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(io.LimitReader(resp.Body, limit+gzipExtra))
		if err == io.EOF { // no body at all, as of HEAD
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its gzip: %w", err)
		}
		r = z
	default:
		return nil, fmt.Errorf("its encoding %.32q was not asked for", enc)
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(b)) > limit {
		return nil, errTooLong
	}
	return b, err
}

// lost is the error for a request without an answer.
func (e *Egress) lost(ctx context.Context, r request, sent bool, err error) error {
	code, why := "connection", e.said(err)
	if ctx.Err() != nil {
		code, why = "timeout", "it timed out"
		if errors.Is(ctx.Err(), context.Canceled) {
			code, why = "cancelled", "the call was cancelled"
		}
	}
	op := terms.Fail(code, "%s %s: %s", r.method, r.origin(), why)
	if sent && !safe(r.method) {
		op.Outcome = terms.Unknown
	}
	return op
}

// unread is the error for an answer whose body was not read; the outcome of the request is known.
func (e *Egress) unread(ctx context.Context, r request, status int, err error) error {
	code, why := "body", e.said(err)
	switch {
	case errors.Is(err, errTooLong):
		code, why = "too_large", "is longer than allowed here; ask for less, or save it"
	case ctx.Err() != nil:
		code, why = "timeout", "did not end in time"
	}
	return terms.Fail(code, "%s %s was answered with status %d, but the body %s", r.method,
		r.origin(), status, why)
}

// said returns an error's text for the plugin: the text can contain what the server sent.
func (e *Egress) said(err error) string {
	b := e.scrub([]byte(err.Error()))
	return strings.ToValidUTF8(string(b[:min(len(b), maxSaid)]), "\uFFFD")
}

func mediaType(s string) string {
	t, _, err := mime.ParseMediaType(s)
	if err != nil || len(t) > 128 || !strings.Contains(t, "/") {
		return "application/octet-stream"
	}
	return t
}

// result returns the body to the plugin, or keeps it as a blob: always when it is to be saved
// without a limit for what may be inline, else when it is over that limit.
func (e *Egress) result(
	ctx context.Context, q terms.Question, op abi.HTTPRequest, a answer,
) (terms.Result, error) {
	v := abi.HTTPResponse{Status: a.status, Headers: a.header, Bytes: int64(len(a.body)),
		Hops: append([]abi.Hop{}, op.Hops...)}
	res := terms.Result{Bytes: v.Bytes, SHA256: fmt.Sprintf("%x", sha256.Sum256(a.body))}
	if op.Save && (op.MaxBytes == 0 || v.Bytes > min(op.MaxBytes, maxInline)) {
		if e.opts.Keeper == nil {
			return terms.Result{}, terms.Fail("blob", "this host keeps no blobs")
		}
		if q.Screen != nil {
			_, err := q.Screen.Write(a.body)
			if err = cmp.Or(err, q.Screen.Close()); err != nil {
				return terms.Result{}, err
			}
		}
		id, err := e.opts.Keeper.Keep(context.WithoutCancel(ctx), q.Call.Principal.ID,
			"response", a.mime, a.body)
		if err != nil {
			return terms.Result{}, terms.Fail("blob",
				"%s was answered with status %d, but the body was not kept: %v", op.Method,
				a.status, err)
		}
		v.Blob = id
	} else if utf8.Valid(a.body) && bytes.IndexByte(a.body, 0) < 0 {
		v.Text = string(a.body)
	} else {
		v.B64 = base64.StdEncoding.EncodeToString(a.body)
	}
	res.Value = v
	return res, nil
}

// Package connect bridges an MCP client's stdio to a host over HTTP. It needs the standard library
// alone, so that it runs where the host does not.
package connect

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// maxMessage bounds one message, in bytes.
const maxMessage = 32 << 20

// Options say what is bridged. In and Out speak MCP, one message a line; Say is for people.
type Options struct {
	URL    string // of the host: its /mcp
	Token  string // a bearer token, or none
	CAFile string // certificates in PEM to trust beside the system's
	// SignIn has tokens where Token has none; nil: nobody signs in
	SignIn    SignIn
	In        io.Reader
	Out, Say  io.Writer
	UserAgent string
}

// SignIn has the tokens of somebody who signs in. Its methods may be called concurrently.
type SignIn interface {
	// Token returns a token, or "" for none.
	Token(ctx context.Context) (string, error)
	// Refused gets another token after res refused this one, and closes the body of res. With an
	// error there is none.
	Refused(ctx context.Context, res *http.Response, token string) error
}

// message is what the bridge reads of a message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
	Result struct {
		Version string `json:"protocolVersion"`
	} `json:"result"`
}

// bridge is one run. It sends requests side by side, everything else in the order of the client.
type bridge struct {
	Options
	http *http.Client

	out sync.Mutex // guards Out

	mu               sync.Mutex // guards what follows
	session, version string
	initialize       []byte                        // begins another session, if the host lost it
	listening        bool                          // a stream of the session's messages is open
	cancels          map[string]context.CancelFunc // of requests under way, by id
}

// Run bridges until In ends and every request is answered, or ctx ends. An error says why it could
// not begin: a host that is away is told to the client, request by request.
func Run(ctx context.Context, o Options) error {
	t, err := Transport(o.URL, o.CAFile)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &bridge{Options: o, http: client, cancels: map[string]context.CancelFunc{}}
	var requests sync.WaitGroup
	var failed error // set before lines is closed
	lines := make(chan []byte)
	go func() { // reading from a terminal or a pipe cannot be ended
		defer close(lines)
		scan := bufio.NewScanner(o.In)
		scan.Buffer(nil, maxMessage)
		for scan.Scan() {
			select {
			case lines <- bytes.Clone(bytes.TrimSpace(scan.Bytes())):
			case <-ctx.Done():
				return
			}
		}
		failed = scan.Err()
	}()
	for {
		select {
		case line, ok := <-lines:
			if ok {
				b.line(ctx, &requests, line)
				continue
			}
			requests.Wait()
			b.end(ctx)
			return failed
		case <-ctx.Done():
			requests.Wait()
			b.end(ctx)
			return nil
		}
	}
}

// line takes a line of the client.
func (b *bridge) line(ctx context.Context, requests *sync.WaitGroup, line []byte) {
	var m message
	if len(line) == 0 {
		return
	} else if err := json.Unmarshal(line, &m); err != nil {
		b.fail(json.RawMessage("null"), -32700, "not a JSON-RPC message: "+err.Error())
		return
	}
	b.take(ctx, requests, line, m)
}

// take sends one message of the client.
func (b *bridge) take(ctx context.Context, requests *sync.WaitGroup, line []byte, m message) {
	if m.Method == "notifications/cancelled" && b.cancel(string(m.Params.RequestID)) {
		return
	}
	if m.Method == "" || m.ID == nil || m.Method == "initialize" {
		b.exchange(ctx, line, m)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	if m.Params.Meta.Version != "" { // without a session, closing the request cancels it
		b.mu.Lock()
		b.cancels[string(m.ID)] = cancel
		b.mu.Unlock()
	}
	requests.Go(func() {
		defer b.cancel(string(m.ID))
		defer cancel()
		b.exchange(ctx, line, m)
	})
}

// cancel ends a request that is under way and can be ended so.
func (b *bridge) cancel(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel := b.cancels[id]
	delete(b.cancels, id)
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// exchange sends a message and passes on what comes back. A request gets an answer in any case,
// unless its client cancelled it.
func (b *bridge) exchange(ctx context.Context, line []byte, m message) {
	if m.Method == "initialize" {
		b.mu.Lock()
		b.initialize, b.session, b.version = line, "", ""
		b.mu.Unlock()
	}
	answered, err := b.send(ctx, line, m)
	if errors.Is(err, errSession) && m.Method != "initialize" {
		if err = b.again(ctx); err == nil {
			answered, err = b.send(ctx, line, m)
		}
	}
	if err == nil && m.Method == "notifications/initialized" {
		b.listen(ctx)
	}
	if err == nil && m.ID != nil && m.Method != "" && !answered {
		err = errors.New("the host closed the connection before the answer; whether the call ran " +
			"is not known")
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	fmt.Fprintf(b.Say, "caponier connect: %v\n", err)
	if m.ID != nil && m.Method != "" {
		b.fail(m.ID, -32000, "caponier connect: "+err.Error())
	}
}

// fail answers a request with an error.
func (b *bridge) fail(id json.RawMessage, code int, text string) {
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": code, "message": text}})
	if err == nil {
		b.write(data)
	}
}

// write writes a message to the client, as one line.
func (b *bridge) write(data []byte) bool {
	var line bytes.Buffer
	if err := json.Compact(&line, data); err != nil {
		fmt.Fprintf(b.Say, "caponier connect: the host sent something else than JSON: %v\n", err)
		return false
	}
	line.WriteByte('\n')
	b.out.Lock()
	defer b.out.Unlock()
	_, err := b.Out.Write(line.Bytes())
	return err == nil
}

// Transport returns what connects to the host of a URL, which must be https or on this machine. It
// trusts the certificates of caFile too, if that is not empty.
func Transport(to, caFile string) (*http.Transport, error) {
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil:
		return nil, fmt.Errorf("%q: want a URL such as https://caponier.example.org/mcp", to)
	case u.Scheme == "http" && !local:
		return nil, fmt.Errorf("%s: without https, anybody on the way could read the token", to)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", caFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

// token is what the next request shows, or "".
func (b *bridge) token(ctx context.Context) (string, error) {
	if b.Token != "" || b.SignIn == nil {
		return b.Token, nil
	}
	return b.SignIn.Token(ctx)
}

// request makes a request of this session.
func (b *bridge) request(ctx context.Context, method string, body []byte, m message, token string) (
	*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	set := func(name, value string) {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	set("User-Agent", b.UserAgent)
	set("Accept", map[bool]string{true: "text/event-stream",
		false: "application/json, text/event-stream"}[method == http.MethodGet])
	if token != "" {
		set("Authorization", "Bearer "+token)
	}
	set("Mcp-Protocol-Version", cmp.Or(m.Params.Meta.Version, b.version))
	if method == http.MethodPost {
		set("Content-Type", "application/json")
	}
	if m.Params.Meta.Version == "" {
		set("Mcp-Session-Id", b.session)
		return r, nil
	}
	set("Mcp-Method", m.Method)
	if name := cmp.Or(m.Params.Name, m.Params.URI); m.Method == "tools/call" ||
		m.Method == "prompts/get" || m.Method == "resources/read" {
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			name = "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
		}
		set("Mcp-Name", name)
	}
	return r, nil
}

// pauses are those between the attempts to reach a host, while nothing was sent yet.
var pauses = []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}

// do makes a request. It is repeated as long as no connection could be made, and twice where the
// host wants another token: then it was not looked at. What else was sent may have been done.
func (b *bridge) do(ctx context.Context, method string, body []byte, m message) (
	*http.Response, error) {
	for i, tokens := 0, 0; ; i++ {
		token, err := b.token(ctx)
		if err != nil {
			return nil, err
		}
		r, err := b.request(ctx, method, body, m, token)
		if err != nil {
			return nil, err
		}
		res, err := b.http.Do(r)
		if err == nil && b.wantsToken(res) && tokens < 2 {
			if err := b.SignIn.Refused(ctx, res, token); err != nil {
				return nil, err
			}
			tokens++
			i--
			continue
		}
		if err == nil {
			return res, nil
		}
		var dial *net.OpError
		if !errors.As(err, &dial) || dial.Op != "dial" {
			return nil, fmt.Errorf("the connection to the host was lost; whether the call ran is "+
				"not known: %w", err)
		} else if i == len(pauses) {
			return nil, fmt.Errorf("the host cannot be reached, nothing was sent: %w", err)
		}
		select {
		case <-time.After(pauses[i]):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// wantsToken reports whether a host refuses a request for its token, and another one could help.
func (b *bridge) wantsToken(res *http.Response) bool {
	return b.Token == "" && b.SignIn != nil && (res.StatusCode == http.StatusUnauthorized ||
		res.StatusCode == http.StatusForbidden &&
			strings.Contains(res.Header.Get("WWW-Authenticate"), "insufficient_scope"))
}

// Token returns the token in a file, or the one in $CAPONIER_TOKEN if file is empty.
func Token(file string) (string, error) {
	if file == "" {
		return strings.TrimSpace(os.Getenv("CAPONIER_TOKEN")), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s does not hold a token, and nothing else", file)
	}
	return token, nil
}

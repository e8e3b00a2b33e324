package connect

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// errSession says that the host does not know the session any more: it was started again, or the
// session was idle for too long. The message was not looked at.
var errSession = errors.New("the host has no such session")

// send sends a message and passes on what comes back: one message, a stream of them, or nothing. It
// reports whether there was an answer to a request of this id.
func (b *bridge) send(ctx context.Context, line []byte, m message) (answered bool, err error) {
	res, err := b.do(ctx, http.MethodPost, line, m)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	b.mu.Lock()
	inSession := b.session != "" && m.Params.Meta.Version == ""
	b.mu.Unlock()
	if res.StatusCode == http.StatusNotFound && inSession {
		return false, errSession
	}
	pass := func(data []byte) {
		var got message
		if json.Unmarshal(data, &got) == nil && got.Method == "" && string(got.ID) == string(m.ID) {
			answered = true
			b.began(m, got, res)
		}
		b.write(data)
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "text/event-stream" && res.StatusCode == http.StatusOK {
		return answered, events(res.Body, pass)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxMessage))
	if err != nil {
		return false, err
	}
	var own struct{ JSONRPC string }
	if kind == "application/json" && json.Unmarshal(body, &own) == nil && own.JSONRPC == "2.0" {
		pass(body) // also with an error status: it is the host's own answer
		if answered || res.StatusCode < 300 {
			return answered, nil
		}
	}
	return answered, refused(res, body)
}

// refused says what a status means, or nil for one that is no error.
func refused(res *http.Response, body []byte) error {
	text := strings.TrimSpace(string(body[:min(len(body), 300)]))
	switch {
	case res.StatusCode < 300:
		return nil
	case res.StatusCode < 400:
		return fmt.Errorf("the host answers with a redirection to %q, which is not followed: "+
			"give that URL", res.Header.Get("Location"))
	case res.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the host does not accept the token (401): it may be revoked or "+
			"expired; the operator makes another with: caponier token new. %s", text)
	case res.StatusCode == http.StatusNotFound:
		return fmt.Errorf("there is no MCP at this URL (404); it usually ends in /mcp. %s", text)
	}
	return fmt.Errorf("the host answers %s: %s", res.Status, text)
}

// began notes the session and the version that an answer to initialize begins.
func (b *bridge) began(m, got message, res *http.Response) {
	if m.Method != "initialize" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.version = res.Header.Get("Mcp-Session-Id"), got.Result.Version
}

// again begins another session as the client began the last one, unseen by the client.
func (b *bridge) again(ctx context.Context) error {
	b.mu.Lock()
	line := b.initialize
	b.session, b.version = "", ""
	b.mu.Unlock()
	m := message{Method: "initialize"}
	res, err := b.do(ctx, http.MethodPost, line, m)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	read := func(data []byte) {
		var got message
		if json.Unmarshal(data, &got) == nil && got.Result.Version != "" {
			b.began(m, got, res)
		}
	}
	body := io.LimitReader(res.Body, maxMessage)
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		err = events(body, read)
	} else {
		var data []byte
		if data, err = io.ReadAll(body); err == nil {
			read(data)
			err = refused(res, data)
		}
	}
	if err != nil {
		return fmt.Errorf("beginning another session: %w", err)
	}
	fmt.Fprintln(b.Say, "caponier connect: the host has ended the session; this is another one")
	note := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	m = message{Method: "notifications/initialized"}
	if _, err = b.send(ctx, []byte(note), m); err == nil {
		b.listen(ctx)
	}
	return err
}

// listen passes on what the host says of itself in a session, until ctx ends. A host without such a
// stream is no error.
func (b *bridge) listen(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == "" || b.listening {
		return
	}
	b.listening = true
	go func() {
		for again := true; again; {
			again = b.hear(ctx)
			select {
			case <-ctx.Done():
				again = false
			case <-time.After(2 * time.Second):
			}
		}
		b.mu.Lock()
		b.listening = false
		b.mu.Unlock()
	}()
}

// hear opens the stream once, and reports whether it is worth another attempt.
func (b *bridge) hear(ctx context.Context) bool {
	token, err := b.token(ctx)
	if err != nil {
		return true // the provider may come back
	}
	r, err := b.request(ctx, http.MethodGet, nil, message{}, token)
	if err != nil {
		return false
	}
	res, err := b.http.Do(r)
	if err != nil {
		return true // it may come back
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode >= 500
	}
	_ = events(res.Body, func(data []byte) { b.write(data) })
	return true
}

// end tells the host that the session is over.
func (b *bridge) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if b.session == "" {
		return
	}
	token, _ := b.token(ctx)
	r, err := b.request(ctx, http.MethodDelete, nil, message{}, token)
	if err != nil {
		return
	}
	if res, err := b.http.Do(r); err == nil {
		res.Body.Close()
	}
}

// events reads server-sent events and hands on the data of each.
func events(from io.Reader, data func([]byte)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxMessage)
	var event []string
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			event = append(event, strings.TrimPrefix(text, " "))
		} else if line == "" && len(event) > 0 {
			if text := strings.Join(event, "\n"); text != "" {
				data([]byte(text))
			}
			event = nil
		}
	}
	return lines.Err()
}

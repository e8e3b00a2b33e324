package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/notify"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

// notice is the body of a webhook. It names no arguments: they are shown after signing in.
type notice struct {
	Event     string    `json:"event"`
	ID        string    `json:"id"`
	Principal string    `json:"principal"`
	Tool      string    `json:"tool"`
	Target    string    `json:"target"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	Link      string    `json:"link,omitempty"` // leads to the request, after signing in
	// how many persons said yes, of those that the site's policy needs
	Given int `json:"given"`
	Need  int `json:"need"`
}

// Headers of a webhook. The signature is v1=HEX of HMAC-SHA256 over the timestamp, a dot and the
// body.
const (
	TimestampHeader = "Caponier-Timestamp" // Unix seconds; refuse what is older than a few minutes
	SignatureHeader = "Caponier-Signature"
)

// Sign returns the value of SignatureHeader.
func Sign(secret, timestamp string, body []byte) string {
	return "v1=" + hex.EncodeToString(mac([]byte(secret), timestamp, string(body)))
}

// mac joins its parts with dots, which no part but the last may hold.
func mac(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for i, p := range parts {
		if i > 0 {
			h.Write([]byte{'.'})
		}
		io.WriteString(h, p)
	}
	return h.Sum(nil)
}

// announce tells the log, and in the background people and the webhook, of a request, and again
// of each yes that is not enough. A request that is not answered expires, and that is a no.
func (a *Approvals) announce(r Request) {
	a.opt.Log.Info("a call waits for approval", "id", r.ID, "principal", r.Principal,
		"tool", r.Tool, "expires", r.Expires.UTC())
	n := notice{Event: "approval.waiting", ID: r.ID, Principal: plaintext.Show(r.Principal),
		Tool: plaintext.Show(r.Tool), Created: r.Created.UTC(), Expires: r.Expires.UTC(),
		Given: len(r.Answers), Need: max(1, r.Need)}
	if d, err := r.Read(); err == nil {
		n.Target = plaintext.Show(d.Target())
	}
	if base := a.opt.base(); base != "" {
		n.Link = base + "/approvals/" + r.ID
	}
	tell := notify.Notice{ID: r.ID, Principal: r.Principal, Tool: r.Tool, Target: n.Target,
		Expires: r.Expires, Link: n.Link, Given: n.Given, Need: n.Need}
	a.people.Tell(tell, func(service string, err error) {
		a.opt.Log.Error("people were not told of a request; they can still decide", "service",
			service, "id", r.ID, "error", err)
	})
	if a.opt.Webhook.URL == "" || a.running.Err() != nil {
		return
	}
	a.sending.Go(func() {
		if err := a.send(a.running, n); err != nil {
			a.opt.Log.Error("the approval webhook was not delivered; people can still decide",
				"id", r.ID, "error", err)
		}
	})
}

// Told returns when everybody was told, or after 15 seconds. It is for processes that end then.
func (a *Approvals) Told(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		a.people.Wait()
		a.sending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(15 * time.Second):
	}
}

// send tries three times within about 40 s.
func (a *Approvals) send(ctx context.Context, n notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err = a.post(ctx, body); err == nil || try == 3 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try) * time.Second):
		}
	}
}

func (a *Approvals) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.opt.Webhook.URL,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(a.opt.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(TimestampHeader, at)
	req.Header.Set(SignatureHeader, Sign(a.opt.Webhook.Secret, at, body))
	res, err := a.opt.Client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", a.opt.Webhook.URL, res.Status)
	}
	return nil
}

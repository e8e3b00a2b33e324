package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

const maxTarget = 120 // characters

// Notice is about a call that waits.
type Notice struct {
	ID        string // of the request
	Principal string
	Tool      string
	Target    string // guests, nodes …; left out where it could be markup, a link or a mention
	Expires   time.Time
	Link      string // to the page, "" if there is none
	// how many persons said yes, of those that it takes; 0 of one or of several in a first notice
	Given, Need int
}

// key is another one for each notice about a request.
func (n Notice) key() string {
	if n.Given == 0 {
		return n.ID
	}
	return fmt.Sprintf("%s-%d", n.ID, n.Given)
}

// plain is text that no service takes for markup, a link or a mention.
var plain = regexp.MustCompile(`^[A-Za-z0-9 ,()-]*$`)

// spoken keeps an id, which its provider may let a person choose, from being a link or a mention.
var spoken = strings.NewReplacer("@", " at ", ".", " dot ")

// text returns the message as a sentence, without the link.
func (n Notice) text() string {
	on := ""
	if n.Target != "" && len(n.Target) <= maxTarget && plain.MatchString(n.Target) {
		on = " on " + n.Target
	}
	said := fmt.Sprintf("%s asks to run %s%s. It waits for approval until %s UTC.",
		spoken.Replace(plaintext.Show(plaintext.Short(n.Principal, 100))),
		plaintext.Show(n.Tool), on, n.Expires.UTC().Format("15:04"))
	if n.Given > 0 {
		said += fmt.Sprintf(" %d of %d persons said yes: another one is needed.", n.Given, n.Need)
	}
	return said
}

// open returns the sentence that tells where to answer.
func (n Notice) open() string {
	if n.Link == "" {
		return "Answer with: caponier approvals"
	}
	return "Read it and answer: " + n.Link
}

// service sends one message.
type service interface {
	send(ctx context.Context, n Notice) error
}

// refused is an answer that another try would not change.
type refused struct{ error }

// client follows no redirect, which could lead a token elsewhere, and keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// do sends a request. Its error does not hold the URL, which is a secret with some services.
func do(req *http.Request) error {
	res, err := client.Do(req)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	} else if err != nil {
		return err
	}
	defer res.Body.Close()
	switch c := res.StatusCode; {
	case c/100 == 2:
		return nil
	case c/100 == 4 && c != http.StatusTooManyRequests && c != http.StatusRequestTimeout:
		return refused{fmt.Errorf("it answered %s: look at its url, token and channel", res.Status)}
	}
	return fmt.Errorf("it answered %s", res.Status)
}

// oneLine is for headers.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

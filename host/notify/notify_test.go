package notify

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"time"
)

var notice = Notice{ID: "R1", Principal: "ann", Tool: "stop_guest", Target: "guest 104 (web)",
	Expires: time.Date(2026, 11, 23, 12, 30, 0, 0, time.UTC),
	Link:    "https://approve.example.org/approvals/R1"}

const sentence = "ann asks to run stop_guest on guest 104 (web). It waits for approval until " +
	"12:30 UTC."

// received is a request that a service got.
type received struct {
	method, path, authorization string
	body                        map[string]any
}

// tell sends a notice to a service that gives these answers in turn, 200 after the last.
func tell(t *testing.T, o Options, n Notice, answers ...int) (got []received, failed []string) {
	t.Helper()
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		x := received{r.Method, r.URL.EscapedPath(), r.Header.Get("Authorization"), nil}
		if err := json.Unmarshal(raw, &x.body); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		mu.Lock()
		got = append(got, x)
		answer := 200
		if len(answers) > 0 {
			answer, answers = answers[0], answers[1:]
		}
		mu.Unlock()
		if answer == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(answer)
	}))
	defer s.Close()
	o.URL = s.URL
	if o.Kind == "slack" || o.Kind == "teams" {
		o.URL += "/services/T0/SECRET"
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	all := New([]Options{o})
	all.pause = time.Millisecond
	all.Tell(n, func(service string, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, service+": "+err.Error())
	})
	all.sending.Wait()
	all.Close()
	return got, failed
}

var services = map[string]Options{
	"slack":    {Kind: "slack"},
	"teams":    {Kind: "teams"},
	"telegram": {Kind: "telegram", Token: "12:SECRET", Channel: "-100"},
	"ntfy":     {Kind: "ntfy", Token: "SECRET", Channel: "ops"},
	"matrix":   {Kind: "matrix", Token: "SECRET", Channel: "!a/b:example.org"},
}

// at returns what stands in a document below these keys and indices.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// Each service gets the sentence as text that it does not read as markup, and the link where it has
// a place for one.
func TestEachServiceGetsTheSentenceAndTheLink(t *testing.T) {
	card := []any{"attachments", 0, "content"}
	for name, x := range map[string]struct {
		method, path string
		text, link   []any
		only         map[string]any // by one key at the top
	}{
		"slack": {"POST", "/services/T0/SECRET", []any{"blocks", 0, "text", "text"},
			[]any{"blocks", 1, "elements", 0, "url"}, map[string]any{"unfurl_links": false}},
		"teams": {"POST", "/services/T0/SECRET", append(card, "body", 0, "inlines", 0, "text"),
			append(card[:3:3], "actions", 0, "url"), map[string]any{"type": "message"}},
		"telegram": {"POST", "/bot12:SECRET/sendMessage", []any{"text"},
			[]any{"reply_markup", "inline_keyboard", 0, 0, "url"},
			map[string]any{"chat_id": "-100", "parse_mode": nil}},
		"ntfy": {"POST", "/", []any{"message"}, []any{"click"},
			map[string]any{"topic": "ops", "markdown": nil}},
		"matrix": {"PUT", "/_matrix/client/v3/rooms/%21a%2Fb:example.org/send/m.room.message/" +
			"caponier-R1", []any{"body"}, nil,
			map[string]any{"msgtype": "m.text", "formatted_body": nil}},
	} {
		got, failed := tell(t, services[name], notice)
		if len(got) != 1 || failed != nil {
			t.Fatalf("%s: %d requests, %q", name, len(got), failed)
		}
		r := got[0]
		if r.method != x.method || r.path != x.path && r.path != strings.Replace(x.path, "%21",
			"!", 1) {
			t.Errorf("%s: %s %s", name, r.method, r.path)
		}
		text, _ := at(t, r.body, x.text...).(string)
		if !strings.HasPrefix(text, sentence) {
			t.Errorf("%s: %q", name, text)
		}
		if link := at(t, r.body, x.link...); x.link != nil && link != notice.Link ||
			x.link == nil && !strings.HasSuffix(text, notice.Link) {
			t.Errorf("%s: the link is %v", name, link)
		}
		for key, want := range x.only {
			if r.body[key] != want {
				t.Errorf("%s: %s is %v, want %v", name, key, r.body[key], want)
			}
		}
		if bearer := r.authorization == "Bearer SECRET"; bearer != (name == "ntfy" || name ==
			"matrix") {
			t.Errorf("%s: Authorization %q", name, r.authorization)
		}
	}
}

// Matrix takes one message for each transaction, so that a second notice needs another one.
func TestASecondPersonReceivesASeparateMessage(t *testing.T) {
	n := notice
	n.Given, n.Need = 1, 2
	got, failed := tell(t, services["matrix"], n)
	if len(got) != 1 || failed != nil {
		t.Fatalf("%d requests, %q", len(got), failed)
	}
	text, _ := got[0].body["body"].(string)
	if !strings.HasSuffix(got[0].path, "/caponier-R1-1") ||
		!strings.Contains(text, "1 of 2 persons said yes: another one is needed.") {
		t.Errorf("%s: %q", got[0].path, text)
	}
}

// A target that a service could take for a link, a mention or markup is not named: whoever names a
// guest or a path writes it.
func TestForeignNamesBecomeNeitherLinksNorMentions(t *testing.T) {
	for _, target := range []string{"guest 1 (evil.example)", "path /etc/x", "guest 1 (@channel)",
		"guest 1 (<!here>)", "guest 1 (*b* _i_)", "guest 1 (http://x)", "guest 1 ([a](b))",
		"guest 1 (a\nb)", "guest 1 (a\u202eb)", strings.Repeat("x", maxTarget+1)} {
		n := notice
		n.Target = target
		if got := n.text(); strings.Contains(got, " on ") {
			t.Errorf("%q: %s", target, got)
		}
	}
	n := notice
	n.Principal = "a\u202eb\nc"
	if got := n.text(); strings.ContainsAny(got, "\u202e\n") {
		t.Errorf("%q", got)
	}
	n.Principal = "@evil.example"
	if got := n.text(); !strings.HasPrefix(got, " at evil dot example asks to run") {
		t.Errorf("%q", got)
	}
}

// A service that is away is asked three times; one that says no, once. Nobody is led elsewhere, and
// no error has a secret.
func TestAServiceThatFailsIsNamedWithoutItsSecret(t *testing.T) {
	for name, o := range services {
		for _, x := range []struct {
			answers []int
			tries   int
			want    string
		}{
			{[]int{500, 429, 200}, 3, ""},
			{[]int{500, 500, 500, 500}, 3, "500 Internal Server Error"},
			{[]int{403}, 1, "403 Forbidden: look at its url, token and channel"},
			{[]int{302, 302, 302}, 3, "302 Found"},
		} {
			got, failed := tell(t, o, notice, x.answers...)
			said := strings.Join(failed, "\n")
			if len(got) != x.tries || (x.want == "") != (said == "") ||
				!strings.Contains(said, x.want) || strings.Contains(said, "SECRET") {
				t.Errorf("%s %v: %d tries, %q", name, x.answers, len(got), said)
			}
		}
		o.URL = "http://127.0.0.1:1/SECRET"
		if err := o.open().send(context.Background(), notice); err == nil ||
			strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A service that never answers holds up nothing, and a flood is not kept in memory.
func TestASilentServiceDelaysNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	told := make(chan bool, 100)
	good := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		told <- true
	}))
	defer good.Close()
	n := New([]Options{{Kind: "ntfy", URL: "http://" + l.Addr().String(), Channel: "x"},
		{Kind: "slack", URL: good.URL}})
	var mu sync.Mutex
	over := 0
	for range 100 {
		n.Tell(notice, func(_ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(err.Error(), "too many") {
				over++
			}
		})
		<-told // nor does it hold up another one
	}
	n.Close()
	if over != 100-64 {
		t.Errorf("%d messages were refused", over)
	}
	n.Tell(notice, func(string, error) { t.Error("it sends after its end") })
	var none *Notifier
	none.Tell(notice, nil)
	none.Close()
	if New(nil) != nil {
		t.Error("there is a notifier of nothing")
	}
}

// submission is a server of SMTP that takes one message. It knows what RFC 5321 needs, and
// answers RCPT with what it is told.
func submission(t *testing.T, rcpt string, secure ...tls.Certificate) (address string,
	got chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if len(secure) > 0 {
		l = tls.NewListener(l, &tls.Config{Certificates: secure})
	}
	got = make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, all := bufio.NewReader(c), ""
		say := func(s string) { fmt.Fprintf(c, "%s\r\n", s) }
		say("220 test")
		for data := false; ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			all += line
			verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch {
			case data && line == ".\r\n":
				data = false
				say("250 taken")
				got <- all
			case data:
			case verb == "EHLO":
				say("250-test")
				say("250 8BITMIME")
			case verb == "RCPT":
				say(rcpt)
			case verb == "DATA":
				data = true
				say("354 go on")
			case verb == "QUIT":
				say("221 bye")
				return
			default:
				say("250 fine")
			}
		}
	}()
	return l.Addr().String(), got
}

func TestMailIsOneMessageOfPlainText(t *testing.T) {
	address, got := submission(t, "250 fine")
	o := Options{Kind: "mail", URL: "smtp://" + address, From: "caponier@example.org",
		To: []string{"ann@example.org", "bob@example.org"}}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	n := notice
	n.Principal = "a\r\nBcc: eve@example.org\r\n.\r\n"
	if err := o.open().send(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	all := <-got
	_, message, _ := strings.Cut(all, "DATA\r\n")
	m, err := netmail.ReadMessage(strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(m.Body)
	if m.Header.Get("Bcc") != "" || strings.Count(all, "RCPT TO:") != 2 ||
		m.Header.Get("Auto-Submitted") != "auto-generated" ||
		!strings.Contains(string(body), notice.Link) ||
		!strings.Contains(string(body), "asks to run stop_guest") {
		t.Errorf("%s", all)
	}
}

// Mail goes nowhere unencrypted but to the loopback.
func TestMailIsSentEncryptedOrToTheLoopback(t *testing.T) {
	address, got := submission(t, "250 fine")
	_, port, _ := net.SplitHostPort(address)
	o := Options{Kind: "mail", URL: "smtp://localhost:" + port, From: "a@b", To: []string{"c@d"}}
	m := o.open().(mail)
	m.at.Host = "mail.example:" + port
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := m.over(conn, notice); !errors.As(err, new(refused)) ||
		!strings.Contains(err.Error(), "offers no STARTTLS") {
		t.Error(err)
	}
	select {
	case all := <-got:
		t.Errorf("it was sent: %s", all)
	default:
	}
}

// With smtps a server without a certificate for its name gets nothing.
func TestMailOverTLSVerifiesTheServersName(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate, of example.com and the loopback
	defer web.Close()
	for name, x := range map[string]struct {
		roots *x509.CertPool
		want  string
	}{"trusted": {web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ""},
		"not": {nil, "certificate"}} {
		address, got := submission(t, "250 fine", web.TLS.Certificates[0])
		o := Options{Kind: "mail", URL: "smtps://" + address, From: "a@b.example",
			To: []string{"c@d.example"}}
		m := o.open().(mail)
		m.tls = &tls.Config{RootCAs: x.roots}
		err := m.send(t.Context(), notice)
		if (x.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
		if x.want == "" {
			<-got
		}
	}
}

func TestARefusedMailboxIsReported(t *testing.T) {
	address, _ := submission(t, "550 no such user")
	o := Options{Kind: "mail", URL: "smtp://" + address, From: "a@b", To: []string{"c@d"}}
	if err := o.open().send(t.Context(), notice); err == nil || !strings.Contains(err.Error(),
		"no such user") {
		t.Error(err)
	}
}

func TestValidateNamesTheWrongKey(t *testing.T) {
	mail := Options{Kind: "mail", URL: "smtp://mail.example", From: "a@b.example",
		To: []string{"c@d.example"}}
	with := func(o Options, change func(*Options)) Options { change(&o); return o }
	for want, o := range map[string]Options{
		"kind: \"\" is not slack":     {},
		"token: is missing for":       {Kind: "telegram", Channel: "1"},
		"channel: is missing for":     {Kind: "ntfy", URL: "https://ntfy.sh"},
		"channel: slack has none":     {Kind: "slack", URL: "https://x.example", Channel: "x"},
		"url: is missing":             {Kind: "slack"},
		"url: want https://, or http": {Kind: "slack", URL: "http://x.example"},
		"url: want only the server":   {Kind: "ntfy", URL: "https://ntfy.sh/ops", Channel: "ops"},
		"user: is set together":       with(mail, func(o *Options) { o.User = "u" }),
		"to: \"c\" is not an address": with(mail, func(o *Options) { o.To = []string{"c"} }),
		"to: \"x <a@b.c>\" is no":     with(mail, func(o *Options) { o.From = "x <a@b.c>" }),
		"url: want smtp://HOST":       with(mail, func(o *Options) { o.URL = "https://x.example" }),
		"url: is missing, or is not":  with(mail, func(o *Options) { o.URL = "smtp://u:SECRET@x" }),
	} {
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) ||
			strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, o := range services {
		if o.URL = "https://x.example"; o.Validate() != nil {
			t.Errorf("%s: %v", o.Kind, o.Validate())
		}
	}
	if o := services["telegram"]; o.Validate() != nil {
		t.Errorf("telegram has a default: %v", o.Validate())
	}
}

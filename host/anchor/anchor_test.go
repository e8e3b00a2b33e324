package anchor

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
)

// newKey returns the file of a new signing key, and its public key.
func newKey(t testing.TB) (file, public string) {
	t.Helper()
	secret, public, err := NewKey("host.example")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, public
}

func publisher(t *testing.T, o Options) *Publisher {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func at(n int64) func(context.Context) (audit.Tip, error) {
	return func(context.Context) (audit.Tip, error) {
		return audit.Tip{File: "a.jsonl", Seq: n,
			Hash: strings.Repeat("0", 63) + string(rune('0'+n))}, nil
	}
}

func seqs(all []Anchor) (out []int64) {
	for _, a := range all {
		out = append(out, a.Tip.Seq)
	}
	return out
}

func TestAnchorsAreReadBackFromEveryPlace(t *testing.T) {
	key, public := newKey(t)
	var posted bytes.Buffer
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(&posted, r.Body)
	}))
	defer web.Close()
	log, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	file := filepath.Join(t.TempDir(), "anchors")
	p := publisher(t, Options{Key: key, File: file, URL: web.URL,
		Syslog: "udp://" + log.LocalAddr().String()})
	for _, n := range []int64{1, 1, 2} { // an end that was published is not published again
		if err := p.Publish(t.Context(), at(n)); err != nil {
			t.Fatal(err)
		}
	}
	var lines bytes.Buffer
	for range 2 {
		buf := make([]byte, 64<<10)
		_ = log.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, _, err := log.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		lines.WriteString("noise of another program\n" + strings.TrimSpace(string(buf[:n])) + "\n")
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for place, text := range map[string]string{"file": string(written), "URL": posted.String(),
		"syslog": lines.String()} {
		all, err := Read(strings.NewReader(text), public)
		if err != nil || !slices.Equal(seqs(all), []int64{1, 2}) {
			t.Errorf("%s: %v %v in\n%s", place, seqs(all), err, text)
		}
	}
}

func TestAPlaceThatFailsGetsTheNextAnchor(t *testing.T) {
	key, public := newKey(t)
	away := true
	var posted bytes.Buffer
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.Copy(&posted, r.Body)
	}))
	defer web.Close()
	p := publisher(t, Options{Key: key, URL: web.URL})
	if err := p.Publish(t.Context(), at(1)); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a redirect: %v", err)
	}
	away = false
	if err := p.Publish(t.Context(), at(1)); err != nil {
		t.Error(err)
	}
	if all, err := Read(&posted, public); err != nil || !slices.Equal(seqs(all), []int64{1}) {
		t.Errorf("%v %v", seqs(all), err)
	}
	lost := errors.New("lost")
	if err := p.Publish(t.Context(), func(context.Context) (audit.Tip, error) {
		return audit.Tip{}, lost
	}); !errors.Is(err, lost) {
		t.Errorf("a journal that failed: %v", err)
	}
}

func TestReadRefusesUnsignedNotes(t *testing.T) {
	key, public := newKey(t)
	_, stranger := newKey(t)
	file := filepath.Join(t.TempDir(), "anchors")
	p := publisher(t, Options{Key: key, File: file})
	for n := range int64(3) {
		if err := p.Publish(t.Context(), at(n)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	for claim, c := range map[string]struct{ text, key, want string }{
		"another key": {good, stranger, "line 5"},
		"no key":      {good, "x", "is invalid"},
		"a changed number": {strings.Replace(good, "a.jsonl 1 ", "a.jsonl 2 ", 1), public,
			"line 10"},
		"a signature that is gone": {good[strings.Index(good, "\u2014"):], public, ""},
		"a cut end":                {good[:len(good)-2], public, "line 15"},
		"a cut signature":          {good[:strings.LastIndex(good, "\u2014")], public, "was cut"},
		"two beginnings":           {format + "\n" + good, public, "no signature"},
		"base64 that is none":      {marker + "!!!\n", public, "line 1"},
		"base64 of nothing": {marker + base64.StdEncoding.EncodeToString([]byte("x")) + "\n",
			public, "line 1"},
	} {
		all, err := Read(strings.NewReader(c.text), c.key)
		if c.want == "" {
			if err != nil || len(all) != 2 {
				t.Errorf("%s: %v %v", claim, seqs(all), err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", claim, err, c.want)
		}
	}
}

func TestKeysAndPlacesAreChecked(t *testing.T) {
	key, _ := newKey(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for claim, c := range map[string]struct {
		o    Options
		want string
	}{
		"a place without a key": {Options{File: "x"}, "anchors.key"},
		"a key without a place": {Options{Key: key}, "anchors.key"},
		"too often": {Options{Key: key, File: "x", Every: time.Millisecond},
			"anchors.every"},
		"a URL of another kind":      {Options{Key: key, URL: "ftp://x"}, "anchors.url"},
		"a syslog that is no place":  {Options{Key: key, Syslog: "x"}, "anchors.syslog"},
		"a key that others may read": {Options{Key: open, File: "x"}, "chmod 600"},
		"a key that is missing":      {Options{Key: open + "x", File: "x"}, "no such file"},
	} {
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", claim, err, c.want)
		}
	}
	if p, err := New(Options{}); p != nil || err != nil {
		t.Errorf("no anchors: %v %v", p, err)
	}
}

// Everything that is read as an anchor was signed.
func FuzzRead(f *testing.F) {
	secret, public, err := NewKey("host.example")
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(f.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		f.Fatal(err)
	}
	out := filepath.Join(f.TempDir(), "anchors")
	p, err := New(Options{Key: file, File: out})
	if err != nil {
		f.Fatal(err)
	}
	for n := range int64(2) {
		if err := p.Publish(f.Context(), at(n)); err != nil {
			f.Fatal(err)
		}
	}
	b, err := os.ReadFile(out)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add(marker + base64.StdEncoding.EncodeToString(b[:len(b)/2]) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Read(strings.NewReader(text), public)
		if err != nil {
			return
		}
		for _, a := range all {
			if want, _ := at(a.Tip.Seq)(t.Context()); a.Tip != want || a.Tip.Seq > 1 {
				t.Errorf("%+v was never signed", a)
			}
		}
	})
}

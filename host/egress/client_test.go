package egress

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheHostsOwnRequests(t *testing.T) {
	w := lab(t, Options{MaxBody: 1000})
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/away":
			http.Redirect(rw, r, "/", http.StatusFound)
		case r.URL.Path == "/long":
			io.WriteString(rw, strings.Repeat("x", 1001))
		case r.Header.Get("Cookie") != "":
			io.WriteString(rw, "cookie")
		default:
			http.SetCookie(rw, &http.Cookie{Name: "a", Value: "b"})
			io.WriteString(rw, "ok")
		}
	}))
	defer s.Close()
	c := w.e.Client()
	for path, want := range map[string]string{"/": "200 ok", "/away": "302 ",
		"/long": "too large"} {
		for range 2 {
			resp, err := c.Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			got := resp.Status[:4] + string(b)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s gave %.80q, want %q", path, got, want)
			}
		}
	}
	for _, url := range []string{"http://169.254.169.254/", "http://[fd00:ec2::254]/",
		"http://[::ffff:169.254.169.254]/", "http://2852039166/", "http://0.0.0.0/", "http://[64:ff9b::a9fe:a9fe]/"} {
		if _, err := c.Get(url); err == nil ||
			!strings.Contains(err.Error(), "may be there") &&
				!strings.Contains(err.Error(), "no such host") {
			t.Errorf("%s gave %v, want a dial that is refused", url, err)
		}
	}
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	if _, err := c.Get(tls.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that no authority signed gave %v", err)
	}
}

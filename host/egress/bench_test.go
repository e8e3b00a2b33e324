package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// What the care of a request costs beside the standard client on a new connection each time.
func BenchmarkRequest(b *testing.B) {
	s := httptest.NewServer(
		http.HandlerFunc(
			func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "hello") }),
	)
	defer s.Close()
	b.Run("egress", func(b *testing.B) {
		e, err := New(
			Options{Ledger: &world{counts: map[string]int64{}}, PerHost: 1 << 40,
				PerPrincipal: 1 << 40},
		)
		if err != nil {
			b.Fatal(err)
		}
		q := terms.Question{Call: &terms.Call{Tool: &terms.Tool{Name: "curl"}},
			Op: abi.HTTPRequest{Method: "GET", URL: s.URL + "/"}}
		for b.Loop() {
			f, err := e.Lookup(context.Background(), q)
			if err != nil {
				b.Fatal(err)
			}
			q.Facts = f
			if _, err := e.Execute(context.Background(), q,
				terms.Decision{Allow: true, Tier: terms.Green}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("net/http", func(b *testing.B) {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for b.Loop() {
			resp, err := c.Get(s.URL)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	e := &Egress{}
	for b.Loop() {
		if _, err := e.resolve(context.Background(), "93.184.215.14"); err != nil {
			b.Fatal(err)
		}
	}
}

package export

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// BenchmarkExport sends calls of two records to a service of OPA's decision logs, and writes them
// first: an export sustains a journal when it is faster than what writes it.
func BenchmarkExport(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer s.Close()
	dir := filepath.Join(b.TempDir(), "journal")
	j := journal(b, dir)
	x := exporter(b, dir, SinkOptions{Kind: "opa", URL: s.URL})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			write(b, j, "x", 1)
		}
	})
	must(b, x.Once(b.Context()))
	b.Run("send", func(b *testing.B) {
		b.StopTimer()
		write(b, j, "y", b.N)
		b.StartTimer()
		must(b, x.Once(b.Context()))
	})
}

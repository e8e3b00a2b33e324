package result

import (
	"bytes"
	"context"
	"io"
	"testing"
)

func BenchmarkMaskWithoutHits(b *testing.B) {
	s := all(b)
	in := bytes.Repeat([]byte("Nov 23 12:00:01 pve1 sshd[812]: session opened for root\n"), 20_000)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		m := s.masker(context.Background(), io.Discard)
		m.Write(in)
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		all(b)
	}
}

package result

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// errUnready is the error of a set that New did not make, and of a masker after a failure.
var errUnready = errors.New("result: no detectors")

// marker is the beginning of the text that replaces a secret.
const marker = "[caponier:masked:"

// span is what one detector found, in bytes from the start of the stream.
type span struct {
	from, to int
	detector string
}

// progress is how far a finder is.
type progress struct {
	at     int  // all before is decided
	within bool // a secret is not at its end
}

// masker writes its input to another writer, without the secrets. It holds back only bytes that can
// still become a secret. If Write or Close fails, its output must not be shown.
type masker struct {
	ctx  context.Context
	set  *Set
	to   io.Writer
	buf  []byte
	base int // where buf begins in the stream
	done []progress
	// spans are those that are not written yet.
	spans  []span
	masked int            // the end of the last mask, or -1
	ends   map[string]int // the end of what each detector found last
	hits   map[string]int
	err    error
}

// masker returns a masker that writes to w, until ctx, the budget, ends.
func (s *Set) masker(ctx context.Context, w io.Writer) *masker {
	m := &masker{ctx: ctx, set: s, to: w, masked: -1,
		hits: map[string]int{}, ends: map[string]int{}}
	if s == nil || !s.ready {
		m.err = errUnready
		return m
	}
	m.done = make([]progress, len(s.finders))
	return m
}

// Mask returns a text without the secrets in it, and how many each detector found.
func (s *Set) Mask(ctx context.Context, b []byte) ([]byte, map[string]int, error) {
	var out bytes.Buffer
	m := s.masker(ctx, &out)
	_, err := m.Write(b)
	if err = errors.Join(err, m.Close()); err != nil {
		return nil, nil, err
	}
	return out.Bytes(), m.hits, nil
}

// step is how much is looked at before the budget is looked at again.
const step = 64 << 10

// Write implements io.Writer.
func (m *masker) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && m.err == nil {
		k := min(step, len(b))
		m.buf = append(m.buf, b[:k]...)
		b = b[k:]
		m.scan(false)
	}
	return n - len(b), m.err
}

// Close writes the bytes that were held back. It does not close the other writer.
func (m *masker) Close() error {
	if m.err == nil {
		m.scan(true)
	}
	err := m.err
	if err == nil {
		m.err = errUnready
	}
	return err
}

func (m *masker) scan(last bool) {
	if len(m.buf) < step && !last {
		return
	}
	safe := m.base + len(m.buf)
	if !last {
		safe = m.base + boundary(m.buf, len(m.buf)-m.set.longest)
	}
	for i := range m.set.finders {
		for m.done[i].at < safe {
			if m.err = m.ctx.Err(); m.err != nil {
				return
			}
			m.find(&m.set.finders[i], &m.done[i], safe)
		}
	}
	m.flush(safe)
}

// boundary returns the last place up to at where a character begins.
func boundary(b []byte, at int) int {
	for i := at; i > at-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return at
}

// find goes one step: to the next secret that begins before safe, or to its end.
func (m *masker) find(f *finder, p *progress, safe int) {
	rest := m.buf[p.at-m.base:]
	if p.within {
		from := p.at
		if end := f.end(rest, safe-p.at); end < 0 {
			p.at = safe
		} else {
			p.at, p.within = p.at+end, false
		}
		m.spans = append(m.spans, span{from, p.at, f.detector})
		return
	}
	loc := f.re.FindIndex(rest)
	if loc == nil || p.at+loc[0] >= safe {
		p.at = safe
		return
	}
	from, to := p.at+loc[0], p.at+loc[1]
	m.spans = append(m.spans, span{from, to, f.detector})
	if f.more == "" && f.until == nil {
		_, width := utf8.DecodeRune(rest[loc[0]:])
		p.at = from + width // a secret may begin within another
		return
	}
	p.at, p.within = to, true
}

// end returns where a secret ends in b, or -1 if it does not end before safe.
func (f *finder) end(b []byte, safe int) int {
	if f.until != nil {
		if loc := f.until.FindIndex(b); loc != nil && loc[0] < safe {
			return loc[1]
		}
		return -1
	}
	for i := 0; i < safe; i++ {
		escaped := b[i] == '\\' && i+1 < len(b) &&
			(b[i+1] == '/' && strings.Contains(f.more, "/") ||
				(b[i+1] == 'n' || b[i+1] == 'r') && strings.Contains(f.more, "\n"))
		if !escaped && strings.IndexByte(f.more, b[i]) < 0 {
			return i
		}
	}
	return -1
}

// flush writes all before safe. Secrets that overlap or touch become one mask, named by the first.
func (m *masker) flush(safe int) {
	slices.SortStableFunc(m.spans, func(a, b span) int { return a.from - b.from })
	var out []byte
	at := min(max(m.base, m.masked), safe)
	for _, s := range m.spans {
		if s.from > m.masked {
			out = append(out, m.buf[at-m.base:s.from-m.base]...)
			out = append(out, marker+s.detector+"]"...)
		}
		if end, ok := m.ends[s.detector]; !ok || s.from > end {
			m.hits[s.detector]++
		}
		m.ends[s.detector] = max(m.ends[s.detector], s.to)
		m.masked = max(m.masked, s.to)
		at = min(max(at, m.masked), safe)
	}
	out = append(out, m.buf[at-m.base:safe-m.base]...)
	m.spans = m.spans[:0]
	m.buf = append(m.buf[:0], m.buf[safe-m.base:]...)
	m.base = safe
	_, m.err = m.to.Write(out)
}

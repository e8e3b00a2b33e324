package plaintext

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// lines is a slog.Handler for an author at a terminal: one line for each record, and below it what
// the plugin wrote, line by line, such as the trace of a panic.
type lines struct {
	level slog.Level
	to    io.Writer
	mu    *sync.Mutex // held while writing
	attrs []slog.Attr
}

// NewLog returns a log for an author at a terminal, with the records of level and above.
func NewLog(to io.Writer, level slog.Level) *slog.Logger {
	return slog.New(lines{level: level, to: to, mu: &sync.Mutex{}})
}

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.attrs = slices.Concat(l.attrs, attrs)
	return l
}

func (l lines) WithGroup(string) slog.Handler { return l }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	text, attrs := "", slices.Clone(l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			text = a.Value.String()
		} else {
			attrs = append(attrs, a)
		}
		return true
	})
	var b strings.Builder
	fmt.Fprintf(&b, "%-5s %s", r.Level, r.Message)
	for _, a := range attrs {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value)
	}
	b.WriteString("\n")
	if text != "" {
		for line := range strings.SplitSeq(text, "\n") {
			b.WriteString(strings.TrimRight("      "+line, " ") + "\n")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.to, Clean(b.String()))
	return err
}

// scrubbed is a log that cannot hold a secret of the configuration. Each record is one Write.
type scrubbed struct {
	to    io.Writer
	hides *strings.Replacer
}

func (s scrubbed) Write(p []byte) (int, error) {
	if _, err := s.hides.WriteString(s.to, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Without returns a writer that leaves out these values, as they are or quoted as Go or JSON does.
func Without(to io.Writer, secrets []string) io.Writer {
	// one may begin with another
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) < 4 { // it would be in every other word
			continue
		}
		quoted := strconv.Quote(s)
		pairs = append(pairs, s, "[redacted]", quoted[1:len(quoted)-1], "[redacted]")
		if escaped, err := json.Marshal(s); err == nil {
			pairs = append(pairs, string(escaped[1:len(escaped)-1]), "[redacted]")
		}
	}
	return scrubbed{to, strings.NewReplacer(pairs...)}
}

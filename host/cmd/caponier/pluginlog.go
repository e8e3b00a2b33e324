package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

// lines is a slog.Handler for an author at a terminal: one line for each record, and below it what
// the plugin wrote, line by line, such as the trace of a panic.
type lines struct {
	level slog.Level
	to    io.Writer
	mu    *sync.Mutex // held while writing
	attrs []slog.Attr
}

func newLines(to io.Writer, level slog.Level) *slog.Logger {
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
	_, err := io.WriteString(l.to, plaintext.Clean(b.String()))
	return err
}

// logOutput writes to where the log goes, which leaves out the secrets of the configuration once
// that is loaded.
type logOutput struct{}

func (logOutput) Write(p []byte) (int, error) { return log.Writer().Write(p) }

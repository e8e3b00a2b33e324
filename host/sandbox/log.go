package sandbox

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// moduleLog writes what the instances of one plugin say into the host's log: cleaned, with plugin
// and call, and at most maxRecords a minute for each principal, so that a plugin cannot drown the
// records of others.
type moduleLog struct {
	log *slog.Logger // with the plugin
	now func() time.Time

	mu      sync.Mutex     // guards the following
	began   time.Time      // of the minute
	n       map[string]int // records in it, by principal
	dropped int            // since the last that was written
}

const (
	maxRecords = 300
	maxNote    = 4 << 10 // bytes of a log line or a progress note
)

// write writes one record. text is what the module said.
func (l *moduleLog) write(
	level slog.Level, message string, c *terms.Call, text string, attrs ...any,
) {
	ctx := context.Background()
	if l == nil || !l.log.Enabled(ctx, level) {
		return
	}
	principal := ""
	if c != nil {
		principal = c.Principal.ID
		attrs = append(attrs, "tool", c.Tool.Name, "call", c.ID)
	}
	l.mu.Lock()
	if now := l.now(); now.Sub(l.began) >= time.Minute {
		l.began, l.n = now, map[string]int{}
	}
	if l.n[principal]++; l.n[principal] > maxRecords {
		l.dropped++
		l.mu.Unlock()
		return
	}
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	if dropped > 0 {
		attrs = append(attrs, "records_dropped", dropped)
	}
	if text != "" {
		attrs = append(attrs, "text", text)
	}
	l.log.Log(ctx, level, message, attrs...)
}

// cleanLines cleans text line by line, so that a trace stays readable.
func cleanLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for k, line := range lines {
		lines[k] = clean(strings.ReplaceAll(line, "\t", "    "), maxNote)
	}
	return strings.Join(lines, "\n")
}

var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// clean makes text of a module harmless to show, in one line of at most max bytes and a "…".
func clean(s string, max int) string {
	s = s[:min(len(s), 8*max)] // cleaning takes time
	return plaintext.Short(oneLine.Replace(plaintext.Clean(s)), max)
}

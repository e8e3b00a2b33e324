package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/store/postgres"
)

// slow is a round trip to the database that each call would feel.
const slow = 20 * time.Millisecond

// Shared examines the database that several hosts share, if there is one.
func Shared(ctx context.Context, c *config.Config) Findings {
	l := &local{c: c}
	if c.Store.URL == "" {
		return nil
	}
	fix := edit(c.File, 1) + "   # [store] url; see docs/scale.md"
	s, err := postgres.Open(postgres.Options{URL: c.Store.URL, Password: c.Store.Password})
	if !l.try("store", err, fix, "[store] url") {
		return l.Findings
	}
	defer s.Close()
	e, err := s.Examine(ctx)
	took := e.Took.Round(time.Microsecond)
	if !l.try("store", err, fix, "PostgreSQL %s at %s answers in %s; schema version %d", e.Server,
		e.At, took, e.Schema) {
		return l.Findings
	}
	if took > slow {
		l.found("store", Warn, fix, "a round trip takes %s, and each decision waits for one", took)
	}
	if !e.TLS && !s.Local() {
		l.found("store", Warn, fix, "what is sent to %s is not encrypted: set sslmode=verify-full",
			e.At)
	}
	l.frozen(e.Frozen, func(z freeze.Freeze) string {
		return "psql   # DELETE FROM caponier.freezes WHERE name = '" +
			strings.ReplaceAll(z.Name, "'", "''") + "'"
	})
	return l.Findings
}

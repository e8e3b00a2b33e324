package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/store"
)

// Host is one of those that share the store, as it was when it last said so.
type Host struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Revision string `json:"policy_revision"`
	Lock     string `json:"lock_checksum"`
	AgeMS    int64  `json:"age_ms"`  // since it said so
	SkewMS   int64  `json:"skew_ms"` // its clock ahead of the database's, to within a round trip
}

// Bounds of clocks against the database's. Beyond MaxSkew tokens of the store are refused: their
// ends are times of this machine's clock.
const (
	WarnSkew = time.Second
	MaxSkew  = 30 * time.Second
)

// Beat says that this host is there.
func (s *Store) Beat(ctx context.Context, h Host) error {
	return s.run(ctx, statement{what: "saying that this host is there", lazy: true,
		sql: "INSERT INTO caponier.hosts VALUES ($1, caponier.clock(null), $2::bigint - " +
			"caponier.clock(null), $3, $4, $5) ON CONFLICT (name) DO UPDATE SET seen = " +
			"excluded.seen, skew = excluded.skew, version = $3, revision = $4, lock = $5",
		args: []any{s.opt.Host, s.wall().UnixMilli(), h.Version, h.Revision, h.Lock}}, nil)
}

// Hosts lists the hosts of the last day.
func (s *Store) Hosts(ctx context.Context) ([]Host, error) {
	return rowsOf(ctx, s, statement{what: "listing hosts", sql: "SELECT name, version, revision, " +
		"lock, caponier.clock(null) - seen, skew FROM caponier.hosts WHERE seen > " +
		"caponier.clock(null) - 86400000 ORDER BY name"}, func(r store.Row) (h Host, err error) {
		err = r.Scan(&h.Name, &h.Version, &h.Revision, &h.Lock, &h.AgeMS, &h.SkewMS)
		return h, err
	})
}

// wall is what this machine takes for the time.
func (s *Store) wall() time.Time {
	if s.opt.Wall != nil {
		return s.opt.Wall()
	}
	return time.Now()
}

// clocks returns an error where this machine's clock is too far from the database's. A slow answer
// is no skew: the database's time lies between the two of the machine.
func (s *Store) clocks(before time.Time, ms int64) error {
	at, after := time.UnixMilli(ms), s.wall()
	off := max(before.Sub(at), at.Sub(after))
	if off <= MaxSkew || s.opt.Now != nil {
		return nil
	}
	return fmt.Errorf("the clock of this host is %s off that of the database, over %s, so that "+
		"tokens cannot be checked: set it (timedatectl)", off.Round(time.Second), MaxSkew)
}

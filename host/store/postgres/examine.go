package postgres

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/caponier-mcp/caponier/host/freeze"
)

// Examined is what Examine finds.
type Examined struct {
	At, Server string // the database without its password, and the version of its server
	Schema     int    // version of the tables, 0 before a host made them
	TLS        bool
	Took       time.Duration // a round trip
	Frozen     []freeze.Freeze
}

// Examine tells how the database is. It changes nothing.
func (s *Store) Examine(ctx context.Context) (e Examined, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	e.At = s.at
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return e, s.noted(ctx, err)
	}
	defer c.Release()
	_, e.TLS = c.Conn().PgConn().Conn().(*tls.Conn)
	began, made := time.Now(), false
	err = c.QueryRow(ctx, "SELECT current_setting('server_version'), "+
		"to_regclass('caponier.schema') IS NOT NULL").Scan(&e.Server, &made)
	if e.Took = time.Since(began); err != nil || !made {
		return e, s.noted(ctx, err)
	}
	err = c.QueryRow(ctx, "SELECT max(version) FROM caponier.schema").Scan(&e.Schema)
	if err == nil {
		err = readable(e.Schema)
	}
	if err != nil {
		return e, s.noted(ctx, err)
	}
	v, err := s.read(ctx, "")
	if err == nil {
		e.Frozen, err = v.freezes, v.broken
	}
	return e, err
}

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// KeepRound implements mcp.Rounds.
func (s *Store) KeepRound(ctx context.Context, name, caller string, sealed []byte, most, all int64,
	ttl time.Duration) (kept bool, err error) {
	err = s.run(ctx, statement{what: "keeping what a call asks", sql: "SELECT " +
		"caponier.keep_round($1::text, $2::text, $3::bytea, $4::bigint, $5::bigint, $6::bigint, " +
		"$7::bigint)", args: []any{name, caller, sealed, most, all, ttl.Milliseconds(), s.now()}},
		func(r pgx.Rows) error { return r.Scan(&kept) })
	return kept, err
}

// TakeRound implements mcp.Rounds: of several takers one gets it.
func (s *Store) TakeRound(ctx context.Context, name string) (sealed []byte, err error) {
	err = s.run(ctx, statement{what: "finding what a call asked", sql: "DELETE FROM " +
		"caponier.rounds WHERE name = $2 AND expires > caponier.clock($1::bigint) " +
		"RETURNING sealed", args: []any{s.now(), name}},
		func(r pgx.Rows) error { return r.Scan(&sealed) })
	return sealed, err
}

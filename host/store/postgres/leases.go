package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caponier-mcp/caponier/host/lease"
)

// TakeLease implements lease.Book.
func (s *Store) TakeLease(ctx context.Context, name, by string, ttl time.Duration) (fence int64,
	holder string, err error) {
	err = s.run(ctx, statement{what: "taking the lease of " + name,
		sql:  "SELECT * FROM caponier.take_lease($1::text, $2::text, $3::bigint, $4::bigint)",
		args: []any{name, by, ttl.Milliseconds(), s.now()}},
		func(r pgx.Rows) error { return r.Scan(&fence, &holder) })
	return fence, holder, err
}

// RenewLease implements lease.Book.
func (s *Store) RenewLease(ctx context.Context, name string, fence int64, ttl time.Duration) error {
	n, err := s.exec(ctx, "renewing the lease of "+name, "UPDATE caponier.leases SET expires = "+
		"caponier.clock($1::bigint) + $4::bigint WHERE name = $2 AND fence = $3 AND expires > "+
		"caponier.clock($1::bigint) RETURNING name", s.now(), name, fence, ttl.Milliseconds())
	if err == nil && n == 0 {
		err = lease.ErrLost
	}
	return err
}

// EndLease implements lease.Book. The row stays, with its fencing number.
func (s *Store) EndLease(ctx context.Context, name string, fence int64) error {
	_, err := s.exec(ctx, "ending the lease of "+name, "UPDATE caponier.leases SET expires = 0 "+
		"WHERE name = $1 AND fence = $2", name, fence)
	return err
}

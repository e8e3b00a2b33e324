package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/caponier-mcp/caponier/host/lease"
)

// TakeLease implements lease.Book. One that ends after more than its time was taken before the
// clock was set back.
func (s *Store) TakeLease(ctx context.Context, name, by string, ttl time.Duration) (fence int64,
	holder string, err error) {
	err = s.do(ctx, s.sure, "taking the lease of "+name, func(t tx) error {
		now := s.ms()
		err := t.row("INSERT INTO leases (name, holder, fence, expires) VALUES (?1, ?2, 1, "+
			"?3 + ?4) ON CONFLICT DO UPDATE SET holder = ?2, fence = fence + 1, expires = ?3 + ?4 "+
			"WHERE expires <= ?3 OR expires > ?3 + ?4 + 2000 RETURNING fence", name, by, now,
			ttl.Milliseconds()).Scan(&fence)
		if errors.Is(err, sql.ErrNoRows) {
			err = t.row("SELECT holder FROM leases WHERE name = ?", name).Scan(&holder)
		}
		return err
	})
	return fence, holder, err
}

// RenewLease implements lease.Book.
func (s *Store) RenewLease(ctx context.Context, name string, fence int64, ttl time.Duration) error {
	return s.do(ctx, s.sure, "renewing the lease of "+name, func(t tx) error {
		err := t.one("UPDATE leases SET expires = ?3 + ?4 WHERE name = ?1 AND fence = ?2 AND "+
			"expires > ?3", name, fence, s.ms(), ttl.Milliseconds())
		if errors.Is(err, ErrNone) {
			err = lease.ErrLost
		}
		return err
	})
}

// EndLease implements lease.Book. The row stays, with its fencing number.
func (s *Store) EndLease(ctx context.Context, name string, fence int64) error {
	return s.do(ctx, s.quick, "ending the lease of "+name, func(t tx) error {
		return t.exec("UPDATE leases SET expires = 0 WHERE name = ? AND fence = ?", name, fence)
	})
}

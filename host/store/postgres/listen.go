package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const listenAgain = 5 * time.Second

var errPooled = errors.New("a pooler gives each transaction another connection")

// Listen makes readers read again as soon as another host changed something, until ctx ends. It
// only hastens what decides nothing; decisions ask.
func (s *Store) Listen(ctx context.Context) {
	for {
		err := s.heard(ctx)
		if errors.Is(err, errPooled) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenAgain):
		}
	}
}

// heard waits for notifications on a connection of its own.
func (s *Store) heard(ctx context.Context) error {
	c, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.Timeout)
		defer cancel()
		_ = c.Close(ctx)
	}()
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	if pid != c.PgConn().PID() { // which a pooler makes up
		return errPooled
	}
	if _, err := c.Exec(ctx, "LISTEN caponier"); err != nil {
		return err
	}
	for {
		s.forget() // what came before
		if _, err := c.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

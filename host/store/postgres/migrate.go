package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

// changes bring the tables from each version to the next. What was released is not changed.
var changes = []string{schema}

// migrate brings the tables up to date, one host at a time. It refuses those of a newer program.
func (s *Store) migrate(ctx context.Context) (err error) {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	t, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Rollback(context.WithoutCancel(ctx)))
		}
	}()
	do := func(sql string) error {
		_, err := t.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	ms := s.opt.Timeout.Milliseconds()
	err = do(fmt.Sprintf("SET LOCAL statement_timeout = %d; SET LOCAL "+
		"idle_in_transaction_session_timeout = %d; SET LOCAL client_min_messages = warning; "+
		"SELECT pg_advisory_xact_lock(7236839420761); "+
		"CREATE SCHEMA IF NOT EXISTS caponier; "+
		"CREATE TABLE IF NOT EXISTS caponier.schema (version bigint NOT NULL);", ms, ms))
	if err != nil {
		return err
	}
	var have int
	err = t.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM caponier.schema").Scan(&have)
	if err != nil {
		return err
	}
	if have > len(changes) {
		return fmt.Errorf("it has the schema version %d, this program reads %d: upgrade this host",
			have, len(changes))
	}
	for i := have; i < len(changes); i++ {
		err := do(changes[i] + fmt.Sprintf("INSERT INTO caponier.schema VALUES (%d);", i+1))
		if err != nil {
			return err
		}
	}
	return t.Commit(ctx)
}

package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schema string

//go:embed second.sql
var second string

//go:embed third.sql
var third string

// changes bring the tables from each version to the next. What was released is not changed.
var changes = []string{schema, second, third}

// newerError is the version of tables that a newer program made.
type newerError int

func (v newerError) Error() string {
	return fmt.Sprintf("it has the schema version %d, this program reads %d: upgrade this host",
		int(v), len(changes))
}

func readable(version int) error {
	if version > len(changes) {
		return newerError(version)
	}
	return nil
}

// migrate brings the tables up to date, one host at a time. It refuses those of a newer program.
func migrate(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration) (err error) {
	c, err := pool.Acquire(ctx)
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
	ms := timeout.Milliseconds()
	err = do(fmt.Sprintf("SET LOCAL statement_timeout = %d; SET LOCAL "+
		"idle_in_transaction_session_timeout = %d; SET LOCAL client_min_messages = warning; "+
		"SELECT pg_advisory_xact_lock(7236839420761); CREATE SCHEMA IF NOT EXISTS caponier; "+
		"CREATE TABLE IF NOT EXISTS caponier.schema (version bigint NOT NULL);", ms, ms))
	if err != nil {
		return err
	}
	var have int
	err = t.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM caponier.schema").Scan(&have)
	if err != nil {
		return err
	}
	if err := readable(have); err != nil {
		return err
	}
	for i := have; i < len(changes); i++ {
		// another stamp makes hosts that run look at the version
		err := do(changes[i] + fmt.Sprintf("INSERT INTO caponier.schema VALUES (%d); "+
			"UPDATE caponier.changes SET stamp = gen_random_uuid();", i+1))
		if err != nil {
			return err
		}
	}
	return t.Commit(ctx)
}

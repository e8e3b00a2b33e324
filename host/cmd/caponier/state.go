package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/undo"
)

// shared is what the hosts of a site agree on. It is embedded, or a database of several hosts.
type shared interface {
	terms.Ledger
	egress.Ledger
	approval.Store
	blob.Index
	undo.Book
	lease.Book
	Usage(ctx context.Context) (store.Usage, error)
	Ready(ctx context.Context) error
	Close() error
}

// state is the store of a host: what is shared, and what only this machine can tell.
type state struct {
	shared
	stages *store.Store // of processes of this machine
	pg     *postgres.Store
	host   string // the name of this machine
}

func openStore(c *config.Config) (s state, err error) {
	if s.stages, err = store.Open(c.Store); err != nil {
		return s, err
	}
	s.shared = s.stages
	if s.host, err = os.Hostname(); err != nil {
		return s, errors.Join(err, s.stages.Close())
	}
	if c.Store.URL != "" {
		if s.pg, err = openShared(c); err != nil {
			return s, usage(errors.Join(err, s.stages.Close()))
		}
		s.shared = s.pg
	}
	return s, nil
}

func openShared(c *config.Config) (*postgres.Store, error) {
	dir, err := filepath.Abs(c.Store.Dir)
	name, err2 := os.Hostname()
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	return postgres.Open(postgres.Options{URL: c.Store.URL, Password: c.Store.Password,
		Host: name + ":" + dir})
}

func (s state) Close() error {
	err := s.shared.Close()
	if s.pg != nil {
		err = errors.Join(err, s.stages.Close())
	}
	return err
}

func (s state) Ready(ctx context.Context) error {
	err := s.stages.Ready(ctx)
	if s.pg != nil {
		err = errors.Join(err, s.pg.Ready(ctx))
	}
	return err
}

// freezes returns the list of what is frozen.
func (s state) freezes(c *config.Config) freeze.List {
	if s.pg == nil {
		return freeze.In(c.Store.Dir)
	}
	return freeze.In(c.Store.Dir).With(s.pg)
}

// kept returns where tokens of several hosts are kept.
func (s state) kept() identity.Kept {
	if s.pg == nil {
		return nil
	}
	return s.pg
}

// withShared runs do with the state of a command that needs no more than what hosts share. Without
// a database nothing is opened.
func withShared(c *config.Config, do func(state) error) (err error) {
	var s state
	if c.Store.URL != "" {
		if s.pg, err = openShared(c); err != nil {
			return usage(err)
		}
		defer s.pg.Close()
	}
	return do(s)
}

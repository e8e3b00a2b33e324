package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/user"
	"path/filepath"
	"sync"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/store"
)

func asks(c *config.Config, s *store.Store, j gate.Journal) (*approval.Approvals, error) {
	o := c.Approval
	o.Journal, o.Users = j, mcp.Asker{}
	o.KeyFile = filepath.Join(c.Store.Dir, "approval.key")
	return approval.New(o, s)
}

// serveApprovals serves the page in the background when the configuration says where.
func (h *host) serveApprovals(ctx context.Context) error {
	if h.cfg.Approval.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.cfg.Approval.Listen)
	if err != nil {
		return fmt.Errorf("serving the approvals page ([approval] listen): %w", err)
	}
	h.background(ctx, func(ctx context.Context) {
		if err := h.asks.Serve(ctx, l); err != nil {
			slog.Error("the approvals page ended; `caponier approvals` still works", "error", err)
		}
	})
	slog.Info("serving the approvals page", "address", l.Addr().String(), "sign in with",
		"caponier approvals link")
	return nil
}

// approver is what a person at a terminal needs to decide: no nodes, and a journal only when there
// is something to write.
type approver struct {
	*approval.Approvals
	who     string
	store   *store.Store
	journal *lazyJournal
	cfg     *config.Config
}

func (d *approver) Close() {
	d.Approvals.Close()
	_ = errors.Join(d.store.Close(),
		d.journal.Close())
}

// lazyJournal begins its file at the first record: looking leaves none.
type lazyJournal struct {
	opt audit.Options
	mu  sync.Mutex // guards j
	j   *audit.Journal
}

func (l *lazyJournal) open() (j *audit.Journal, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.j == nil {
		l.j, err = audit.Open(l.opt)
	}
	return l.j, err
}

func (l *lazyJournal) Intent(ctx context.Context, r gate.Record, durable bool) error {
	j, err := l.open()
	if err != nil {
		return err
	}
	return j.Intent(ctx, r, durable)
}

func (l *lazyJournal) Outcome(ctx context.Context, r gate.Record) error {
	j, err := l.open()
	if err != nil {
		return err
	}
	return j.Outcome(ctx, r)
}

func (l *lazyJournal) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.j == nil {
		return nil
	}
	return l.j.Close()
}

// approver opens the approvals for the named approver, or for the account that runs this.
func (g *global) approver(as string, log *slog.Logger) (*approver, error) {
	c, err := g.load()
	if err != nil {
		return nil, err
	}
	if as == "" {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("whose account is this? %w; say it with --as NAME", err)
		}
		as = u.Username
	} else if len(c.Approval.Approvers) == 0 {
		return nil, fmt.Errorf("%s: --as %s: approvers in [approval] is empty, so only the "+
			"account that runs this may approve; list the names there", c.File, as)
	}
	s, err := store.Open(c.Store)
	if err != nil {
		return nil, failed(err)
	}
	c.Approval.Log = log
	j := &lazyJournal{opt: c.Audit}
	a, err := asks(c, s, j)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &approver{a, as, s, j, c}, nil
}

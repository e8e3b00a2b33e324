package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/console"
	"github.com/caponier-mcp/caponier/host/plan"
	"github.com/caponier-mcp/caponier/host/terms"
)

const indexEvery = time.Second // looks at the journal for more

// watchroom is the console of this process. The zero value says that there is none.
type watchroom struct {
	panels
	pages atomic.Pointer[console.Console]
}

// serve is Console of approval.Options.
func (r *watchroom) serve(w http.ResponseWriter, req *http.Request, who string,
	token func(path string) string) {
	c := r.pages.Load()
	if c == nil {
		http.Error(w, "there is no console: set console in [approval]", http.StatusNotFound)
		return
	}
	c.Serve(w, req, console.Visit{Who: who, Token: token})
}

// open opens the console, if the configuration has viewers, and follows the journal until ctx ends.
func (r *watchroom) open(ctx context.Context, c *config.Config, s state,
	background func(context.Context, func(context.Context))) (err error) {
	if len(c.Approval.Viewers) == 0 {
		return nil
	}
	r.cfg, r.store = c, s
	if r.index, err = index.Open(ctx, indexDir(c), c.Audit.Dir); err != nil {
		return err
	}
	r.pages.Store(console.New(console.Options{Viewers: c.Approval.Viewers,
		Freezers: c.Approval.Freezers, Index: r.index, Plan: planned, Explain: r.explain,
		Frozen: r.frozen, Freeze: r.freeze, Panels: []console.Panel{
			{Name: "nodes", Title: "Nodes", Load: r.nodes},
			{Name: "plugins", Title: "Plugins", Load: r.locked},
			{Name: "policy", Title: "Policy", Load: r.policy},
			{Name: "budgets", Title: "Budgets", Load: r.budgets},
		}}))
	background(ctx, func(ctx context.Context) {
		defer r.index.Close()
		for again := time.NewTicker(indexEvery); ; {
			if err := r.index.Update(ctx, nil); err != nil && ctx.Err() == nil {
				slog.Error("the console does not show the newest calls", "error", err)
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				again.Stop()
				return
			}
		}
	})
	return nil
}

// planned tells what a call planned, "" for one without a plan.
func planned(call string, records []terms.Record) (string, error) {
	has := func(r terms.Record) bool { return r.Plan != "" }
	if !slices.ContainsFunc(records, has) {
		return "", nil
	}
	s, _, err := plan.Show(call, slices.Values(records))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = s.Text(&b)
	return b.String(), err
}

func (r *watchroom) explain(ctx context.Context, rec terms.Record) (string, error) {
	x, err := explained(ctx, r.cfg, rec)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	x.Print(&b, rec)
	return b.String(), nil
}

func (r *watchroom) frozen(ctx context.Context) (t console.Table, err error) {
	all, err := r.store.freezes(r.cfg).All(ctx)
	t = console.Table{Caption: "What is frozen", Head: []string{"What", "By", "Since", "Reason"}}
	for _, z := range all {
		t.Rows = append(t.Rows, []string{z.String(), z.By, z.Since.Format(time.RFC3339), z.Reason})
	}
	return t, err
}

// freeze is `caponier freeze` of somebody who is signed in.
func (r *watchroom) freeze(by, kind, name, reason string) error {
	s := scope{}
	for is, to := range map[string]*string{"principal": &s.principal, "node": &s.node,
		"tool": &s.tool, "all": new(string)} {
		if is == kind {
			*to = name
		}
	}
	z, err := s.in(r.cfg)
	if err == nil && z.Kind != kind {
		err = fmt.Errorf("%q is nothing that can be frozen", kind)
	}
	if err != nil {
		return err
	}
	slog.Warn("a freeze on the console", "what", z.String(), "by", by, "reason", reason)
	return addFreeze(r.store.freezes(r.cfg), z, by+" on the console", reason)
}

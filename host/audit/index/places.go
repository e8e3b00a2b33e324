package index

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/caponier-mcp/caponier/host/audit"
)

const (
	never = 1 << 62 // stands for the end of a call that has none
	// mostPlaces is more than a call has: 10,000 operations, each decided and ended
	mostPlaces = 30_000
)

type asks interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each scans every row of a query into the same variables, and calls do with each.
func each(ctx context.Context, db asks, into []any, do func(), query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		do()
	}
	return errors.Join(rows.Err(), rows.Close())
}

// places returns where the records of a call are.
func (x *Index) places(ctx context.Context, db asks, call int64) (all []audit.Place, err error) {
	var p audit.Place
	err = each(ctx, db, []any{&p.File, &p.At, &p.Size}, func() { all = append(all, p) },
		"SELECT f.name, p.at, p.size FROM place p JOIN file f ON f.id = p.file WHERE p.call = ? "+
			"ORDER BY p.n LIMIT ?", call, mostPlaces)
	return all, err
}

// The kinds of what can be asked of a call, each with a value behind it.
const (
	every   = "every"
	who     = "who:"
	tool    = "tool:"
	guest   = "guest:"
	node    = "node:"
	outcome = "outcome:"
	rule    = "rule:"
)

// facets are what can be asked of a call, as audit.Query.Wants compares it.
func facets(f audit.Found) []string {
	all := []string{every, who + f.Principal, tool + f.Tool, outcome + f.Outcome}
	for _, g := range f.Guests {
		all = append(all, guest+g.VMID, guest+g.Name)
	}
	for _, n := range f.Nodes {
		all = append(all, node+n)
	}
	for _, r := range f.Rules {
		all = append(all, rule+r)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	// most bounds what one Find looks at: rows of the index, and records of the journal.
	mostRows    = 20_000
	mostRecords = 4_000
	// longest is more than a call lasts, as audit.Query has it
	longest = 24 * time.Hour
)

// Mark is where a page of calls ends. The zero value is before the newest call.
type Mark struct{ Ended, Call int64 }

// Page is a part of what a query finds, the newest call first: those without an end come before.
type Page struct {
	Calls []audit.Found
	// where the next page begins, if More is set
	Next Mark
	// there may be older calls that fit; a page may end before it is full, so that each is quick
	More bool
	Lost int // hits that the journal does not have, or not so
}

// Find returns at most n calls that a query wants, after a mark. Each is what the records of the
// journal say; Limit of the query counts for nothing.
func (x *Index) Find(ctx context.Context, q audit.Query, after Mark, n int) (p Page, err error) {
	terms, possible, err := x.terms(ctx, q)
	if err != nil || !possible {
		return p, err
	}
	if after == (Mark{}) {
		after = Mark{never + 1, 0}
	}
	lowest := int64(0)
	if !q.Since.IsZero() {
		lowest = q.Since.Add(-longest).UnixNano()
	}
	records := 0
	for {
		unended := after.Ended > never || after.Ended == never && after.Call > 0
		floor := lowest
		if unended {
			floor = never
		} else if newest := q.Until.Add(longest); !q.Until.IsZero() &&
			after.Ended > newest.UnixNano() {
			after = Mark{newest.UnixNano(), 0}
		}
		hits, next, more, err := x.hits(ctx, q, terms, after, floor, n-len(p.Calls))
		if err != nil {
			return p, fmt.Errorf("asking the index of the journal: %w", err)
		}
		for _, h := range hits {
			f, rs, err := x.read(ctx, h.Call)
			switch p.Next = h; {
			case ctx.Err() != nil:
				return p, ctx.Err()
			case err != nil || f == nil:
				p.Lost++
			case q.Wants(*f):
				p.Calls = append(p.Calls, *f)
			}
			if records += len(rs); records > mostRecords {
				p.More = true
				return p, nil
			}
		}
		if more {
			p.Next, p.More = next, true
		}
		if more || !unended {
			return p, nil
		}
		after = Mark{never, 0}
	}
}

// term is a condition: one of these facets.
type term struct {
	ids   []string
	calls int64
}

// terms returns the conditions of a query, the rarest first. It is impossible if the index has no
// call for one of them.
func (x *Index) terms(ctx context.Context, q audit.Query) (all []term, possible bool, err error) {
	prefix, many := strings.CutSuffix(q.Tool, "*")
	for kind, value := range map[string]string{who: q.Who, guest: q.Guest, node: q.Node,
		outcome: q.Outcome, rule: q.Rule, tool: q.Tool, every: ""} {
		if value == "" && kind != every {
			continue
		}
		where, arg := "value = ?", kind+value
		if kind == tool && many {
			where, arg = "substr(value, 1, length(?1)) = ?1", kind+prefix
		}
		var t term
		var id, calls int64
		err := each(ctx, x.db, []any{&id, &calls}, func() {
			t.ids, t.calls = append(t.ids, fmt.Sprint(id)), t.calls+calls
		}, "SELECT id, calls FROM facet WHERE "+where, arg)
		if err != nil || len(t.ids) == 0 {
			return nil, false, err
		}
		if kind != every || len(all) == 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b term) int {
		return compare(len(a.ids), len(b.ids), a.calls, b.calls)
	})
	if len(all[0].ids) > 1 { // the first one drives: calls come in one order from one facet alone
		one, _, err := x.terms(ctx, audit.Query{})
		return append(one, all...), true, err
	}
	return all, true, nil
}

// compare puts a term of one facet first, and then the one with fewer calls.
func compare(a, b int, fewer, more int64) int {
	switch {
	case (a > 1) != (b > 1):
		return a - b
	case fewer < more:
		return -1
	}
	return 1
}

// hits returns calls of which the index says that they fit, from after a mark down to a floor. If
// it stopped before the floor, more is set, and next is where.
func (x *Index) hits(ctx context.Context, q audit.Query, terms []term, after Mark, floor int64,
	n int) (all []Mark, next Mark, more bool, err error) {
	inner := "SELECT ended, call, came FROM tag WHERE facet = " + terms[0].ids[0] +
		" AND (ended, call) < (?1, ?2) AND ended >= ?3 ORDER BY ended DESC, call DESC LIMIT ?4"
	text := "SELECT t.ended, t.call FROM (" + inner + ") t WHERE t.came >= ?5 AND t.came < ?6"
	for _, more := range terms[1:] {
		text += " AND EXISTS (SELECT 1 FROM tag u WHERE u.facet IN (" +
			strings.Join(more.ids, ", ") + ") AND u.ended = t.ended AND u.call = t.call)"
	}
	since, until := int64(math.MinInt64), int64(never)
	if !q.Since.IsZero() {
		since = q.Since.UnixNano()
	}
	if !q.Until.IsZero() {
		until = q.Until.UnixNano()
	}
	args := []any{after.Ended, after.Call, floor, mostRows}
	var h Mark
	err = each(ctx, x.db, []any{&h.Ended, &h.Call}, func() { all = append(all, h) },
		text+" ORDER BY t.ended DESC, t.call DESC LIMIT ?7",
		append(slices.Clone(args), since, until, n)...)
	if err != nil {
		return nil, next, false, err
	}
	if len(all) == n {
		return all, all[n-1], true, nil
	}
	err = x.db.QueryRowContext(ctx, "SELECT ended, call FROM ("+inner+") LIMIT 1 OFFSET ?5",
		append(args, mostRows-1)...).Scan(&next.Ended, &next.Call)
	if errors.Is(err, sql.ErrNoRows) {
		return all, next, false, nil
	}
	return all, next, true, err
}

// read reads the records of a call from the journal, and what they say in short.
func (x *Index) read(ctx context.Context, call int64) (*audit.Found, []terms.Record, error) {
	var name string
	err := x.db.QueryRowContext(ctx, "SELECT name FROM call WHERE id = ?", call).Scan(&name)
	if err != nil {
		return nil, nil, err
	}
	places, err := x.places(ctx, x.db, call)
	if err != nil {
		return nil, nil, err
	}
	var rs []terms.Record
	var found *audit.Found
	calls := audit.Unended{}
	for _, p := range places {
		e, err := audit.EntryAt(x.journal, p)
		if err != nil {
			return nil, rs, err
		}
		if !e.OfCall() || e.Record.CallID != name || len(rs) > 0 && len(calls) == 0 {
			return nil, rs, fmt.Errorf("%w: the record is not of the call %s", audit.ErrMoved, name)
		}
		rs = append(rs, *e.Record)
		found, _ = calls.Add(*e.Record)
	}
	return found, rs, nil
}

// Call returns a call with its records. It reports false for one that the index does not have, or
// the journal not so.
func (x *Index) Call(ctx context.Context, name string) (f audit.Found, rs []terms.Record, ok bool,
	err error) {
	var ids []int64
	var one int64
	err = each(ctx, x.db, []any{&one}, func() { ids = append(ids, one) },
		"SELECT id FROM call WHERE name = ? ORDER BY id LIMIT 10", name)
	if err != nil {
		return f, nil, false, err
	}
	for _, id := range ids {
		found, part, err := x.read(ctx, id)
		if err == nil && found != nil && found.Call == name {
			f, rs, ok = *found, append(rs, part...), true
		}
	}
	return f, rs, ok, ctx.Err()
}

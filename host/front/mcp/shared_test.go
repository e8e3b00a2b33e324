package mcp

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// hosts are the rounds of several hosts.
type hosts struct {
	rows map[string][]byte
	full bool
	err  error
}

func (h *hosts) KeepRound(_ context.Context, name, _ string, sealed []byte, _, _ int64,
	_ time.Duration) (bool, error) {
	if h.err == nil && !h.full {
		h.rows[name] = sealed
	}
	return !h.full, h.err
}

func (h *hosts) TakeRound(_ context.Context, name string) ([]byte, error) {
	sealed := h.rows[name]
	if h.err == nil {
		delete(h.rows, name)
	}
	return sealed, h.err
}

// What one host asked another one can go on with: once, for the same call of the same caller. Who
// has the rows can read none of them, and a changed one is as one that was never given.
func TestARoundOfOneHostIsTakenOnAnother(t *testing.T) {
	all := &hosts{rows: map[string][]byte{}}
	a, b := newServer(t, helloDoor(), nil), newServer(t, helloDoor(), nil)
	a.opts.Rounds, b.opts.Rounds = all, all
	anna := Caller{Principal: terms.Principal{ID: "anna", Auth: "token"}}
	hello, args := tool("hello", terms.Hints{}), []byte(`{"secret":1}`)
	u := must(a.user(t.Context(), canAsk{}, anna, hello, args, "", nil))
	u.answers["before"] = said{"accept", map[string]any{"name": "hidden"}}
	next := u.call
	next.Asked, next.Answers = []string{"k"}, []byte(`{"before":{"action":"accept"}}`)
	keep := func() string { return must(a.kept(t.Context(), next)) }
	take := func(who Caller, args []byte, state string) error {
		u, err := b.user(t.Context(), canAsk{}, who, hello, args, state,
			mcp.InputResponseMap{"k": &mcp.ElicitResult{Action: "decline"}})
		if err == nil && (u.answers["k"].Action != "decline" ||
			u.answers["before"].Action != "accept" || u.call.Number != 2) {
			t.Errorf("it goes on with %+v in round %d", u.answers, u.call.Number)
		}
		return err
	}
	state := keep()
	for name, row := range all.rows {
		if bytes.Contains(row, []byte("anna")) || bytes.Contains(row, []byte("before")) ||
			strings.Contains(name, state) || bytes.Contains(row, []byte(state)) {
			t.Errorf("the row %s can be read: %q", name, row)
		}
	}
	if err := take(anna, args, state); err != nil {
		t.Errorf("on another host: %v", err)
	}
	other := Caller{Principal: terms.Principal{ID: "bert", Auth: "token"}}
	flip := func() { // somebody with the database changes the row
		for _, row := range all.rows {
			row[0]++
		}
	}
	swap := func() { // or puts one under the name of another
		names := slices.Collect(maps.Keys(all.rows))
		if keep(); len(names) == 1 {
			for name, row := range all.rows {
				if name != names[0] {
					all.rows[names[0]] = row
				}
			}
		}
	}
	for name, c := range map[string]struct {
		who    Caller
		args   []byte
		before func()
	}{"a second time": {anna, args, func() { clear(all.rows) }}, "of another caller": {other, args,
		func() {}}, "with other arguments": {anna, []byte(`{}`), func() {}},
		"changed": {anna, args, flip}, "of another row": {anna, args, swap}} {
		clear(all.rows)
		state := keep()
		c.before()
		if err := take(c.who, c.args, state); err != errState {
			t.Errorf("%s: %v, want %v", name, err, errState)
		}
	}
	all.full = true
	if _, err := a.kept(t.Context(), next); err == nil ||
		!strings.Contains(err.Error(), "too many") {
		t.Errorf("without room: %v", err)
	}
	all.full, all.err = false, errors.New("the store at db1 cannot be reached")
	_, err := a.kept(t.Context(), next)
	if err != errUnkept || take(anna, args, state) != errUnkept {
		t.Errorf("without the store: %v", err)
	}
}

package audit

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Tail prints the last calls, oldest first, and with follow goes on until ctx ends. It warns of bad
// lines of the journal, and fails at the end if there was one.
func Tail(ctx context.Context, w, warnings io.Writer, u Union, last int,
	follow, asJSON bool) error {
	var order []string // of calls, as they begin
	old := map[string]bool{}
	quiet := BadLines{W: io.Discard}
	for r := range quiet.Records(u.Records()) {
		if _, known := old[r.CallID]; !known {
			old[r.CallID] = false
			order = append(order, r.CallID)
		}
	}
	for _, id := range order[:max(0, len(order)-last)] {
		old[id] = true
	}
	source := u.Records()
	if follow {
		source = u.follow(ctx)
	}
	bad := BadLines{W: warnings}
	wanted := func(yield func(told) bool) {
		for r := range bad.told(source) {
			if !old[r.call()] && !yield(r) {
				return
			}
		}
	}
	if !asJSON {
		if err := printTree(w, wanted); err != nil {
			return err
		}
		return bad.Err()
	}
	for r := range wanted {
		if err := plaintext.JSON(w, r); err != nil {
			return err
		}
	}
	return bad.Err()
}

// BadLines warns of lines of a journal that cannot be read, and counts them.
type BadLines struct {
	W io.Writer
	n int
}

// Records yields the records among the entries, and warns of lines that are no entries, the first
// time that they are read.
func (b *BadLines) Records(entries iter.Seq2[Entry, error]) iter.Seq[terms.Record] {
	all := b.told(entries)
	return func(yield func(terms.Record) bool) {
		for r := range all {
			if r.Record != nil && !yield(*r.Record) {
				return
			}
		}
	}
}

func (b *BadLines) told(entries iter.Seq2[Entry, error]) iter.Seq[told] {
	again := false
	return func(yield func(told) bool) {
		known := again
		again = true
		for e, err := range entries {
			if err == nil {
				of := e.Record != nil || e.Shadow != nil
				if of && !yield(told{e.Host, e.Record, e.Shadow}) {
					return
				}
			} else if !known {
				b.Note(err)
			}
		}
	}
}

// Note warns of one line that is no entry.
func (b *BadLines) Note(err error) {
	const most = 20
	switch b.n++; {
	case b.n <= most:
		fmt.Fprintln(b.W, "warning:", err)
	case b.n == most+1:
		fmt.Fprintln(b.W, "warning: more lines are bad; `caponier audit verify` names the first "+
			"of each file")
	}
}

// Err is an error if there was one: what was shown may be incomplete.
func (b *BadLines) Err() error {
	if b.n == 0 {
		return nil
	}
	return fmt.Errorf("%d lines of the journal cannot be read, so the output may be incomplete; "+
		"run `caponier audit verify`", b.n)
}

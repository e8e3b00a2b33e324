package main

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

func auditQuery(g *global, from *[]string) *cobra.Command {
	var q audit.Query
	var since, until string
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Find calls in the journal: who did what to which guest, and how it ended",
		Args:  cobra.NoArgs,
		Example: "  caponier audit query --who agent-a --since 7d\n  caponier audit query " +
			"--guest 105 --outcome refused\n  caponier audit query --rule protected --json",
		RunE: g.journals(from, func(v *verb, u audit.Union) (err error) {
			now := time.Now()
			if q.Since, err = audit.Moment(since, now); err == nil {
				q.Until, err = audit.Moment(until, now)
			}
			if err == nil && q.Outcome != "" && !slices.Contains(audit.Outcomes, q.Outcome) {
				err = fmt.Errorf("--outcome %s: want one of %s", q.Outcome,
					strings.Join(audit.Outcomes, ", "))
			}
			if err != nil {
				return usage(err)
			}
			return v.found(u.Calls(q), q.Limit)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&q.Who, "who", "", "calls of this `PRINCIPAL`")
	f.StringVar(&q.Tool, "tool", "", "calls of this `TOOL`; with * at the end, of all that "+
		"begin so")
	f.StringVar(&q.Guest, "guest", "", "calls on this `GUEST`, by number, or by name where the "+
		"journal has it")
	f.StringVar(&q.Node, "node", "", "calls on this `NODE`")
	f.StringVar(&q.Outcome, "outcome", "", "calls that ended so: `OUTCOME` is one of "+
		strings.Join(audit.Outcomes, ", "))
	f.StringVar(&q.Rule, "rule", "", "calls that this check or rule refused, or one of their "+
		"operations: `ID`")
	f.StringVar(&since, "since", "", "calls from this `TIME` on: 30m, 24h, 7d, 2026-11-23, or "+
		"2026-11-23T10:00:00Z (UTC)")
	f.StringVar(&until, "until", "", "calls before this `TIME`")
	f.IntVar(&q.Limit, "limit", 100, "the newest `NUMBER` of calls; 0 for all")
	return cmd
}

// found prints calls as they come: a line each, or with --json an object on each line.
func (v *verb) found(calls iter.Seq2[audit.Found, error], limit int) error {
	n := 0
	bad := audit.BadLines{W: v.say}
	for f, err := range calls {
		if err != nil {
			bad.Note(err)
			continue
		}
		n++
		if v.json {
			err = plaintext.JSON(v.out, f)
		} else {
			err = printFound(v.out, f)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case n == 0:
		fmt.Fprintln(v.say, "no call of the journal fits")
	case n == limit:
		fmt.Fprintf(v.say, "the newest %d; --limit 0 shows all\n", n)
	}
	return bad.Err()
}

func printFound(w io.Writer, f audit.Found) error {
	var on []string
	for _, g := range f.Guests {
		on = append(on, g.String())
	}
	place := strings.Join(on, ", ")
	if len(f.Nodes) > 0 {
		place = strings.TrimSpace(place + " on " + strings.Join(f.Nodes, ", "))
	}
	how := f.Outcome
	if f.Outcome == "none" {
		how = "no outcome"
	}
	at := f.Time.UTC().Format(time.DateTime)
	if f.Host != "" {
		at += "  " + plaintext.Show(f.Host)
	}
	_, err := fmt.Fprintf(w, "%s  %-10s  %s  %s  %s  %s  %s\n",
		at, plaintext.Show(f.Principal), plaintext.Show(f.Tool),
		plaintext.Show(cmp.Or(place, "-")), cmp.Or(f.Tier, "-"), strings.TrimSpace(how+" "+
			plaintext.Show(f.Code)), f.Call)
	for _, r := range f.Refused {
		what := "refused"
		if r.Op != "" && f.Outcome != string(terms.Refusal) {
			what = r.Op + " refused"
		}
		for _, d := range r.Reasons {
			_, err = fmt.Fprintf(w, "    %s: %s: %s (caponier policy explain %s)\n", what,
				plaintext.Show(d.ID), plaintext.Show(plaintext.Short(d.Msg, 400)), r.Decision)
		}
	}
	return err
}

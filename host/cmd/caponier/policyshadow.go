package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/shadow"
	"github.com/spf13/cobra"
)

// candidate returns the candidate's folder: that of the command line, or of the configuration.
func (v *verb) candidate(c *config.Config) (string, error) {
	if len(v.args) == 1 {
		return v.args[0], nil
	}
	if c.Policy.Shadow == "" {
		return "", usage(errors.New("name the candidate's folder, or set policy.shadow in the " +
			"configuration"))
	}
	return c.Policy.Shadow, nil
}

func policyShadow(g *global) *cobra.Command {
	since := time.Duration(0)
	cmd := &cobra.Command{
		Use: "shadow [DIR]",
		Short: "Report what the candidate of policy.shadow would have changed, as servers asked " +
			"it (exit 3, 6 and 7 as replay has them)",
		Args: cobra.MaximumNArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			dir, err := v.candidate(c)
			if err != nil {
				return err
			}
			now, err := load.FromFolder(v.ctx, dir, g.inventory())
			if err != nil {
				return err
			}
			r, err := shadow.Read(shadowDir(c), now.Rules.Revision, ago(since))
			if err != nil {
				return err
			}
			code := changeCode(r.Counts[replay.NewlyAllowed], r.Counts[replay.NewlyRefused])
			return v.verdict(code != exitDone, code, r, func(w io.Writer) { printShadow(w, r) })
		}),
	}
	cmd.Flags().DurationVar(&since, "since", 0, "only what was decided within this time")
	return cmd
}

func printShadow(w io.Writer, r shadow.Report) {
	for _, g := range r.Groups {
		fmt.Fprintf(w, "%s, %d times, the last at %s: %s of %s, by %s\n", g.Change, g.Times,
			g.Last.Format(time.RFC3339), plaintext.Show(g.Tool), plaintext.Show(g.Principal),
			plaintext.Show(strings.Join(g.Rules, ", ")))
		for _, x := range g.Examples {
			fmt.Fprintf(w, "    %s on %s: %s\n", x.DecisionID, plaintext.Show(x.On),
				plaintext.Show(x.Says))
		}
	}
	if r.Lost > 0 {
		fmt.Fprintf(w, "%d lines of what servers noted cannot be read\n", r.Lost)
	}
	fmt.Fprintf(w, "%d the same, %d newly allowed, %d newly refused, %d refused for other "+
		"reasons; %d skipped, %d dropped; candidate %s\n", r.Counts[replay.Same],
		r.Counts[replay.NewlyAllowed], r.Counts[replay.NewlyRefused],
		r.Counts[replay.OtherReasons], r.Counts[shadow.Skipped], r.Counts[shadow.Dropped],
		r.Candidate)
}

// promotion is what promote found.
type promotion struct {
	Candidate string        `json:"candidate"`
	Promoted  bool          `json:"promoted"`
	Replay    replay.Diff   `json:"replay"`
	Shadow    shadow.Report `json:"shadow"`
}

func policyPromote(g *global) *cobra.Command {
	since, accept, revert := time.Duration(0), false, false
	cmd := &cobra.Command{
		Use: "promote [DIR]",
		Short: "Put the candidate of policy.shadow in the place of the site, once its tests pass " +
			"and neither journal nor shadow show a change",
		Long: "promote copies the candidate, runs its tests as check does, decides the journal " +
			"again with\nit, and reads what servers noted of it. A change that it finds, and a " +
			"candidate that no server\nhas asked, end it (exit 3, 6 and 7 as replay has them, 1 " +
			"for the latter) unless --accept is\ngiven. The copy takes the site's place at " +
			"once, and running servers follow. The site before is\nkept beside it, and --revert " +
			"exchanges the two.",
		Args: cobra.MaximumNArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			if revert {
				if err := shadow.Revert(c.Policy.Site); err != nil {
					return err
				}
				fmt.Fprintf(v.say, "caponier: %s is what it was before; the other is in %s\n",
					c.Policy.Site, shadow.Former(c.Policy.Site))
				return nil
			}
			dir, err := v.candidate(c)
			if err != nil {
				return err
			}
			return v.promote(c, dir, since, accept)
		}),
	}
	f := cmd.Flags()
	f.DurationVar(&since, "since", 0, "decide only this `TIME` of the journal again (default all)")
	f.BoolVar(&accept, "accept", false, "promote it although it changes decisions, or was not "+
		"asked")
	f.BoolVar(&revert, "revert", false, "take the last promotion back")
	return cmd
}

// errChanges ends a promotion whose changes were not accepted.
var errChanges = errors.New("not promoted")

func (v *verb) promote(c *config.Config, dir string, since time.Duration, accept bool) error {
	var found promotion
	code := exitDone
	err := shadow.Promote(c.Policy.Site, dir, func(copied string) (err error) {
		checked, err := load.Check(v.ctx, copied, v.global.inventory())
		if err != nil {
			return err
		}
		found.Candidate = checked.Revision
		var unreadable error
		found.Replay, err = replay.Replay(v.ctx, recordsOf(c.Audit.Dir, since, &unreadable), copied)
		if err := errors.Join(err, unreadable); err != nil {
			return err
		}
		found.Shadow, err = shadow.Read(shadowDir(c), checked.Revision, time.Time{})
		if err != nil {
			return err
		}
		n := found.Shadow.Counts
		code = changeCode(len(found.Replay.NewlyAllowed)+n[replay.NewlyAllowed],
			len(found.Replay.NewlyRefused)+n[replay.NewlyRefused])
		if code == exitDone && (!found.Shadow.Asked() || found.Shadow.Lost > 0) {
			code = exitFailed
		}
		if code != exitDone && !accept {
			return errChanges
		}
		return nil
	})
	if err != nil && !errors.Is(err, errChanges) {
		return err
	}
	if found.Promoted = err == nil; found.Promoted {
		code = exitDone
	}
	return v.verdict(code != exitDone, code, found, func(w io.Writer) {
		found.Replay.Print(w, 0)
		printShadow(w, found.Shadow)
		switch {
		case found.Promoted:
			fmt.Fprintf(w, "promoted; `caponier policy promote --revert` takes it back\n")
		case code == exitFailed:
			fmt.Fprintln(w, "not promoted: no server has asked this candidate ([policy] "+
				"shadow), or not all that servers noted can be read; --accept promotes it")
		default:
			fmt.Fprintln(w, "not promoted: it changes decisions; --accept promotes it")
		}
	})
}

// shadow has the candidate of the configuration decide beside the site, in a server.
func (h *host) shadow(ctx context.Context, o *gate.Options) {
	if h.cfg.Policy.Shadow == "" {
		return
	}
	s := shadow.New(shadow.Options{Site: h.cfg.Policy.Shadow, Dir: shadowDir(h.cfg),
		Inventory: load.Inventory{Tools: h.lock().Tools(), Nodes: h.cfg.Remote.Known()},
		Answer:    h.journal.Shadow})
	o.Journal = s.Journal(o.Journal)
	h.background(ctx, s.Run)
	h.meter.Gauge("caponier_shadow_decisions_total", "Decisions that the candidate of "+
		"policy.shadow was asked about, by what it would change.", "result",
		func(emit func(float64, string)) {
			for result, n := range s.Counts() {
				emit(float64(n), strings.ReplaceAll(strings.ToLower(result), " ", "_"))
			}
		})
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/suggest"
	"github.com/spf13/cobra"
)

// journalFlags say which part of which journal is held against which site.
type journalFlags struct{ site, dir, since string }

func (o *journalFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.site, "site", "", "the site's `DIR` (default from the configuration)")
	f.StringVar(&o.dir, "journal", "", "the journal's `DIR` (default from the configuration)")
	f.StringVar(&o.since, "since", "", "only what was decided from this `TIME` on: 24h, 30d, "+
		"2026-11-23 (default: all)")
}

// read completes the flags, and returns what the configuration knows.
func (o *journalFlags) read(v *verb, c *config.Config) (since time.Time, inv load.Inventory,
	err error) {
	tuneGC()
	if o.site, err = v.site(o.site); err != nil {
		return since, inv, err
	}
	o.dir = cmp.Or(o.dir, c.Audit.Dir)
	if since, err = audit.Moment(o.since, time.Now()); err != nil {
		err = usage(fmt.Errorf("--since: %w", err))
	}
	return since, v.inventory(), err
}

func policySuggest(g *global) *cobra.Command {
	var o journalFlags
	var principal string
	cmd := &cobra.Command{
		Use:   "suggest --principal ID",
		Short: "Suggest the smallest roles that allow what the journal shows a principal to use",
		Long: "Print, as a part of data.yaml with the evidence in comments, the smallest roles " +
			"that allow what the journal shows the principal to be allowed and to have done. It " +
			"writes nothing. Before it prints, it decides the journal again with the suggestion " +
			"in the site's place, and asks both about each call that there could be.\n\nExit " +
			"codes: 0; 1 when the suggestion does not prove to be right, or there is none.",
		Args: cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			since, inv, err := o.read(v, c)
			if err != nil {
				return err
			}
			var unreadable error
			s, err := suggest.Of(v.ctx, suggest.Options{Site: o.site, Principal: principal,
				Inventory: inv, Records: recordsFrom(o.dir, since, &unreadable), Time: time.Now()})
			if err := errors.Join(err, unreadable); err != nil {
				return err
			}
			return v.print(s, func(w io.Writer) { fmt.Fprint(w, s.YAML) })
		}),
	}
	o.add(cmd)
	cmd.Flags().StringVar(&principal, "principal", "", "the `ID` of a principal of the site")
	_ = cmd.MarkFlagRequired("principal") // it exists
	return cmd
}

func policyUnused(g *global) *cobra.Command {
	var o journalFlags
	cmd := &cobra.Command{
		Use:   "unused",
		Short: "List what the site grants and nobody used, and the rules that refused nothing",
		Long: "List the entries of the site's data that grant something which the journal does " +
			"not show to be used, with their last use before --since; how often each check of " +
			"core refused; and for each rule of the site whether it held in a test of the site, " +
			"and how often it refused.",
		Args: cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			since, inv, err := o.read(v, c)
			if err != nil {
				return err
			}
			var unreadable error
			u, err := suggest.Find(v.ctx, o.site, inv,
				recordsFrom(o.dir, time.Time{}, &unreadable), since)
			if err := errors.Join(err, unreadable); err != nil {
				return err
			}
			return v.print(u, u.Print)
		}),
	}
	o.add(cmd)
	return cmd
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/caponier-mcp/caponier/host/anchor"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

func auditVerify(g *global) *cobra.Command {
	var anchors, key string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every hash chain of the journal (exit 1 if one was changed)",
		Args:  cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			if (anchors == "") != (key == "") {
				return usage(errors.New("--anchors and --anchor-key are given together"))
			}
			began := time.Now()
			seen, err := seenAnchors(anchors, key)
			if err != nil {
				return err
			}
			report, err := audit.Verify(c.Audit.Dir, seen...)
			if err != nil {
				return err
			}
			took := time.Since(began).Round(time.Millisecond)
			return v.verdict(!report.OK(), exitFailed, report, func(w io.Writer) {
				report.Print(w, took)
				if n := len(seen); n > 0 {
					fmt.Fprintf(w, "%d anchors were held against it, the last is %s\n", n,
						seen[n-1].By)
				}
			})
		}),
	}
	cmd.Flags().StringVar(&anchors, "anchors", "", "`FILE` of published anchors, or of a syslog "+
		"that has them")
	cmd.Flags().StringVar(&key, "anchor-key", "", "public `KEY` that signed them, as `audit key` "+
		"printed it")
	return cmd
}

// seenAnchors reads published anchors. A file without any is an error.
func seenAnchors(file, key string) (seen []audit.Seen, err error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := anchor.Read(f, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no anchor", file)
	}
	for _, a := range all {
		seen = append(seen, audit.Seen{Tip: a.Tip,
			By: "the anchor of " + a.Time.Format(time.RFC3339)})
	}
	return seen, nil
}

func auditKey(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key that signs anchors of the journal, and print its public key",
		Args:  cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			secret, public, err := anchor.NewKey(name)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(v.args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(f, secret)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			return v.print(map[string]string{"key": v.args[0], "public": public},
				func(w io.Writer) { fmt.Fprintln(w, public) })
		}),
	}
}

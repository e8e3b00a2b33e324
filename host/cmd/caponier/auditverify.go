package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/anchor"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/spf13/cobra"
)

func auditVerify(g *global, from *[]string) *cobra.Command {
	var anchors, keys []string
	var after time.Duration
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every hash chain of the journal (exit 1 if one was changed)",
		Args:  cobra.NoArgs,
		RunE: g.journals(from, func(v *verb, u audit.Union) error {
			if len(anchors) != len(keys) {
				return usage(errors.New("--anchors and --anchor-key are given together"))
			}
			began := time.Now()
			seen, err := seenAnchors(u, anchors, keys)
			if err != nil {
				return err
			}
			reports, err := u.Verify(seen, after)
			if err != nil {
				return err
			}
			took := time.Since(began).Round(time.Millisecond)
			bad := slices.ContainsFunc(reports, func(r audit.HostReport) bool { return !r.OK() })
			var all any = reports
			if len(u) == 1 {
				all = reports[0].Report
			}
			return v.verdict(bad, exitFailed, all, func(w io.Writer) {
				for _, r := range reports {
					printHost(w, r, took, seen[r.Host])
				}
			})
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&anchors, "anchors", nil, "`FILE` of published anchors, or of a syslog "+
		"that has them; of several journals NAME=FILE")
	f.StringArrayVar(&keys, "anchor-key", nil, "public `KEY` that signed them, as `audit key` "+
		"printed it; of several journals NAME=KEY")
	f.DurationVar(&after, "stopped-after", time.Hour, "`TIME` that a journal of several may lack "+
		"at its end, without having been closed, before it is said to have stopped")
	return cmd
}

// printHost prints the report of one journal, of several with the name of its host.
func printHost(w io.Writer, r audit.HostReport, took time.Duration, seen []audit.Seen) {
	if r.Host != "" {
		fmt.Fprintf(w, "%s: the last record is of %s\n", plaintext.Show(r.Host),
			r.Last.UTC().Format(time.RFC3339))
	}
	if r.Stopped {
		fmt.Fprintf(w, "warning: the journal of %s stopped: its process was killed, the copy is "+
			"old, or it has had no calls since; look at that host\n", plaintext.Show(r.Host))
	}
	r.Print(w, took)
	if n := len(seen); n > 0 {
		fmt.Fprintf(w, "%d anchors were held against it, the last is %s\n", n, seen[n-1].By)
	}
}

// seenAnchors reads published anchors, by host. A file without any is an error.
func seenAnchors(u audit.Union, files, keys []string) (map[string][]audit.Seen, error) {
	seen := map[string][]audit.Seen{}
	byHost := map[string]string{}
	for _, text := range keys {
		host, key, err := ofHost(u, "--anchor-key", text)
		if err != nil {
			return nil, usage(err)
		}
		byHost[host] = key
	}
	for _, text := range files {
		host, file, err := ofHost(u, "--anchors", text)
		if err == nil && byHost[host] == "" {
			err = fmt.Errorf("--anchors %s: there is no --anchor-key of %s", text, host)
		}
		if err != nil {
			return nil, usage(err)
		}
		if seen[host], err = readAnchors(file, byHost[host]); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// ofHost splits what a flag says of one journal of several.
func ofHost(u audit.Union, flag, text string) (host, value string, err error) {
	if len(u) == 1 {
		return u[0].Host, text, nil
	}
	host, value, ok := strings.Cut(text, "=")
	if !ok || !slices.ContainsFunc(u, func(m audit.Member) bool { return m.Host == host }) {
		return "", "", fmt.Errorf("%s %s: with several journals, write NAME=… with a name of "+
			"--journal", flag, text)
	}
	return host, value, nil
}

func readAnchors(file, key string) (seen []audit.Seen, err error) {
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

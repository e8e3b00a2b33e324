package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/spf13/cobra"
)

// finding is one thing that the doctor looked at. Fix is the line that mends it.
type finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Note string `json:"note"`
	Fix  string `json:"fix,omitempty"`
}

func checkCommand(g *global) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use: "check", Short: "Examine configuration, policies, lock, state and nodes, and say how to mend what is wrong", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := examine(cmd.Context(), g, offline)
			if err := show(cmd.OutOrStdout(), found, g.json); err != nil {
				return failed(err)
			}
			for _, f := range found {
				if !f.OK {
					return &exit{code: exitFailed}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "do not connect to the nodes")
	return cmd
}

func show(w io.Writer, found []finding, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(found)
	}
	for _, f := range found {
		mark := "ok  "
		if !f.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "%s  %-28s %s\n", mark, f.What, f.Note)
		if f.Fix != "" {
			fmt.Fprintf(w, "      %-28s → %s\n", "", f.Fix)
		}
	}
	return nil
}

func examine(ctx context.Context, g *global, offline bool) (found []finding) {
	add := func(what string, err error, note, fix string) bool {
		f := finding{What: what, OK: err == nil, Note: note}
		if err != nil {
			f.Note, f.Fix = err.Error(), fix
		}
		found = append(found, f)
		return err == nil
	}
	cfg, err := g.load()
	if !add("configuration", err, "", "copy config.toml from the repository and edit it") {
		return found
	}
	found[0].Note = cfg.File
	var risks error
	if !cfg.AcceptRisks {
		risks = fmt.Errorf("accept_risks is not true in %s", cfg.File)
	}
	add("risks accepted", risks, "accept_risks = true", "read docs/threats.md, then set accept_risks = true")

	engine, err := policy.New(ctx, cfg.Policy)
	if add("policy", err, cfg.Policy.Site, "caponier policy check") {
		found[len(found)-1].Note = "revision " + engine.Revision()
	}
	examineLock(cfg, add)
	for _, dir := range []string{cfg.Audit.Dir, cfg.Store.Dir, cfg.Remote.Workspace} {
		add("can write "+filepath.Base(dir), writable(dir), dir, "make "+dir+" writable for this user, and for nobody else (mode 0700)")
	}
	if report, err := audit.Verify(cfg.Audit.Dir); err == nil && !report.OK() {
		add("journal", fmt.Errorf("a chain in %s does not verify", cfg.Audit.Dir), "", "caponier audit verify")
	}
	if !offline {
		examineNodes(ctx, cfg, add)
	}
	return found
}

func examineLock(cfg *config.Config, add func(what string, err error, note, fix string) bool) {
	lock, err := plugin.Load(cfg.Plugin.Lock)
	if !add("plugin lock", err, cfg.Plugin.Lock, "caponier plugin lock") {
		return
	}
	for _, e := range lock.Plugins() {
		_, err := lock.Open(cfg.Plugin.Dir, e.Name)
		add("plugin "+e.Name, err, e.Digest, "build it again (make plugins), or review the change and run caponier plugin lock")
	}
}

func examineNodes(ctx context.Context, cfg *config.Config, add func(what string, err error, note, fix string) bool) {
	r, err := remote.New(cfg.Remote)
	if !add("nodes", err, fmt.Sprintf("%d in the inventory", len(cfg.Remote.Nodes)), "mend [remote] in "+cfg.File) {
		return
	}
	defer r.Close()
	for _, n := range r.Nodes() {
		report, err := r.Check(ctx, n.Name)
		if !add("node "+n.Name, err, fmt.Sprintf("%s@%s:%d", n.User, n.Host, n.Port), "mend [[remote.nodes]] "+n.Name+" in "+cfg.File) {
			continue
		}
		found := fmt.Sprintf("%s, host key %s, login %s, true %s", report.Server, report.HostKey, report.Dial.Round(time.Millisecond), report.Exec.Round(time.Microsecond))
		add("node "+n.Name+" answers", nil, found, "")
		for _, w := range report.Warnings {
			add("node "+n.Name, errors.New(w), "", "see docs/operating.md")
		}
	}
}

// writable makes the directory and a file in it, and leaves nothing behind but the directory.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

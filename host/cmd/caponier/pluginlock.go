package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/keyless"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/signature"
	"github.com/spf13/cobra"
)

// lockJob is one run of `caponier plugin lock`.
type lockJob struct {
	file, dir string // the lock and the folder of built modules
	site      string // whose programs are known, "" for none
	check     bool   // write nothing
	keyless   keyless.Options
}

func pluginLock(g *global) *cobra.Command {
	var job lockJob
	cmd := &cobra.Command{
		Use:   "lock [NAME…]",
		Short: "Write what the modules are and ask for into the lock, to be reviewed like code",
		Args:  cobra.ArbitraryArgs,
		Long: "Describes every NAME.wasm in --dir (or only the named ones, keeping the other " +
			"entries) and writes --lock. --check writes nothing and exits 3 when the lock would " +
			"change. A claim that contradicts the command grammar (plugin inspect) is an error, " +
			"and so is, where the site has plugins.trust, a module without a signature beside it " +
			"(NAME.wasm.sig) of somebody who may sign it.",
		RunE: g.does(func(v *verb) error {
			if job.file == "" || job.dir == "" {
				c, err := g.load()
				if err != nil {
					return fmt.Errorf("name --lock and --dir, or a configuration: %w", err)
				}
				job.file = cmp.Or(job.file, c.Plugin.Lock)
				job.dir = cmp.Or(job.dir, c.Plugin.Dir)
				job.site = cmp.Or(job.site, c.Policy.Site)
				job.keyless = c.Keyless
			}
			return job.run(v)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&job.file, "lock", "", "the lock `FILE` (default from the configuration)")
	f.StringVar(&job.dir, "dir", "", "the `DIR` of built modules (default from the configuration)")
	siteFlag(cmd, &job.site)
	f.BoolVar(&job.check, "check", false, "write nothing; exit 3 when the lock is not current")
	return cmd
}

func (l lockJob) run(v *verb) error {
	before, err := os.ReadFile(l.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	entries, err := l.entries(v.ctx, v.args, err == nil)
	if err != nil {
		return err
	}
	after, err := plugin.Encode(entries)
	if err != nil {
		return err
	}
	switch {
	case bytes.Equal(before, after):
		fmt.Fprintf(v.out, "%s is current (%d plugins)\n", l.file, len(entries))
		return nil
	case l.check:
		return &exit{exitRefused, fmt.Errorf("%s is not what the modules in %s are: run "+
			"`caponier plugin lock --lock %s --dir %s` and review the difference",
			l.file, l.dir, l.file, l.dir)}
	}
	if err := plugin.Write(l.file, after); err != nil {
		return err
	}
	fmt.Fprintf(v.out, "%s written (%d plugins): review the difference before you commit it\n",
		l.file, len(entries))
	return nil
}

// entries describes the named modules and keeps what the lock says of the others. Without names it
// describes every module of the folder.
func (l lockJob) entries(ctx context.Context, names []string,
	exists bool) (entries []plugin.Entry, err error) {
	if len(names) > 0 && exists {
		old, err := plugin.Load(l.file)
		if err != nil {
			return nil, usage(err)
		}
		entries = slices.DeleteFunc(slices.Clone(old.Plugins()), func(e plugin.Entry) bool {
			return slices.Contains(names, strings.TrimSuffix(e.File, ".wasm"))
		})
	}
	if len(names) == 0 {
		files, err := filepath.Glob(filepath.Join(l.dir, "*.wasm"))
		if err != nil || len(files) == 0 {
			return nil, usage(fmt.Errorf("no *.wasm in %s: build the plugins first "+
				"(make plugins, or caponier plugin build)", l.dir))
		}
		for _, f := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(f), ".wasm"))
		}
	}
	for _, n := range names {
		e, err := describe(ctx, filepath.Join(l.dir, n+".wasm"))
		if err == nil {
			err = checkClaims(l.site, e)
		}
		if err == nil {
			e.Signed, err = l.signed(ctx, e)
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// signed asks the site, if one is named, who may sign the plugin, and says who did.
func (l lockJob) signed(ctx context.Context, e plugin.Entry) (*plugin.Signed, error) {
	if l.site == "" {
		return nil, nil
	}
	site, err := load.FromFolder(ctx, l.site, load.Inventory{})
	if err != nil {
		return nil, usage(err)
	}
	file := filepath.Join(l.dir, e.File)
	wasm, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if got := signature.Digest(wasm); got != e.Digest {
		return nil, fmt.Errorf("%s has changed while it was read: try again", file)
	}
	s, err := trust{l.dir, l.keyless}.signed(ctx, site, wasm, e)
	if err != nil {
		return nil, &exit{exitRefused, err}
	}
	return s, nil
}

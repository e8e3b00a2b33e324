package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/spf13/cobra"
)

// describeTime bounds compiling and asking a module that nobody has locked yet.
const describeTime = 3 * time.Minute

// built is the module that the plugin in dir is built to.
func built(dir string) string { return filepath.Join(dir, "build", filepath.Base(dir)+".wasm") }

// describe makes the lock entry of a module's file.
func describe(ctx context.Context, file string) (plugin.Entry, error) {
	wasm, err := os.ReadFile(file)
	if err != nil {
		return plugin.Entry{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return plugin.Entry{}, err
	}
	text, imports, err := sandbox.DescribeInSubprocess(ctx, []string{self, "plugin", "describe",
		moduleCache()}, wasm)
	if err != nil {
		return plugin.Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	e, err := plugin.NewEntry(filepath.Base(file), wasm, imports, text)
	if err != nil {
		return plugin.Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
}

// inspect prints what a module is.
func (v *verb) inspect(e plugin.Entry) error {
	var bad error
	err := v.print(e, func(w io.Writer) { bad = e.Print(w) })
	return errors.Join(bad, err)
}

// siteFlag adds the flag that names a site whose programs are known beside those of the core.
func siteFlag(cmd *cobra.Command, site *string) {
	cmd.Flags().StringVar(site, "site", "",
		"also know the programs that the site in this `DIR` describes (binaries)")
}

// checkClaims holds what plugins claim against the command grammar, of the core and of a site.
func checkClaims(site string, entries ...plugin.Entry) error {
	tiers, err := load.Tiers(site)
	if err != nil {
		return usage(err)
	}
	for _, e := range entries {
		if err := e.Claims(tiers); err != nil {
			return err
		}
	}
	return nil
}

// addPlugin puts a module of the lock into a sandbox, when the site trusts it.
func (h *host) addPlugin(ctx context.Context, lock *plugin.Lock, e plugin.Entry) error {
	wasm, err := h.openPlugin(ctx, lock, e)
	if err != nil {
		return err
	}
	return h.sandbox.Add(e.Plugin, wasm, e.Imports)
}

// openPlugin reads a module of the lock, and asks the site whether it trusts it.
func (h *host) openPlugin(ctx context.Context, lock *plugin.Lock, e plugin.Entry) ([]byte, error) {
	wasm, err := lock.Open(h.cfg.Plugin.Dir, e.Name)
	if err != nil {
		return nil, err
	}
	if h.engine == nil { // trustFirst saw that the site asks for no signature
		return wasm, nil
	}
	site, err := h.engine.Current()
	if err != nil {
		return nil, err
	}
	return wasm, trust{h.cfg.Plugin.Dir, h.cfg.Keyless}.check(ctx, site, wasm, e)
}

package main

import (
	"errors"
	"fmt"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/spf13/cobra"
)

func warmCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "warm",
		Short: "Compile every plugin of the lock into the cache, so that no call waits for it",
		Long: "Compiles every plugin of the lock into [sandbox] cache_dir and starts it once. " +
			"Run it after an update, as the user of the server. It connects to no node.",
		Args: cobra.NoArgs,
		RunE: g.with(func(v *verb, cfg *config.Config) (err error) {
			if cfg.Sandbox.CacheDir == "" {
				return fmt.Errorf("%s: [sandbox] cache_dir is empty: nothing would be kept",
					cfg.File)
			}
			lock, err := plugin.Load(cfg.Plugin.Lock)
			if err != nil {
				return err
			}
			cfg.Sandbox.Warm = -1 // instances of this process would be of no use
			cfg.Sandbox.Compiling = collectMore
			box, err := sandbox.New(v.ctx, cfg.Sandbox)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, box.Close(v.ctx)) }()
			var bad error
			for _, e := range lock.Plugins() {
				wasm, err := lock.Open(cfg.Plugin.Dir, e.Name)
				if err == nil { // trust is asked where it is served
					err = box.Add(e.Plugin, wasm, e.Imports)
				}
				bad = errors.Join(bad, err)
			}
			if bad = errors.Join(bad, box.Warm(v.ctx)); bad != nil {
				return bad
			}
			_, err = fmt.Fprintf(v.out, "%d plugins are compiled in %s\n", len(lock.Plugins()),
				cfg.Sandbox.CacheDir)
			return err
		}),
	}
}

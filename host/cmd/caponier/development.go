package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/config"
)

// development is what plugin dev has instead of the site's modules and lock.
type development struct{ dir, lock string }

// apply replaces modules and lock in a configuration whose nodes are all on the loopback.
func (d development) apply(c *config.Config) error {
	for _, n := range c.Remote.Known() {
		a, err := netip.ParseAddr(n.Host)
		if n.Host != "localhost" && (err != nil || !a.IsLoopback()) {
			return fmt.Errorf("%s: the node %s is %s, which is not on the loopback: plugin dev "+
				"--lab is for a lab (make lab)", c.File, n.Name, n.Host)
		}
	}
	for _, n := range c.Remote.Nodes {
		if len(n.Jump) > 0 {
			return fmt.Errorf("%s: the node %s is behind %s: plugin dev --lab is for a lab", c.File,
				n.Name, n.Jump[0].Host)
		}
	}
	c.Plugin.Dir, c.Plugin.Lock, c.Sandbox.CacheDir = d.dir, d.lock, moduleCache()
	return nil
}

// moduleCache is where compiled modules are kept between runs, "" for nowhere.
func moduleCache() string {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "caponier", "plugins")
	}
	return cmp.Or(os.Getenv("CAPONIER_SANDBOX_CACHE_DIR"), dir)
}

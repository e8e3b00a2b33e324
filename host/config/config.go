// Package config reads config.toml: one table for each package, decoded straight into that
// package's Options.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/front"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/store"
)

// Config is a whole configuration file. File is where it was read from.
type Config struct {
	AcceptRisks bool             `koanf:"accept_risks"`
	ReadOnly    bool             `koanf:"read_only"`
	CLI         CLI              `koanf:"cli"`
	Front       front.Options    `koanf:"front"`
	Identity    identity.Options `koanf:"identity"`
	Policy      policy.Options   `koanf:"policy"`
	Plugin      plugin.Options   `koanf:"plugin"`
	Tools       plugin.Selection `koanf:"tools"`
	Sandbox     sandbox.Options  `koanf:"sandbox"`
	Remote      remote.Options   `koanf:"remote"`
	Approval    approval.Options `koanf:"approval"`
	Audit       audit.Options    `koanf:"audit"`
	Store       store.Options    `koanf:"store"`
	Blob        blob.Options     `koanf:"blob"`
	Egress      egress.Options   `koanf:"egress"`
	File        string           `koanf:"-"`
}

// CLI is the table [cli].
type CLI struct {
	Principal string `koanf:"principal"` // of stdio and of commands typed in a terminal
}

// Find says which file --config and --profile mean: the named one, ./config.toml, or
// caponier/config.toml in the user's configuration directory.
func Find(name, profile string) (string, error) {
	candidates := []string{name}
	if name == "" {
		candidates = []string{"config.toml"}
		if dir, err := os.UserConfigDir(); err == nil {
			candidates = append(candidates, filepath.Join(dir, "caponier", "config.toml"))
		}
	}
	for _, c := range candidates {
		if profile != "" {
			c = filepath.Join(filepath.Dir(c), "config."+profile+".toml")
		}
		if _, err := os.Stat(c); err == nil {
			return filepath.Abs(c)
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf(
		"no configuration at %q (profile %q): name one with --config, or copy config.toml from the repository",
		candidates,
		profile,
	)
}

// Load reads a configuration file with the environment over it, and gives directories that it does
// not name a place beside it, in state/.
func Load(file string, environ []string) (*Config, error) {
	c := &Config{File: file}
	if err := load(file, environ, c); err != nil {
		return nil, err
	}
	dir := filepath.Dir(file)
	for value, name := range map[*string]string{&c.Audit.Dir: "state/journal", &c.Store.Dir: "state/store", &c.Blob.Dir: "state/blobs", &c.Remote.Workspace: "state/workspace",
		&c.Sandbox.CacheDir: "state/cache", &c.Plugin.Lock: "plugins.lock", &c.Plugin.Dir: "build/plugins", &c.Policy.Site: "policies/site"} {
		if *value == "" {
			*value = filepath.Join(dir, filepath.FromSlash(name))
		}
	}
	for _, o := range []interface{ Validate() error }{c.Front, &c.Plugin, &c.Remote, &c.Approval} {
		if err := o.Validate(); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", file, err)
		}
	}
	return c, nil
}

// Package config reads config.toml: one table for each package, decoded into that package's
// Options.
//
// Each Options has a key for each field with a koanf tag. A tag secret:"true" lets the value be a
// reference, ${VAR} or ${file:PATH}, and keeps it out of logs; path:"true" makes a relative path
// relative to the configuration file. The zero value of a field means its default. Each Options has
// a method Validate() error, with a value receiver, that changes nothing and accepts the zero
// value; its errors begin with the key. Load calls all of them, so that `check` and `serve` agree,
// and the New of each package calls its own again.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/caponier-mcp/caponier/host/anchor"
	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/export"
	fronthttp "github.com/caponier-mcp/caponier/host/front/http"
	"github.com/caponier-mcp/caponier/host/front/mcp"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/caponier-mcp/caponier/host/keyless"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plugin"
	policy "github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
)

// Config is a whole configuration file.
type Config struct {
	AcceptRisks bool             `koanf:"accept_risks"`
	ReadOnly    bool             `koanf:"read_only"`
	CLI         CLI              `koanf:"cli"`
	Log         LogOptions       `koanf:"log"`
	Front       Front            `koanf:"front"`
	Identity    identity.Options `koanf:"identity"`
	Policy      policy.Options   `koanf:"policy"`
	Plugin      plugin.Options   `koanf:"plugin"`
	Keyless     keyless.Options  `koanf:"keyless"`
	Tools       plugin.Selection `koanf:"tools"`
	Sandbox     sandbox.Options  `koanf:"sandbox"`
	Remote      remote.Options   `koanf:"remote"`
	Approval    approval.Options `koanf:"approval"`
	Audit       audit.Options    `koanf:"audit"`
	Anchors     anchor.Options   `koanf:"anchors"`
	Export      export.Options   `koanf:"export"`
	Store       store.Options    `koanf:"store"`
	Blob        blob.Options     `koanf:"blob"`
	Egress      egress.Options   `koanf:"egress"`

	File    string   `koanf:"-"` // where it was read from, absolute
	Secrets []string `koanf:"-"` // values that must not be shown
	loader  *loader
}

// Where returns where the value of a key is from: the file with the line of the key, or of its
// table, or the name of a variable of the environment.
func (c *Config) Where(key string) string {
	if name := c.loader.variables[key]; name != "" {
		return name
	}
	if _, line := c.loader.place(key); line > 0 {
		return fmt.Sprintf("%s:%d", c.File, line)
	}
	return c.File
}

// Line returns the line of a key or a table in the file, or 0 if the file does not have it.
func (c *Config) Line(key string) int { return c.loader.lines[key] }

// Caller returns the principal on stdio and in a terminal.
func (c *Config) Caller() (terms.Principal, error) {
	if c.CLI.Principal == "" {
		return terms.Principal{}, fmt.Errorf("%s: [cli] principal is not set: name the caller on "+
			"stdio and in this terminal", c.File)
	}
	p := c.Identity.Configured(c.CLI.Principal)
	if p.ID == "host" {
		return terms.Principal{}, fmt.Errorf("%s: [cli] principal = %q is the host itself: name "+
			"the caller", c.File, p.ID)
	}
	return p, nil
}

// NodeNames returns the names of the inventory.
func (c *Config) NodeNames() (names []string) {
	for _, n := range c.Remote.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// The packages that share the table [front]; names of embedded fields must differ.
type (
	MCPOptions     = mcp.Options
	HTTPOptions    = fronthttp.Options
	ObserveOptions = observe.Options
	LogOptions     = observe.LogOptions
)

// Front is the table [front].
type Front struct {
	MCPOptions
	HTTPOptions
	ObserveOptions
}

// Validate reports a field that cannot be used.
func (f Front) Validate() error {
	return errors.Join(f.MCPOptions.Validate(), f.HTTPOptions.Validate(),
		f.ObserveOptions.Validate())
}

// CLI is the table [cli].
type CLI struct {
	// Principal is the caller on stdio and of commands that are typed in a terminal.
	Principal string `koanf:"principal"`
}

// Find returns the configuration file that --config and --profile mean: the file name,
// ./config.toml or caponier/config.toml in the user's configuration directory. With a profile it is
// config.PROFILE.toml in the same directory.
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
	return "", fmt.Errorf("no configuration at %q (profile %q): name one with --config, or copy "+
		"config.toml from the repository", candidates, profile)
}

// Load reads the configuration file, which must be trusted (package trusted), with the CAPONIER_
// variables of environ over it, and validates every table. Directories that it does not name are in
// state/ beside the file.
func Load(file string, environ []string) (*Config, error) {
	data, err := trusted.Read(file, maxFile)
	if err != nil {
		return nil, &Error{File: file, Err: err}
	}
	l := &loader{file: file}
	c := &Config{File: file, loader: l}
	if err := l.read(data, environ, reflect.ValueOf(c).Elem()); err != nil {
		return nil, err
	}
	c.Secrets = l.secrets
	for _, d := range []struct {
		value *string
		name  string
	}{
		{&c.Audit.Dir, "state/journal"}, {&c.Store.Dir, "state/store"},
		{&c.Blob.Dir, "state/blobs"}, {&c.Export.Dir, "state/export"},
		{&c.Remote.Workspace, "state/workspace"}, {&c.Sandbox.CacheDir, "state/cache"},
		{&c.Plugin.Lock, "plugins.lock"}, {&c.Plugin.Dir, "build/plugins"},
		{&c.Policy.Site, "policies/site"},
	} {
		if *d.value == "" {
			*d.value = filepath.Join(filepath.Dir(file), filepath.FromSlash(d.name))
		}
	}
	if err := l.validate(reflect.ValueOf(c).Elem()); err != nil {
		return nil, err
	}
	if key := "identity.tokens_in_store"; c.Identity.InStore && c.Store.URL == "" {
		return nil, l.errorf(key, "%s: there is no store that hosts share: set url in [store]", key)
	}
	return c, nil
}

// validate calls Validate of every table that has it.
func (l *loader) validate(c reflect.Value) error {
	for i := range c.NumField() {
		if keyOf(c.Type().Field(i)) == "" {
			continue
		}
		o, ok := c.Field(i).Addr().Interface().(interface{ Validate() error })
		if !ok {
			continue
		}
		if err := o.Validate(); err != nil {
			table := keyOf(c.Type().Field(i))
			key, rest, _ := strings.Cut(err.Error(), ":")
			if key != table && !strings.HasPrefix(key, table+".") {
				return l.errorf(table, "%s: %w", table, err)
			}
			key, _, _ = strings.Cut(key, " ")
			return l.errorf(key, "%s:%s", key, rest)
		}
	}
	return nil
}

// Package remote runs allowed operations on nodes over SSH and SFTP.
package remote

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
)

// Options is the table [remote]. A zero field means the default that its comment names.
type Options struct {
	// directory of local files; each principal has a folder in it
	Workspace string        `koanf:"workspace" path:"true"`
	Nodes     []NodeOptions `koanf:"nodes"` // the inventory
	// files in OpenSSH's format, read again at each dial; for hosts without host_key
	KnownHosts []string `koanf:"known_hosts" path:"true"`
	MaxFile    int64    `koanf:"max_file"` // bytes of a transferred file, 10 MiB
	// of an operation without a shorter limit, 5m
	ExecTimeout time.Duration `koanf:"exec_timeout"`

	Reads []string `koanf:"-"` // commands that Ask may run; see there
	// HostID is 8 hexadecimal digits that stay the same for all processes which share a workspace
	// and a store; "" for random ones.
	HostID string      `koanf:"-"`
	Record `koanf:"-"` // of temporary files

	// The following are for tests.

	Limits       `koanf:"-"`
	StageRoot    string        `koanf:"-"` // where staging directories are made on a node, /tmp
	StallTimeout time.Duration `koanf:"-"` // of a transfer that moves nothing, 30s
}

type (
	// NodeOptions is one entry of [[remote.nodes]]: a name for tools and policies, and the way
	// there.
	NodeOptions = conn.NodeOptions
	// Login is where a host is, who it must prove to be, and as whom to log in.
	Login = conn.Login
	// Limits bound the connections of each node.
	Limits = conn.Limits
	// NodeState is what the pool of connections holds for a node.
	NodeState = conn.NodeState
	// Link describes a connection to a node.
	Link = conn.Link
	// Record keeps what temporary files there are, for other processes.
	Record = files.Record
)

// KeyKinds are the kinds of host keys that a pin may be of, best first, each with the algorithms
// that prove it.
func KeyKinds() [][]string { return conn.KeyKinds() }

// withDefaults returns the options with their defaults.
func (o Options) withDefaults() Options {
	o.MaxFile, o.ExecTimeout = cmp.Or(o.MaxFile, 10<<20), cmp.Or(o.ExecTimeout, 5*time.Minute)
	o.StageRoot = cmp.Or(o.StageRoot, "/tmp")
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	o.Limits, o.Nodes = o.Limits.WithDefaults(), conn.NodesWithDefaults(o.Nodes)
	return o
}

// Validate returns everything that is wrong, naming keys of the configuration file.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.Workspace == "" {
		errs = append(errs, errors.New("remote.workspace: is empty; name the directory of uploads "+
			"and downloads"))
	}
	if o.MaxFile < 1 {
		errs = append(errs, fmt.Errorf("remote.max_file: must be at least 1, is %d", o.MaxFile))
	}
	if o.ExecTimeout < time.Millisecond || o.ExecTimeout > 24*time.Hour {
		errs = append(errs, fmt.Errorf("remote.exec_timeout: must be 1ms to 24h, is %s",
			o.ExecTimeout))
	}
	return errors.Join(append(errs, conn.ValidateNodes(o.Nodes, len(o.KnownHosts) > 0))...)
}

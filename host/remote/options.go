// Package remote runs allowed operations on nodes over SSH and SFTP.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
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
	HostID string `koanf:"-"`
	// Made records a temporary directory of a node, or with node "" a temporary file of the
	// workspace, before it is made; an error stops the operation. Removed is called when it is
	// gone, perhaps more than once. Dead lists what is recorded by processes that have ended. All
	// may be nil.
	Made    func(node, name string) error                      `koanf:"-"`
	Removed func(node, name string)                            `koanf:"-"`
	Dead    func(ctx context.Context) ([]gate.StageDir, error) `koanf:"-"`

	// The following are for tests.

	// sessions at once on one connection, 5; one principal leaves two (of all connections to a
	// node) to the others, and sshd refuses more under load long before its MaxSessions
	MaxSessions int    `koanf:"-"`
	MaxConns    int    `koanf:"-"` // to one node, 2
	StageRoot   string `koanf:"-"` // where staging directories are made on a node, /tmp
	// TCP, banner, key exchange and authentication of all hops together, 10s
	DialTimeout  time.Duration `koanf:"-"`
	StepTimeout  time.Duration `koanf:"-"` // to open a channel or have a request answered, 15s
	StallTimeout time.Duration `koanf:"-"` // of a transfer that moves nothing, 30s
	// between probes, 15s; after three intervals without an answer the peer is dead
	KeepAlive time.Duration `koanf:"-"`
	IdleClose time.Duration `koanf:"-"` // of a connection that is not used, 10m
}

// NodeOptions is one entry of [[remote.nodes]]: a name for tools and policies, and the way there.
type NodeOptions struct {
	Name string `koanf:"name"`
	// nodes of one cluster share their guests' numbers; the name when empty
	Cluster string `koanf:"cluster"`
	Default bool   `koanf:"default"` // meant by calls that name no node
	Login   `       koanf:",squash"`
	Jump    []Login `koanf:"jump"` // hosts to go through, first hop first, at most maxJumps
}

// Login is where a host is, who it must prove to be, and as whom to log in. IdentityFile or Agent
// is needed.
type Login struct {
	Host string `koanf:"host"`
	Port int    `koanf:"port"` // 22
	User string `koanf:"user"`
	// pin, SHA256:… as ssh-keygen -l prints it; without it known_hosts decides
	HostKey string `koanf:"host_key"`
	// private key, readable by its owner only
	IdentityFile string `koanf:"identity_file" path:"true"`
	// OpenSSH certificate of the private key
	CertificateFile string `koanf:"certificate_file" path:"true"`
	// keys of the agent at SSH_AUTH_SOCK; the agent is never forwarded
	Agent bool `koanf:"agent"`
}

const (
	maxOutput   = 1 << 20  // bytes of a command's stdout, and of its stderr
	maxData     = 1 << 20  // bytes of file data in one response
	verifyBytes = 16 << 20 // an upload up to this size is read back and compared
	// maxJumps is how many hosts a connection may go through.
	maxJumps = 3
)

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,253}[A-Za-z0-9])?$|^::1$`)
	pin      = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)
)

// withDefaults returns the options with their defaults.
func (o Options) withDefaults() Options {
	o.MaxFile, o.ExecTimeout = cmp.Or(o.MaxFile, 10<<20), cmp.Or(o.ExecTimeout, 5*time.Minute)
	o.MaxSessions, o.MaxConns = cmp.Or(o.MaxSessions, 5), cmp.Or(o.MaxConns, 2)
	o.StageRoot = cmp.Or(o.StageRoot, "/tmp")
	o.DialTimeout = cmp.Or(o.DialTimeout, 10*time.Second)
	o.StepTimeout = cmp.Or(o.StepTimeout, 15*time.Second)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.IdleClose = cmp.Or(o.IdleClose, 10*time.Minute)
	if o.HostID == "" {
		o.HostID = randomHex(4)
	}
	o.Nodes = slices.Clone(o.Nodes)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		n.Cluster, n.Port = cmp.Or(n.Cluster, n.Name), cmp.Or(n.Port, 22)
		n.Default = n.Default || len(o.Nodes) == 1
		n.Jump = slices.Clone(n.Jump)
		for j := range n.Jump {
			n.Jump[j].Port = cmp.Or(n.Jump[j].Port, 22)
		}
	}
	return o
}

// Validate returns everything that is wrong, naming keys of the configuration file.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs problems
	if o.Workspace == "" {
		errs.add("remote.workspace", "is empty; name the directory of uploads and downloads")
	}
	if o.MaxFile < 1 {
		errs.add("remote.max_file", "must be at least 1, is %d", o.MaxFile)
	}
	if o.ExecTimeout < time.Millisecond || o.ExecTimeout > 24*time.Hour {
		errs.add("remote.exec_timeout", "must be 1ms to 24h, is %s", o.ExecTimeout)
	}
	names, defaults := map[string]bool{}, 0
	for i, n := range o.Nodes {
		key := fmt.Sprintf("remote.nodes[%d]", i)
		if names[n.Name] {
			errs.add(key+".name", "%q is used twice", n.Name)
		}
		names[n.Name] = true
		if n.Default {
			defaults++
		}
		errs.node(key, n, len(o.KnownHosts) > 0)
	}
	if defaults > 1 {
		errs.add("remote.nodes", "%d have default = true, at most one may", defaults)
	}
	return errors.Join(errs...)
}

// problems are errors that name the key of the configuration file that is wrong.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, fmt.Errorf(key+": "+format, args...))
}

func (p *problems) node(key string, n NodeOptions, knownHosts bool) {
	if !validName(n.Name) {
		p.add(key+".name", "%q must be letters, digits, dots and dashes", n.Name)
	} else if !validName(n.Cluster) {
		p.add(key+".cluster", "%q must be letters, digits, dots and dashes", n.Cluster)
	}
	if len(n.Jump) > maxJumps {
		p.add(key+".jump", "has %d hosts, at most %d are allowed", len(n.Jump), maxJumps)
	}
	p.login(key, n.Login, knownHosts)
	for i, l := range n.Jump {
		p.login(fmt.Sprintf("%s.jump[%d]", key, i), l, knownHosts)
	}
}

func (p *problems) login(key string, l Login, knownHosts bool) {
	if !validHost(l.Host) {
		p.add(key+".host", "%q is not a host name or address", l.Host)
	}
	if l.Port < 1 || l.Port > 65535 {
		p.add(key+".port", "must be 1 to 65535, is %d", l.Port)
	}
	if !userName.MatchString(l.User) {
		p.add(key+".user", "%q is not a user name", l.User)
	}
	if l.HostKey != "" && !pin.MatchString(l.HostKey) {
		p.add(key+".host_key", "%q is not a fingerprint; write it as `ssh-keygen -lf FILE` prints "+
			"it: SHA256: and 43 characters", l.HostKey)
	}
	if l.HostKey == "" && !knownHosts {
		p.add(key+".host_key", "is missing, and so is remote.known_hosts: one of them has to tell "+
			"the host from an impostor")
	}
	if l.IdentityFile == "" && !l.Agent {
		p.add(key+".identity_file", "is missing; set identity_file or agent")
	}
	if l.IdentityFile == "" && l.CertificateFile != "" {
		p.add(key+".identity_file", "is missing; certificate_file belongs to it")
	}
}

// validName reports whether a node or a cluster may be called s.
func validName(s string) bool { return nodeName.MatchString(s) }

// validHost reports whether s may be a host name or an address.
func validHost(s string) bool { return hostName.MatchString(s) }

// Addr is host:port.
func (l Login) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

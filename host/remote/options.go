// Package remote runs allowed operations on nodes over SSH and SFTP.
package remote

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Options is the table [remote]. Zero fields take the defaults named here; [Options.Validate] fills
// them in.
type Options struct {
	// directory of local files; each principal has a folder in it
	Workspace string        `koanf:"workspace" path:"true"`
	Nodes     []NodeOptions `koanf:"nodes"` // the inventory
	// files in OpenSSH's format, read again at each dial; for hosts without host_key
	KnownHosts []string `koanf:"known_hosts" path:"true"`

	// at once on one connection, 5, of which one principal leaves two (of all connections to a
	// node) to the others; sshd refuses more under load long before its MaxSessions
	MaxSessions int `koanf:"max_sessions"`
	MaxConns    int `koanf:"-"` // to one node, 2
	// TCP, banner, key exchange and authentication of all hops together, 10s
	DialTimeout time.Duration `koanf:"-"`
	// to open a channel or have a request answered, 15s
	StepTimeout  time.Duration `koanf:"-"`
	StallTimeout time.Duration `koanf:"-"` // of a transfer that moves nothing, 30s
	// between probes, 15s; after three intervals without an answer the peer is dead
	KeepAlive time.Duration `koanf:"-"`
	IdleClose time.Duration `koanf:"-"` // of a connection that nobody uses, 10m
	// of any operation that nothing limits more, 5m
	ExecTimeout time.Duration `koanf:"exec_timeout"`
	Warm        bool          `koanf:"-"` // connect to every node at the start

	// bytes of stdout, and of stderr, 1 MiB; at most 16 MiB
	MaxOutput int64 `koanf:"-"`
	MaxFile   int64 `koanf:"max_file"` // bytes of a transferred file, 10 MiB
	// uploads up to this size are read back and compared, 16 MiB; every upload has its size checked
	VerifyBytes int64 `koanf:"-"`
	// where staging directories are made on a node, /tmp
	StageRoot string `koanf:"stage_root"`
	// how long a green ssh_exec may answer its own repeat, 0 for never; at most 5s
	Memo time.Duration `koanf:"-"`

	Now   func() time.Time `koanf:"-"` // nil for time.Now
	Reads []string         `koanf:"-"` // commands that Ask may run; see there
}

// NodeOptions is one entry of [[remote.nodes]]: a name for tools and policies, and how to get
// there.
type NodeOptions struct {
	Name string `koanf:"name"`
	// nodes of one cluster share their guests' numbers; the name when empty
	Cluster string `koanf:"cluster"`
	Default bool   `koanf:"default"` // meant by calls that name no node
	Login   `              koanf:",squash"`
	Jump    []JumpOptions `koanf:"jump"` // hosts to go through, first hop first, at most 3
}

// JumpOptions is a host on the way to a node.
type JumpOptions struct {
	Login `koanf:",squash"`
}

// Login is where a host is, who it must prove to be, and as whom to log in. One of IdentityFile,
// PasswordFile and Agent is needed.
type Login struct {
	Host string `koanf:"host"`
	Port int    `koanf:"port"` // 22
	User string `koanf:"user"`
	// pin, SHA256:… as ssh-keygen -l prints it; without it known_hosts decides
	HostKey         string `koanf:"host_key"`
	IdentityFile    string `koanf:"identity_file" path:"true"`    // private key, readable by its owner only
	PassphraseFile  string `koanf:"passphrase_file" path:"true"`  // of the private key
	CertificateFile string `koanf:"certificate_file" path:"true"` // OpenSSH certificate of the private key
	PasswordFile    string `koanf:"password_file" path:"true"`    // readable by its owner only
	// keys of the agent at SSH_AUTH_SOCK; the agent is never forwarded
	Agent bool `koanf:"agent"`
}

const (
	maxOutput = 16 << 20 // hard cap on Options.MaxOutput
	maxData   = 1 << 20  // bytes of file data in one response
	maxMemo   = 5 * time.Second
	// MaxJumps is how many hosts a connection may go through.
	MaxJumps = 3
)

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,253}[A-Za-z0-9])?$|^::1$`)
	pin      = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)
)

// Validate fills in the defaults and says everything that is wrong, naming keys of the
// configuration file.
func (o *Options) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("remote."+key+": "+format, args...))
	}
	o.MaxSessions, o.MaxConns = cmp.Or(o.MaxSessions, 5), cmp.Or(o.MaxConns, 2)
	o.DialTimeout, o.StepTimeout = cmp.Or(
		o.DialTimeout,
		10*time.Second,
	), cmp.Or(
		o.StepTimeout,
		15*time.Second,
	)
	o.StallTimeout, o.KeepAlive = cmp.Or(
		o.StallTimeout,
		30*time.Second,
	), cmp.Or(
		o.KeepAlive,
		15*time.Second,
	)
	o.IdleClose, o.ExecTimeout = cmp.Or(
		o.IdleClose,
		10*time.Minute,
	), cmp.Or(
		o.ExecTimeout,
		5*time.Minute,
	)
	o.MaxOutput, o.MaxFile = cmp.Or(o.MaxOutput, 1<<20), cmp.Or(o.MaxFile, 10<<20)
	o.VerifyBytes, o.StageRoot = cmp.Or(o.VerifyBytes, 16<<20), cmp.Or(o.StageRoot, "/tmp")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Workspace == "" {
		bad("workspace", "is empty; name the directory that holds uploads and downloads")
	}
	if o.MaxSessions < 2 || o.MaxSessions > 10 {
		bad("max_sessions", "must be 2 to 10, is %d", o.MaxSessions)
	}
	if o.MaxConns < 1 || o.MaxConns > 10 {
		bad("max_conns", "must be 1 to 10, is %d", o.MaxConns)
	}
	for _, t := range []struct {
		key string
		d   time.Duration
	}{{"dial_timeout", o.DialTimeout}, {"step_timeout", o.StepTimeout}, {"stall_timeout", o.StallTimeout}, {"keep_alive", o.KeepAlive}, {"idle_close", o.IdleClose}, {"exec_timeout", o.ExecTimeout}} {
		if t.d < time.Millisecond || t.d > 24*time.Hour {
			bad(t.key, "must be 1ms to 24h, is %s", t.d)
		}
	}
	if o.MaxOutput < 1 || o.MaxOutput > maxOutput {
		bad("max_output", "must be 1 to %d bytes, is %d", maxOutput, o.MaxOutput)
	}
	if o.MaxFile < 1 || o.VerifyBytes < 0 {
		bad("max_file", "max_file and verify_bytes must be positive")
	}
	if o.Memo < 0 || o.Memo > maxMemo {
		bad(
			"memo",
			"must be 0s to %s, is %s: older answers are not green any more",
			maxMemo,
			o.Memo,
		)
	}
	if _, err := cleanRemote(o.StageRoot); err != nil {
		bad("stage_root", "%v", err)
	}
	seen, defaults := map[string]bool{}, 0
	for i := range o.Nodes {
		n := &o.Nodes[i]
		key := fmt.Sprintf("nodes[%d]", i)
		if !nodeName.MatchString(n.Name) {
			bad(key+".name", "%q must be letters, digits, dots and dashes", n.Name)
		}
		if key += " (" + n.Name + ")"; seen[n.Name] {
			bad(key+".name", "is used twice")
		}
		seen[n.Name] = true
		if n.Default {
			defaults++
		}
		if n.Cluster = cmp.Or(n.Cluster, n.Name); !nodeName.MatchString(n.Cluster) {
			bad(key+".cluster", "%q must be letters, digits, dots and dashes", n.Cluster)
		}
		if len(n.Jump) > MaxJumps {
			bad(key+".jump", "has %d hosts, at most %d are allowed", len(n.Jump), MaxJumps)
		}
		errs = append(errs, n.Login.validate("remote."+key, len(o.KnownHosts) > 0))
		for j := range n.Jump {
			errs = append(
				errs,
				n.Jump[j].Login.validate(
					fmt.Sprintf("remote.%s.jump[%d]", key, j),
					len(o.KnownHosts) > 0,
				),
			)
		}
	}
	if len(o.Nodes) == 1 {
		o.Nodes[0].Default = true
	} else if defaults > 1 {
		bad("nodes", "%d have default = true, at most one may", defaults)
	}
	return errors.Join(errs...)
}

func (l *Login) validate(key string, knownHosts bool) error {
	var errs []error
	bad := func(sub, format string, args ...any) {
		errs = append(errs, fmt.Errorf(key+"."+sub+": "+format, args...))
	}
	l.Port = cmp.Or(l.Port, 22)
	if !hostName.MatchString(l.Host) {
		bad("host", "%q is not a host name or address", l.Host)
	}
	if l.Port < 1 || l.Port > 65535 {
		bad("port", "must be 1 to 65535, is %d", l.Port)
	}
	if !userName.MatchString(l.User) {
		bad("user", "%q is not a user name", l.User)
	}
	if l.HostKey != "" && !pin.MatchString(l.HostKey) {
		bad(
			"host_key",
			"%q is not a fingerprint; write it as `ssh-keygen -lf FILE` prints it: SHA256: and 43 characters",
			l.HostKey,
		)
	}
	if l.HostKey == "" && !knownHosts {
		bad(
			"host_key",
			"is missing, and so is remote.known_hosts: without one of them nobody can tell the host from an impostor",
		)
	}
	if l.IdentityFile == "" && l.PasswordFile == "" && !l.Agent {
		bad("identity_file", "is missing; set identity_file, password_file or agent")
	}
	if l.IdentityFile == "" && (l.PassphraseFile != "" || l.CertificateFile != "") {
		bad("identity_file", "is missing; passphrase_file and certificate_file belong to it")
	}
	return errors.Join(errs...)
}

// ValidName reports whether a node or a cluster may be called s.
func ValidName(s string) bool { return nodeName.MatchString(s) }

// ValidHost reports whether s may be a host name or an address.
func ValidHost(s string) bool { return hostName.MatchString(s) }

// Addr is host:port.
func (l Login) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

func (n NodeOptions) node() gate.Node {
	return gate.Node{
		Name:    n.Name,
		Cluster: n.Cluster,
		Host:    n.Host,
		User:    n.User,
		Port:    n.Port,
		Default: n.Default,
	}
}

// Package remote runs allowed operations on nodes over SSH and SFTP.
package remote

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Options is the table [remote]. A zero field means the default that its comment names.
type Options struct {
	// directory of local files; each principal has a folder in it
	Workspace string        `koanf:"workspace" path:"true"`
	Nodes     []NodeOptions `koanf:"nodes"` // the inventory
	// files in OpenSSH's format, read again at each dial; for hosts without host_key
	KnownHosts []string `koanf:"known_hosts" path:"true"`

	// sessions at once on one connection, 5; one principal leaves two (of all connections to a
	// node) to the others, and sshd refuses more under load long before its MaxSessions
	MaxSessions int `koanf:"max_sessions"`
	MaxConns    int `koanf:"-"` // to one node, 2
	// TCP, banner, key exchange and authentication of all hops together, 10s
	DialTimeout time.Duration `koanf:"-"`
	// to open a channel or have a request answered, 15s
	StepTimeout  time.Duration `koanf:"-"`
	StallTimeout time.Duration `koanf:"-"` // of a transfer that moves nothing, 30s
	// between probes, 15s; after three intervals without an answer the peer is dead
	KeepAlive time.Duration `koanf:"-"`
	IdleClose time.Duration `koanf:"-"` // of a connection that is not used, 10m
	// of an operation without a shorter limit, 5m
	ExecTimeout time.Duration `koanf:"exec_timeout"`
	Warm        bool          `koanf:"-"` // connect to every node at the start

	// bytes of stdout, and of stderr, 1 MiB; at most 16 MiB
	MaxOutput int64 `koanf:"-"`
	MaxFile   int64 `koanf:"max_file"` // bytes of a transferred file, 10 MiB
	// uploads up to this size are read back and compared, 16 MiB; every upload has its size checked
	VerifyBytes int64 `koanf:"-"`
	// where staging directories are made on a node, /tmp
	StageRoot string `koanf:"stage_root"`

	Now   func() time.Time `koanf:"-"` // nil for time.Now
	Reads []string         `koanf:"-"` // commands that Ask may run; see there
	// HostID is 8 hexadecimal digits that stay the same for all processes which share a workspace
	// and a store; "" for random ones.
	HostID string `koanf:"-"`
	// Made records a temporary directory of a node, or with node "" a temporary file of the
	// workspace, before it is made; an error stops the operation. Removed is called when it is
	// gone, perhaps more than once. See [Remote.Clean]. Both may be nil.
	Made    func(node, name string) error `koanf:"-"`
	Removed func(node, name string)       `koanf:"-"`
}

// NodeOptions is one entry of [[remote.nodes]]: a name for tools and policies, and the way there.
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
	HostKey string `koanf:"host_key"`
	// private key, readable by its owner only
	IdentityFile   string `koanf:"identity_file" path:"true"`
	PassphraseFile string `koanf:"passphrase_file" path:"true"` // of the private key
	// OpenSSH certificate of the private key
	CertificateFile string `koanf:"certificate_file" path:"true"`
	PasswordFile    string `koanf:"password_file" path:"true"` // readable by its owner only
	// keys of the agent at SSH_AUTH_SOCK; the agent is never forwarded
	Agent bool `koanf:"agent"`
}

const (
	maxOutput = 16 << 20 // hard cap on Options.MaxOutput
	maxData   = 1 << 20  // bytes of file data in one response
	// MaxJumps is how many hosts a connection may go through.
	MaxJumps = 3
)

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,253}[A-Za-z0-9])?$|^::1$`)
	pin      = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)
	hostID   = regexp.MustCompile(`^[0-9a-f]{8}$`)
)

// withDefaults returns the options with their defaults.
func (o Options) withDefaults() Options {
	o.MaxSessions, o.MaxConns = cmp.Or(o.MaxSessions, 5), cmp.Or(o.MaxConns, 2)
	o.DialTimeout = cmp.Or(o.DialTimeout, 10*time.Second)
	o.StepTimeout = cmp.Or(o.StepTimeout, 15*time.Second)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.IdleClose = cmp.Or(o.IdleClose, 10*time.Minute)
	o.ExecTimeout = cmp.Or(o.ExecTimeout, 5*time.Minute)
	o.MaxOutput, o.MaxFile = cmp.Or(o.MaxOutput, 1<<20), cmp.Or(o.MaxFile, 10<<20)
	o.VerifyBytes, o.StageRoot = cmp.Or(o.VerifyBytes, 16<<20), cmp.Or(o.StageRoot, "/tmp")
	if o.HostID == "" {
		o.HostID = randomHex(4)
	}
	if o.Now == nil {
		o.Now = time.Now
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
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("remote."+key+": "+format, args...))
	}
	between := func(key string, v, least, most int64) {
		if v < least || v > most {
			bad(key, "must be %d to %d, is %d", least, most, v)
		}
	}
	if o.Workspace == "" {
		bad("workspace", "is empty; name the directory that holds uploads and downloads")
	}
	between("max_sessions", int64(o.MaxSessions), 2, 10)
	between("max_conns", int64(o.MaxConns), 1, 10)
	between("max_output", o.MaxOutput, 1, maxOutput)
	between("max_file", o.MaxFile, 1, 1<<50)
	between("verify_bytes", o.VerifyBytes, 0, 1<<50)
	for i, d := range []time.Duration{o.DialTimeout, o.StepTimeout, o.StallTimeout, o.KeepAlive,
		o.IdleClose, o.ExecTimeout} {
		if d < time.Millisecond || d > 24*time.Hour {
			bad([]string{"dial_timeout", "step_timeout", "stall_timeout", "keep_alive",
				"idle_close", "exec_timeout"}[i], "must be 1ms to 24h, is %s", d)
		}
	}
	if _, err := cleanRemote(o.StageRoot); err != nil {
		bad("stage_root", "%v", err)
	}
	if !hostID.MatchString(o.HostID) {
		errs = append(errs, fmt.Errorf("remote: HostID %q must be 8 hexadecimal digits", o.HostID))
	}
	seen, defaults := map[string]bool{}, 0
	for i, n := range o.Nodes {
		key := fmt.Sprintf("remote.nodes[%d]", i)
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("%s.name: %q is used twice", key, n.Name))
		}
		seen[n.Name] = true
		if n.Default {
			defaults++
		}
		errs = append(errs, n.validate(key, len(o.KnownHosts) > 0))
	}
	if defaults > 1 {
		bad("nodes", "%d have default = true, at most one may", defaults)
	}
	return errors.Join(errs...)
}

func (n NodeOptions) validate(key string, knownHosts bool) error {
	var errs []error
	if !ValidName(n.Name) {
		errs = append(errs, fmt.Errorf("%s.name: %q must be letters, digits, dots and dashes", key,
			n.Name))
	} else if !ValidName(n.Cluster) {
		errs = append(errs, fmt.Errorf("%s.cluster: %q must be letters, digits, dots and dashes",
			key, n.Cluster))
	}
	if len(n.Jump) > MaxJumps {
		errs = append(errs, fmt.Errorf("%s.jump: has %d hosts, at most %d are allowed", key,
			len(n.Jump), MaxJumps))
	}
	errs = append(errs, n.Login.validate(key, knownHosts))
	for i, j := range n.Jump {
		errs = append(errs, j.Login.validate(fmt.Sprintf("%s.jump[%d]", key, i), knownHosts))
	}
	return errors.Join(errs...)
}

func (l Login) validate(key string, knownHosts bool) error {
	var errs []error
	bad := func(sub, format string, args ...any) {
		errs = append(errs, fmt.Errorf(key+"."+sub+": "+format, args...))
	}
	if !ValidHost(l.Host) {
		bad("host", "%q is not a host name or address", l.Host)
	}
	if l.Port < 1 || l.Port > 65535 {
		bad("port", "must be 1 to 65535, is %d", l.Port)
	}
	if !userName.MatchString(l.User) {
		bad("user", "%q is not a user name", l.User)
	}
	if l.HostKey != "" && !pin.MatchString(l.HostKey) {
		bad("host_key", "%q is not a fingerprint; write it as `ssh-keygen -lf FILE` prints it: "+
			"SHA256: and 43 characters", l.HostKey)
	}
	if l.HostKey == "" && !knownHosts {
		bad("host_key", "is missing, and so is remote.known_hosts: one of them has to tell the "+
			"host from an impostor")
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

package conn

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

// Limits bound the connections of each node. A zero field means the default that its comment names.
type Limits struct {
	// sessions at once on one connection, 5; one principal leaves two (of all connections to a
	// node) to the others, and sshd refuses more under load long before its MaxSessions
	MaxSessions int
	MaxConns    int // to one node, 2
	// TCP, banner, key exchange and authentication of all hops together, 10s
	DialTimeout time.Duration
	StepTimeout time.Duration // to open a channel or have a request answered, 15s
	// between probes, 15s; after three intervals without an answer the peer is dead
	KeepAlive time.Duration
	IdleClose time.Duration // of a connection that is not used, 10m
}

// maxJumps is how many hosts a connection may go through.
const maxJumps = 3

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]{0,253}[A-Za-z0-9])?$|^::1$`)
	pin      = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)
)

// WithDefaults returns the limits with their defaults.
func (l Limits) WithDefaults() Limits {
	l.MaxSessions, l.MaxConns = cmp.Or(l.MaxSessions, 5), cmp.Or(l.MaxConns, 2)
	l.DialTimeout = cmp.Or(l.DialTimeout, 10*time.Second)
	l.StepTimeout = cmp.Or(l.StepTimeout, 15*time.Second)
	l.KeepAlive = cmp.Or(l.KeepAlive, 15*time.Second)
	l.IdleClose = cmp.Or(l.IdleClose, 10*time.Minute)
	return l
}

// NodesWithDefaults returns a copy of the inventory with its defaults.
func NodesWithDefaults(nodes []NodeOptions) []NodeOptions {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Cluster, n.Port = cmp.Or(n.Cluster, n.Name), cmp.Or(n.Port, 22)
		n.Default = n.Default || len(nodes) == 1
		n.Jump = slices.Clone(n.Jump)
		for j := range n.Jump {
			n.Jump[j].Port = cmp.Or(n.Jump[j].Port, 22)
		}
	}
	return nodes
}

// ValidateNodes returns everything that is wrong with an inventory that has its defaults, naming
// keys of the configuration file.
func ValidateNodes(nodes []NodeOptions, knownHosts bool) error {
	var errs problems
	names, defaults := map[string]bool{}, 0
	for i, n := range nodes {
		key := fmt.Sprintf("remote.nodes[%d]", i)
		if names[n.Name] {
			errs.add(key+".name", "%q is used twice", n.Name)
		}
		names[n.Name] = true
		if n.Default {
			defaults++
		}
		errs.node(key, n, knownHosts)
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
	if !nodeName.MatchString(n.Name) {
		p.add(key+".name", "%q must be letters, digits, dots and dashes", n.Name)
	} else if !nodeName.MatchString(n.Cluster) {
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
	if !hostName.MatchString(l.Host) {
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

// Addr is host:port.
func (l Login) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

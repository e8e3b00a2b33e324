// Package sshtest is SSH servers to test against, good and bad ones.
package sshtest

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// Faults are the ways in which a Server misbehaves. Zero behaves well. They may be changed between
// connections with [Server.Set].
type Faults struct {
	// accepts the TCP connection and says nothing
	Silent bool
	// sends lines before its version for ever
	EndlessBanner bool
	SilentKEX     bool // says its version and nothing more
	SilentAuth    bool // never answers the authentication
	SilentGlobal  bool // never answers keepalives
	// never answers the opening of a channel
	SilentOpen bool
	// never answers the exec request, and does not run it
	SilentExec bool
	// sends requests of its own instead of an answer to the exec request
	FloodRequests bool
	// runs the command and never answers the exec request
	RunSilent bool
	// this many channels are refused first
	RefuseOpens int
	MaxSessions int // above that channels are refused
	// closes the channel without an exit status
	NoExit bool
	// drops the connection when the command has run
	DropAfterRun bool
	// drops the connection when the exec request arrives
	DropBeforeRun bool
	// tells the exit status but never the end of the output
	HoldOutput bool
	NoSFTP     bool                     // refuses the subsystem
	SFTP       func(io.ReadWriteCloser) // speaks instead of the SFTP server
	// stands between the SFTP server and the client
	WrapSFTP func(io.ReadWriteCloser) io.ReadWriteCloser
	// sends global requests all the time
	GlobalFlood bool
	// drops each connection after that time
	DisconnectAfter time.Duration
}

// Options of a Server. The zero value runs commands with /bin/sh and serves the whole file system
// of the test's own user.
type Options struct {
	Shell    []string // argv before the command; nil is /bin/sh -c
	Env      []string // of commands
	Exec     func(ctx context.Context, command string, in io.Reader, out, err io.Writer) int
	HostKey  ssh.Signer    // nil makes one
	HostKeys []ssh.Signer  // more of them, of other kinds
	CA       ssh.PublicKey // of user certificates; nil accepts the client key only
	Forward  bool          // direct-tcpip, as a jump host does
	Faults   Faults
	Listener net.Listener // nil listens on a free port of the loopback
}

// Server is an SSH server in this process.
type Server struct {
	Addr       string
	HostKey    ssh.Signer
	ClientFile string // private key that it accepts

	Conns    atomic.Int64 // accepted so far
	Open     atomic.Int64 // connections now
	Sessions atomic.Int64 // channels now
	Peak     atomic.Int64 // most channels at once

	o        Options
	listener net.Listener
	config   *ssh.ServerConfig
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex // guards the following
	faults   Faults
	conns    map[net.Conn]bool
	commands []string
}

// Set replaces the faults. Connections that are up notice it at their next step.
func (s *Server) Set(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Faults are those that hold now.
func (s *Server) Faults() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Commands are those that were run, in the order in which they started.
func (s *Server) Commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.commands...)
}

// Pin is the fingerprint of the host key.
func (s *Server) Pin() string { return ssh.FingerprintSHA256(s.HostKey.PublicKey()) }

// HostPort splits Addr.
func (s *Server) HostPort() (string, int) { return HostPort(s.Addr) }

// HostPort splits an address of the loopback.
func HostPort(addr string) (string, int) {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return host, n
}

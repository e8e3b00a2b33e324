// Package sshtest is SSH servers to test against, good and bad ones.
package sshtest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
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

// New starts a server, which the test's cleanup stops.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{o: o, faults: o.Faults, conns: map[net.Conn]bool{}, HostKey: o.HostKey}
	if s.HostKey == nil {
		s.HostKey = NewSigner(t)
	}
	var client ssh.PublicKey
	s.ClientFile, client = NewKeyFile(t)
	s.config = &ssh.ServerConfig{
		PublicKeyCallback: func(meta ssh.ConnMetadata,
			key ssh.PublicKey) (*ssh.Permissions, error) {
			if s.Faults().SilentAuth {
				<-s.ctx.Done()
			}
			if cert, isCert := key.(*ssh.Certificate); isCert && o.CA != nil {
				checker := ssh.CertChecker{
					IsUserAuthority: func(k ssh.PublicKey) bool {
						return string(k.Marshal()) == string(o.CA.Marshal())
					},
				}
				return checker.Authenticate(meta, cert)
			}
			if string(key.Marshal()) != string(client.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	s.config.AddHostKey(s.HostKey)
	for _, k := range o.HostKeys {
		s.config.AddHostKey(k)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.listener = o.Listener
	if s.listener == nil {
		var err error
		if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	s.Addr = s.listener.Addr().String()
	s.wg.Go(s.accept)
	t.Cleanup(s.Close)
	return s
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

// Drop resets all connections.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if tcp, is := c.(*net.TCPConn); is {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

// Close stops the server and waits for all it started. It may be called more than once.
func (s *Server) Close() {
	s.cancel()
	s.listener.Close()
	s.Drop()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.Conns.Add(1)
		s.Open.Add(1)
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			defer s.Open.Add(-1)
			defer func() {
				c.Close()
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			}()
			s.serve(c)
		})
	}
}

func (s *Server) serve(c net.Conn) {
	switch f := s.Faults(); {
	case f.Silent:
		io.Copy(io.Discard, c)
		return
	case f.EndlessBanner:
		for s.ctx.Err() == nil {
			if _, err := c.Write([]byte("wait a moment\r\n")); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		return
	case f.SilentKEX:
		c.Write([]byte("SSH-2.0-Silent\r\n"))
		io.Copy(io.Discard, c)
		return
	}
	conn, chans, reqs, err := ssh.NewServerConn(c, s.config)
	if err != nil {
		return
	}
	if d := s.Faults().DisconnectAfter; d == 1 { // at once, however busy the machine is
		c.Close()
	} else if d > 0 {
		defer time.AfterFunc(d, func() { c.Close() }).Stop()
	}
	s.wg.Go(func() {
		for r := range reqs {
			if r.WantReply && !s.Faults().SilentGlobal {
				r.Reply(false, nil)
			}
		}
	})
	if s.Faults().GlobalFlood {
		s.wg.Go(func() {
			for {
				_, _, err := conn.SendRequest("hostkeys-00@openssh.com", false, make([]byte, 1024))
				if err != nil {
					return
				}
			}
		})
	}
	var here atomic.Int64
	for nc := range chans {
		s.wg.Go(func() { s.channel(c, nc, &here) })
	}
}

package sshtest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

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

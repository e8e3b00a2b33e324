package sshtest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

func (s *Server) channel(c net.Conn, nc ssh.NewChannel, here *atomic.Int64) {
	f := s.Faults()
	if f.SilentOpen {
		return
	}
	if nc.ChannelType() == "direct-tcpip" && s.o.Forward {
		s.forward(nc)
		return
	}
	s.mu.Lock()
	refuse := s.faults.RefuseOpens > 0
	if refuse {
		s.faults.RefuseOpens--
	}
	s.mu.Unlock()
	if refuse || nc.ChannelType() != "session" ||
		f.MaxSessions > 0 && here.Load() >= int64(f.MaxSessions) {
		nc.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	defer here.Add(-1)
	here.Add(1)
	defer s.Sessions.Add(-1)
	if now := s.Sessions.Add(1); now > s.Peak.Load() {
		s.Peak.Store(now)
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	s.session(c, ch, reqs)
}

// session answers the requests of a channel until one of them has run a command or SFTP.
func (s *Server) session(c net.Conn, ch ssh.Channel, reqs <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	for r := range reqs {
		switch f := s.Faults(); {
		case r.Type == "exec" && f.DropBeforeRun:
			c.Close()
			return
		case r.Type == "exec" && f.FloodRequests:
			for range 1000 {
				if _, err := ch.SendRequest("x@example", false, nil); err != nil {
					return
				}
			}
		case r.Type == "exec" && f.SilentExec:
			continue
		case r.Type == "exec":
			if !f.RunSilent {
				r.Reply(true, nil)
			}
			var p struct{ Command string }
			ssh.Unmarshal(r.Payload, &p)
			s.wg.Go(func() { // the client's end of the channel, and its signals
				for r := range reqs {
					if r.Type == "signal" {
						cancel()
					}
				}
				cancel()
			})
			s.run(ctx, c, ch, p.Command)
			return
		case r.Type == "subsystem" && !f.NoSFTP:
			r.Reply(true, nil)
			s.wg.Go(func() {
				for range reqs {
				}
				cancel()
			})
			s.sftp(ch, f)
			return
		default:
			r.Reply(false, nil)
		}
	}
}

func (s *Server) run(ctx context.Context, c net.Conn, ch ssh.Channel, command string) {
	s.mu.Lock()
	s.commands = append(s.commands, command)
	s.mu.Unlock()
	var status int
	if s.o.Exec != nil {
		status = s.o.Exec(ctx, command, ch, ch, ch.Stderr())
	} else {
		status = s.shell(ctx, ch, command)
	}
	f := s.Faults()
	if f.DropAfterRun {
		c.Close()
		return
	}
	if !f.NoExit {
		ch.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, uint32(status)))
	}
	if f.HoldOutput {
		<-ctx.Done()
	}
}

func (s *Server) shell(ctx context.Context, ch ssh.Channel, command string) int {
	argv := append(append([]string(nil), s.o.Shell...), command)
	if len(s.o.Shell) == 0 {
		argv = []string{"/bin/sh", "-c", command}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// A test does not depend on the locale of who runs it.
	cmd.Env = slices.Concat(os.Environ(), []string{"LC_ALL=C.UTF-8"}, s.o.Env)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = ch, ch.Stderr(), 2*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return 255
	}
	if err := cmd.Start(); err != nil {
		io.WriteString(ch.Stderr(), err.Error())
		return 255
	}
	s.wg.Go(func() {
		io.Copy(in, ch)
		in.Close()
	})
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) &&
		!errors.Is(err, exec.ErrWaitDelay) {
		return 255
	}
	return cmd.ProcessState.ExitCode()
}

func (s *Server) sftp(ch ssh.Channel, f Faults) {
	var rw io.ReadWriteCloser = ch
	if f.WrapSFTP != nil {
		rw = f.WrapSFTP(ch)
	}
	if f.SFTP != nil {
		f.SFTP(rw)
		return
	}
	srv, err := sftp.NewServer(rw)
	if err != nil {
		return
	}
	srv.Serve()
	srv.Close()
	ch.SendRequest("exit-status", false, make([]byte, 4))
}

func (s *Server) forward(nc ssh.NewChannel) {
	var to struct {
		Host     string
		Port     uint32
		From     string
		FromPort uint32
	}
	if ssh.Unmarshal(nc.ExtraData(), &to) != nil {
		nc.Reject(ssh.ConnectionFailed, "bad address")
		return
	}
	out, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		out.Close()
		return
	}
	s.wg.Go(func() { ssh.DiscardRequests(reqs) })
	s.wg.Go(func() {
		io.Copy(ch, out)
		ch.Close()
	})
	io.Copy(out, ch)
	out.Close()
}

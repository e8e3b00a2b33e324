package conn

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrincipalsTakeTurns(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	host, port := s.HostPort()
	p := New([]NodeOptions{{Name: "n1", Login: Login{Host: host, Port: port, User: "root",
		IdentityFile: s.ClientFile, HostKey: s.Pin()}}}, nil,
		Limits{MaxConns: 1, MaxSessions: 2, DialTimeout: 30 * time.Second})
	defer p.Close()
	n := p.Nodes()[0]
	one, err := n.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	other, err := n.Acquire(t.Context(), "y")
	if err != nil {
		t.Fatal(err)
	}
	impatient, stop := context.WithCancel(t.Context())
	order := ""
	var all, gaveUp sync.WaitGroup
	for i, who := range "aaabbdcad" {
		if who == 'd' || i == 7 {
			gaveUp.Go(func() {
				_, err := n.Acquire(impatient, string(who))
				op := (*terms.OpError)(nil)
				if !errors.As(err, &op) || op.Code != "cancelled" || op.Outcome != terms.Failed ||
					!strings.Contains(op.Message, "nothing was sent") {
					t.Errorf("gave up with %v", err)
				}
			})
		} else {
			all.Go(func() {
				c, err := n.Acquire(t.Context(), string(who))
				if err != nil {
					t.Error(err)
					return
				}
				order += string(who) // there is one session, so that its holder is alone
				n.Release(c, string(who))
			})
		}
		for p.State()[0].Waiting <= i {
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	gaveUp.Wait()
	n.Release(one, "x")
	all.Wait()
	n.Release(other, "y")
	if order != "abcaba" {
		t.Errorf("the order was %s, want abcaba", order)
	}
	if left := p.State()[0]; left.Sessions+left.Waiting != 0 {
		t.Errorf("left: %+v", left)
	}
}

// A connection that is made ahead and fails, while nobody waits for it, does not keep the next one
// that needs it from trying at once.
func TestAFailedConnectionAheadOfACallLeavesNoTrace(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var up atomic.Bool
	var spliced sync.WaitGroup
	spliced.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if !up.Load() {
				c.Close()
				continue
			}
			spliced.Go(func() { splice(c, s.Addr) })
		}
	})
	p := New([]NodeOptions{{Name: "n1", Login: Login{Host: "127.0.0.1",
		Port: l.Addr().(*net.TCPAddr).Port, User: "root", IdentityFile: s.ClientFile,
		HostKey: s.Pin()}}}, nil, Limits{MaxConns: 2, MaxSessions: 2, DialTimeout: time.Minute})
	defer func() { p.Close(); l.Close(); spliced.Wait() }()
	n := p.Nodes()[0]
	state := func() (dialing bool, fails int, last error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.dialing, n.fails, n.lastErr
	}
	n.Connect()
	dialing, fails, last := state()
	if !dialing {
		t.Error("it does not connect")
	}
	for dialing {
		time.Sleep(time.Millisecond)
		dialing, fails, last = state()
	}
	if fails != 0 || last != nil {
		t.Errorf("%d failures are remembered, the last as %v", fails, last)
	}
	if _, err := n.Acquire(t.Context(), "x"); err == nil {
		t.Error("a node that is down has a session")
	}
	n.Connect()
	if dialing, _, last := state(); dialing || last == nil {
		t.Errorf("it connects ahead (%t) although the last attempt failed: %v", dialing, last)
	}
	up.Store(true)
	time.Sleep(400 * time.Millisecond) // the pause after a failure that somebody saw
	c, err := n.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if n.Connect(); p.State()[0].Connections != 1 {
		t.Errorf("%+v", p.State()[0])
	}
	if dialing, _, _ := state(); dialing {
		t.Error("it makes a second connection ahead")
	}
	n.Release(c, "x")
}

// splice copies between a connection and an address until one of them ends.
func splice(here net.Conn, to string) {
	defer here.Close()
	there, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer there.Close()
	go func() { _, _ = io.Copy(there, here); there.Close() }()
	_, _ = io.Copy(here, there)
}

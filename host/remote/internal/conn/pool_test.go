package conn

import (
	"context"
	"errors"
	"strings"
	"sync"
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

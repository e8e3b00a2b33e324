package remote

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"go.uber.org/goleak"
)

// leakless fails the test when, after everything it started is closed, a goroutine or a file
// descriptor more is there than before.
func leakless(t *testing.T) {
	t.Helper()
	before, ignore := fds(t), goleak.IgnoreCurrent()
	t.Cleanup(func() { // runs last: cleanups are a stack
		if err := goleak.Find(ignore); err != nil {
			t.Error(err)
		}
		after := fds(t)
		for end := time.Now().Add(10 * time.Second); after > before &&
			time.Now().Before(end); after = fds(t) {
			time.Sleep(5 * time.Millisecond)
		}
		if after > before {
			t.Errorf("%d file descriptors before, %d after", before, after)
		}
	})
}

func fds(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// quick gives up silence early. All else has to be done within the same time, so only tests of
// silence use it, and they try again what has to work (healthy).
func quick(o *Options) {
	const short = 2 * time.Second
	o.DialTimeout, o.StepTimeout, o.StallTimeout, o.KeepAlive = short, short, short, short/2
}

// reached calls f when the node runs a command that holds the words.
func reached(t *testing.T, s *sshtest.Server, words string, f func()) {
	go func() {
		for !slices.ContainsFunc(s.Commands(), func(c string) bool {
			return strings.Contains(c, words)
		}) {
			if t.Context().Err() != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		f()
	}()
}

func TestExecFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		faults  sshtest.Faults
		warm    bool // connect and probe before the fault
		code    string
		outcome terms.Outcome
		words   string
		ran     int            // how often the command reached the node
		change  func(*Options) // quick where an answer is waited for in vain
	}{
		{"a silent host is left in time", sshtest.Faults{Silent: true}, false, "connection",
			terms.Failed, "no answer within", 0, quick},
		{"endless lines before the version are left in time", sshtest.Faults{EndlessBanner: true},
			false, "connection", terms.Failed, "", 0, quick},
		{"silence after the version is left in time", sshtest.Faults{SilentKEX: true}, false,
			"connection", terms.Failed, "no answer within", 0, quick},
		{"a silent authentication is left in time", sshtest.Faults{SilentAuth: true}, false,
			"connection", terms.Failed, "no answer within", 0, quick},
		{"a silent channel open closes the connection", sshtest.Faults{SilentOpen: true}, true,
			"connection", terms.Failed, "nothing was sent", 0, quick},
		{"a node that refuses every channel is told of MaxSessions",
			sshtest.Faults{RefuseOpens: 1 << 30}, true, "connection", terms.Failed, "MaxSessions",
			0, quick},
		{"an unanswered exec request may have run", sshtest.Faults{SilentExec: true}, true, "lost",
			terms.Unknown, "look before you repeat", 0, quick},
		{"requests of the node instead of an answer", sshtest.Faults{FloodRequests: true}, true,
			"lost", terms.Unknown, "look before you repeat", 0, quick},
		{"an unanswered exec request that ran is unknown, and runs once",
			sshtest.Faults{RunSilent: true, HoldOutput: true}, true, "lost", terms.Unknown,
			"look before you repeat", 1, quick},
		{"a connection dropped at the exec request is unknown", sshtest.Faults{DropBeforeRun: true},
			true, "lost", terms.Unknown, "look before you repeat", 0, nil},
		{"a connection dropped after the command is unknown, and runs once",
			sshtest.Faults{DropAfterRun: true}, true, "lost", terms.Unknown,
			"look before you repeat", 1, nil},
		{"a session without an exit status is unknown", sshtest.Faults{NoExit: true}, true, "lost",
			terms.Unknown, "without an exit status", 1, nil},
		{"a peer that answers no keepalive is dead",
			sshtest.Faults{SilentGlobal: true, HoldOutput: true, NoExit: true}, true, "lost",
			terms.Unknown, "no sign of life", 1, quick},
		{"a host key exchange dropped at once is a lost connection",
			sshtest.Faults{DisconnectAfter: time.Nanosecond}, false, "connection", terms.Failed, "",
			0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakless(t)
			s := sshtest.New(t, sshtest.Options{})
			r := newRemote(t, s, func(o *Options) {
				if c.change != nil {
					c.change(o)
				}
			})
			if c.warm {
				healthy(t, r)
			}
			before := len(s.Commands())
			s.Set(c.faults)
			began := time.Now()
			_, err := do(
				t.Context(),
				r,
				abi.SSHExec{OnNode: on("n1"), Argv: []string{"echo", "effect"}},
				yellow,
			)
			refused(t, err, c.code, c.outcome, c.words, "n1")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if got := len(s.Commands()) - before; got != c.ran {
				t.Errorf("the command ran %d times, want %d: %q", got, c.ran, s.Commands())
			}
			s.Set(sshtest.Faults{})
			healthy(t, r)
		})
	}
}

func TestRefusedChannelsAreTriedAgain(t *testing.T) {
	leakless(t)
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	mustExec(t, r, "true")
	s.Set(sshtest.Faults{RefuseOpens: 5})
	if v := mustExec(t, r, "echo", "x"); v.Stdout != "x\n" {
		t.Errorf("%+v", v)
	}
}

func TestASecondConnectionWhenTheNodeAllowsFewSessions(t *testing.T) {
	leakless(t)
	s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{MaxSessions: 1}})
	r := newRemote(t, s)
	// SFTP keeps the only session of the first connection.
	if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"}, green); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for range 3 {
		if _, err := execute(t.Context(), r, "true"); err != nil {
			refused++
		}
	}
	if refused > 0 || s.Conns.Load() != 2 {
		t.Errorf("%d commands refused, %d connections", refused, s.Conns.Load())
	}
}

func TestCancelReachesTheNodeAtOnce(t *testing.T) {
	leakless(t)
	ended := make(chan time.Time, 1)
	began := make(chan struct{})
	s := sshtest.New(
		t,
		sshtest.Options{
			Exec: func(ctx context.Context, command string, _ io.Reader, stdout, _ io.Writer) int {
				if !strings.Contains(command, "forever") {
					return local(ctx, command, stdout)
				}
				close(began)
				<-ctx.Done()
				ended <- time.Now()
				return 1
			},
		},
	)
	r := newRemote(t, s)
	mustExec(t, r, "true")
	ctx, cancel := context.WithCancel(t.Context())
	var at time.Time
	go func() {
		<-began
		at = time.Now()
		cancel()
	}()
	_, err := execute(ctx, r, "forever")
	if took := time.Since(at); took > 20*time.Second {
		t.Errorf("the caller waited %s", took)
	}
	refused(t, err, "cancelled", terms.Unknown, "may still be running")
	select {
	case then := <-ended:
		if then.Sub(at) > 20*time.Second {
			t.Errorf("the node knew after %s", then.Sub(at))
		}
	case <-time.After(30 * time.Second):
		t.Error("the node never knew")
	}
	if v := mustExec(t, r, "echo", "x"); v.Stdout != "x\n" || s.Conns.Load() != 1 {
		t.Errorf("%+v; %d connections: it should have survived", v, s.Conns.Load())
	}
}

func TestDeadline(t *testing.T) {
	leakless(t)
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	mustExec(t, r, "true")
	for name, c := range map[string]struct {
		op abi.SSHExec
		d  terms.Decision
	}{
		"of the operation": {abi.SSHExec{OnNode: abi.OnNode{Common: abi.Common{TimeoutMS: 2000},
			Node: "n1"}}, yellow},
		"of the obligation": {abi.SSHExec{OnNode: on("n1")},
			terms.Decision{Allow: true, Tier: terms.Yellow,
				Obligations: terms.Obligations{Timeout: 2 * time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			// It never ends and never stops talking. Its output stays below what ends a flood.
			c.op.Argv = []string{"sh", "-c", "while echo y; do :; done & while echo y; do :; done"}
			began := time.Now()
			_, err := do(t.Context(), r, c.op, c.d)
			refused(t, err, "timeout", terms.Unknown, "may still be running")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	t.Run("in the queue, nothing was sent", func(t *testing.T) {
		n := r.nodes["n1"]
		var held []*conn.Conn
		for i := range r.opts.MaxSessions * r.opts.MaxConns {
			c, err := n.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		before := len(s.Commands())
		_, err := do(
			t.Context(),
			r,
			abi.SSHExec{
				OnNode: abi.OnNode{Common: abi.Common{TimeoutMS: 50}, Node: "n1"},
				Argv:   []string{"true"},
			},
			yellow,
		)
		refused(t, err, "timeout", terms.Failed, "not sent")
		for i, c := range held {
			n.Release(c, fmt.Sprint(i))
		}
		mustExec(t, r, "true")
		// one more, and a probe of the second connection
		if got := len(s.Commands()); got > before+2 {
			t.Errorf("%d commands ran", got-before)
		}
	})
}

func TestNetworkFaults(t *testing.T) {
	setup := func(t *testing.T, change ...func(*Options)) (
		*sshtest.Server, *sshtest.Proxy, *Remote,
	) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{})
		p := sshtest.NewProxy(t, s.Addr)
		r := newRemote(t, s, append(change, func(o *Options) {
			o.Nodes[0].Host, o.Nodes[0].Port = sshtest.HostPort(p.Addr)
		})...)
		healthy(t, r)
		return s, p, r
	}
	t.Run("a reset while a command runs is unknown", func(t *testing.T) {
		s, p, r := setup(t)
		reached(t, s, "sleep", p.Reset)
		_, err := execute(t.Context(), r, "sleep", "5")
		refused(t, err, "lost", terms.Unknown, "look before")
		mustExec(t, r, "true")
	})
	t.Run("a black hole is found by keepalive", func(t *testing.T) {
		s, p, r := setup(t, func(o *Options) { o.KeepAlive = time.Second })
		reached(t, s, "sleep", func() { p.Set(sshtest.Weather{BlackHole: true}) })
		began := time.Now()
		_, err := execute(t.Context(), r, "sleep", "30")
		refused(t, err, "lost", terms.Unknown, "no sign of life")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("found after %s", took)
		}
		p.Set(sshtest.Weather{})
		p.Reset()
		healthy(t, r)
	})
	t.Run("a cancel in a black hole does not wait", func(t *testing.T) {
		_, p, r := setup(t)
		p.Set(sshtest.Weather{BlackHole: true})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := execute(ctx, r, "true")
		refused(t, err, "timeout", terms.Failed, "not sent")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	t.Run("a slow network works", func(t *testing.T) {
		_, p, r := setup(t)
		p.Set(sshtest.Weather{Latency: 20 * time.Millisecond})
		if v := mustExec(t, r, "echo", "x"); v.Stdout != "x\n" {
			t.Errorf("%+v", v)
		}
	})
	t.Run("a stalled upload ends and leaves the place alone", func(t *testing.T) {
		_, p, r := setup(t, quick)
		dir := t.TempDir()
		write(t, filepath.Join(r.opts.Workspace, "agent-a", "f"), make([]byte, 8<<20))
		if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: dir},
			green); err != nil {
			t.Fatal(err)
		}
		p.Set(sshtest.Weather{Rate: 4 << 20}) // it is not done before the network stops
		start := p.Bytes.Load()
		go func() {
			for p.Bytes.Load() < start+1<<20 {
				time.Sleep(time.Millisecond)
			}
			p.Set(sshtest.Weather{BlackHole: true})
		}()
		_, err := do(
			t.Context(),
			r,
			abi.SFTPPut{OnNode: on("n1"), Local: "f", Path: dir + "/f"},
			yellow,
		)
		refused(t, err, "connection", terms.Failed) // it was tried once more
		if _, err := os.Stat(dir + "/f"); !os.IsNotExist(err) {
			t.Errorf("the place holds something: %v", err)
		}
	})
	t.Run("a cut download leaves nothing behind", func(t *testing.T) {
		_, p, r := setup(t)
		file := filepath.Join(t.TempDir(), "f")
		write(t, file, make([]byte, 8<<20))
		p.Set(sshtest.Weather{CutAfter: 2 << 20})
		_, err := do(t.Context(), r, abi.SFTPGet{OnNode: on("n1"), Path: file, Local: "f"}, yellow)
		refused(t, err, "lost", terms.Failed)
		if left, _ := os.ReadDir(filepath.Join(r.opts.Workspace, "agent-a")); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestDialIsNotRepeatedAtOnce(t *testing.T) {
	leakless(t)
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s, func(o *Options) { o.Nodes[0].IdentityFile, _ = sshtest.NewKeyFile(t) })
	for range 20 {
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "auth", terms.Failed, "authorized_keys")
	}
	if n := s.Conns.Load(); n > 3 {
		t.Errorf("%d attempts to log in with a key that is refused", n)
	}
}

func TestFloodKeepsMemoryFlat(t *testing.T) {
	leakless(t)
	s := sshtest.New(
		t,
		sshtest.Options{
			Exec: func(ctx context.Context, command string, _ io.Reader, stdout, _ io.Writer) int {
				if !strings.Contains(command, "flood") {
					return local(ctx, command, stdout)
				}
				chunk := make([]byte, 64<<10)
				for range 256 << 20 / len(chunk) {
					if _, err := stdout.Write(chunk); err != nil {
						return 1
					}
				}
				return 5
			},
		},
	)
	r := newRemote(t, s)
	mustExec(t, r, "true")
	peak := watchMemory(t)
	v := mustExec(t, r, "flood")
	if v.Exit != 5 || !v.Truncated || len(v.Stdout) != 1<<20 {
		t.Errorf("exit %d, truncated %v, %d bytes", v.Exit, v.Truncated, len(v.Stdout))
	}
	if grew := peak(); grew > 32<<20 {
		t.Errorf("memory grew by %d MiB", grew>>20)
	}
}

func TestATransferThatIsCancelledLeavesNothing(t *testing.T) {
	leakless(t)
	s := sshtest.New(t, sshtest.Options{})
	p := sshtest.NewProxy(t, s.Addr)
	r := newRemote(
		t,
		s,
		func(o *Options) { o.Nodes[0].Host, o.Nodes[0].Port = sshtest.HostPort(p.Addr) },
	)
	d, ws := t.TempDir(), filepath.Join(r.opts.Workspace, "agent-a")
	write(t, d+"/down", make([]byte, 8<<20))
	write(t, ws+"/up", make([]byte, 8<<20))
	if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: d}, green); err != nil {
		t.Fatal(err)
	}
	for name, op := range map[string]abi.Op{
		"download": abi.SFTPGet{OnNode: on("n1"), Path: d + "/down", Local: "down"},
		"upload":   abi.SFTPPut{OnNode: on("n1"), Local: "up", Path: d + "/up"},
	} {
		t.Run(name, func(t *testing.T) {
			p.Set(sshtest.Weather{Rate: 2 << 20})
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := do(ctx, r, op, yellow)
			refused(t, err, "timeout", terms.Failed, "nothing was changed")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			p.Set(sshtest.Weather{})
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				there, _ := os.ReadDir(d)
				here, _ := os.ReadDir(ws)
				if len(there) == 1 && len(here) == 1 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("left: %v, %v", there, here)
				}
			}
		})
	}
	if s.Conns.Load() != 1 {
		t.Errorf("%d connections: it should have survived", s.Conns.Load())
	}
}

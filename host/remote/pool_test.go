package remote

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestPool(t *testing.T) {
	t.Run(
		"no more than five sessions on a connection, a second connection only above that",
		func(t *testing.T) {
			leakless(t)
			s := sshtest.New(t, sshtest.Options{})
			r := newRemote(t, s)
			mustExec(t, r, "true")
			for range 20 {
				mustExec(t, r, "true")
			}
			if s.Conns.Load() != 1 {
				t.Errorf("%d connections for one caller", s.Conns.Load())
			}
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					if _, err := execute(t.Context(), r, "sleep", "0.01"); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if s.Conns.Load() != 2 || s.Peak.Load() > 10 {
				t.Errorf(
					"%d connections, %d sessions at once, want 2 and at most 10",
					s.Conns.Load(),
					s.Peak.Load(),
				)
			}
		},
	)
	t.Run("callers that come together share one dial", func(t *testing.T) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{})
		r := newRemote(t, s, func(o *Options) { o.MaxConns = 1 })
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if _, err := execute(t.Context(), r, "true"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if s.Conns.Load() != 1 {
			t.Errorf("%d connections", s.Conns.Load())
		}
	})
	t.Run("a connection that nobody uses is closed", func(t *testing.T) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{})
		// three times as long without a sign of life is a dead peer
		r := newRemote(t, s, func(o *Options) {
			o.KeepAlive, o.IdleClose = time.Second, 500*time.Millisecond
		})
		mustExec(t, r, "true")
		if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"},
			green); err != nil {
			t.Fatal(err)
		}
		if !r.Connected() {
			t.Error("not connected")
		}
		for end := time.Now().Add(20 * time.Second); r.Connected(); time.Sleep(
			5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("still connected")
			}
		}
		mustExec(t, r, "true")
	})
	t.Run("a connection in use is not closed", func(t *testing.T) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{})
		// three times as long without a sign of life is a dead peer
		r := newRemote(t, s, func(o *Options) {
			o.KeepAlive, o.IdleClose = time.Second, 50*time.Millisecond
		})
		mustExec(t, r, "sleep", "2.5")
	})
	t.Run("requests of the peer in floods do no harm", func(t *testing.T) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{GlobalFlood: true}})
		r := newRemote(t, s)
		for range 5 {
			mustExec(t, r, "true")
		}
	})
	t.Run("close ends what is under way and may be called again", func(t *testing.T) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{})
		r := newRemote(t, s)
		mustExec(t, r, "true")
		got := make(chan error, 1)
		go func() {
			_, err := execute(t.Context(), r, "sleep", "30")
			got <- err
		}()
		for !slices.ContainsFunc(s.Commands(), func(c string) bool {
			return strings.Contains(c, "30")
		}) {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		r.Close()
		refused(t, <-got, "lost", terms.Unknown, "shutting down")
		r.Close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "connection", terms.Failed, "shutting down")
	})
}

func TestOnePrincipalLeavesSessionsToTheOthers(t *testing.T) {
	as := func(ctx context.Context, r *Remote, who string, argv ...string) error {
		q := question(abi.SSHExec{OnNode: on("n1"), Argv: argv})
		q.Call.Principal.ID = who
		_, err := r.Execute(ctx, q, green)
		return err
	}
	for name, c := range map[string]struct {
		conns, most int
		lone        bool // the node takes no second connection
	}{
		"of two connections":                    {conns: 2, most: 8},
		"of one":                                {conns: 1, most: 3},
		"of one, when no second one can be had": {conns: 2, most: 3, lone: true},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			door, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := sshtest.New(t, sshtest.Options{Listener: door})
			r := newRemote(t, s, func(o *Options) { o.MaxConns = c.conns })
			if mustExec(t, r, "true"); c.lone {
				door.Close()
			}
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() {
					if err := as(ctx, r, "greedy", "sleep", "60"); err == nil {
						t.Error("a command of a minute ended at once")
					}
				})
			}
			for p := r.Pool()[0]; p.Sessions < c.most ||
				p.Sessions+p.Waiting < 32; p = r.Pool()[0] {
				time.Sleep(time.Millisecond)
			}
			soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range 5 {
				if err := as(soon, r, "modest", "true"); err != nil {
					t.Error(err)
				}
			}
			// A session of the other principal is given back a moment after its command ended.
			held := r.Pool()[0].Sessions
			for end := time.Now().Add(5 * time.Second); held > c.most && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				held = r.Pool()[0].Sessions
			}
			if held > c.most {
				t.Errorf("%d sessions of one principal, want at most %d", held, c.most)
			}
			stop()
			all.Wait()
		})
	}
}

func TestTwoClustersAreNotConfused(t *testing.T) {
	leakless(t)
	a, b := sshtest.New(
		t,
		sshtest.Options{Env: []string{"CLUSTER=a"}},
	), sshtest.New(
		t,
		sshtest.Options{Env: []string{"CLUSTER=b"}},
	)
	o := optionsFor(t, a)
	o.Nodes[0].Name, o.Nodes[0].Cluster, o.Nodes[0].Default = "a1", "a", true
	nb := optionsFor(t, b).Nodes[0]
	nb.Name, nb.Cluster = "b1", "b"
	o.Nodes = append(o.Nodes, nb)
	r := start(t, o)
	if ns := r.Nodes(); len(ns) != 2 || ns[0].Cluster != "a" || !ns[0].Default ||
		ns[1].Cluster != "b" ||
		ns[1].Default {
		t.Errorf("%+v", ns)
	}
	var all sync.WaitGroup
	var wrong atomic.Int64
	for i := range 40 {
		all.Go(func() {
			cluster := string("ab"[i%2])
			res, err := do(
				t.Context(),
				r,
				abi.SSHExec{
					OnNode: on(cluster + "1"),
					Argv:   []string{"sh", "-c", "echo $CLUSTER 105"},
				},
				green,
			)
			if err != nil || res.Value.(abi.ExecResponse).Stdout != cluster+" 105\n" {
				wrong.Add(1)
				t.Errorf("on %s: %+v, %v", cluster, res.Value, err)
			}
		})
	}
	all.Wait()
}

func TestANodeThatIsNotInTheInventoryIsNotLookedUp(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	for _, name := range []string{"n2", "N1", "localhost", "127.0.0.1", ""} {
		_, err := do(t.Context(), r, abi.SSHExec{OnNode: on(name), Argv: []string{"true"}}, yellow)
		refused(t, err, "not_found", terms.Failed, "inventory")
	}
	q := question(abi.SSHExec{OnNode: on("n1"), Argv: []string{"true"}})
	q.Node = &terms.Node{Name: "n2"}
	_, err := r.Execute(t.Context(), q, yellow)
	refused(t, err, "not_found", terms.Failed)
	if s.Conns.Load() != 0 {
		t.Error("it connected somewhere")
	}
}

func TestWhatWasNotDecidedIsNotDone(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	exec := question(abi.SSHExec{OnNode: on("n1"), Argv: []string{"true"}})
	noCommand := exec
	noCommand.Cmd = nil
	notParsed := exec
	notParsed.Cmd = &terms.Command{Rendered: "true"}
	dir := t.TempDir()
	for name, c := range map[string]struct {
		q    terms.Question
		d    terms.Decision
		code string
	}{
		"the zero decision":            {exec, terms.Decision{}, "refused"},
		"a refusal with a tier":        {exec, terms.Decision{Tier: terms.Green}, "refused"},
		"a command that is missing":    {noCommand, yellow, "bad_input"},
		"a command that is not parsed": {notParsed, yellow, "bad_input"},
		"a file without facts": {question(abi.SFTPWrite{OnNode: on("n1"), Path: dir +
			"/f"}), yellow, "changed"},
		"text and base64 at once": {question(abi.SSHExec{OnNode: on("n1"), Argv: []string{"cat"},
			Stdin: "a", StdinB64: "Yg=="}), yellow, "bad_input"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Execute(t.Context(), c.q, c.d)
			refused(t, err, c.code, terms.Failed)
		})
	}
	if s.Conns.Load() != 0 {
		t.Error("it connected")
	}
	for name, op := range map[string]abi.Op{
		"more than the decision allows": abi.SFTPWrite{Path: dir + "/f",
			Data: abi.Data{Text: "12345"}},
		"a mode that is none": abi.SFTPWrite{Path: dir + "/f", Data: abi.Data{Text: "1"},
			Mode: "rwx"},
		"a setuid mode": abi.SFTPWrite{Path: dir + "/f", Data: abi.Data{Text: "1"}, Mode: "4755"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(
				t.Context(),
				r,
				onN1(op),
				terms.Decision{
					Allow:       true,
					Tier:        terms.Yellow,
					Obligations: terms.Obligations{MaxBytes: 4},
				},
			)
			if err == nil {
				t.Error("it was done")
			}
			if left, _ := filepath.Glob(dir + "/*"); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

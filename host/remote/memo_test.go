package remote

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestMemo(t *testing.T) {
	op := abi.SSHExec{OnNode: on("n1"), Argv: []string{"date", "+%s%N"}}
	stdin := op
	stdin.Stdin = "x"
	otherNode := op
	otherNode.Node = "n2"
	fails := op
	fails.Argv = []string{"sh", "-c", "date +%s%N; exit 1"}
	cut := op
	cut.MaxBytes = 3
	for _, c := range []struct {
		name   string
		first  abi.SSHExec
		second abi.SSHExec
		tier   gate.Decision
		as     string
		after  time.Duration
		ran    int
	}{
		{"a green repeat is answered from memory", op, op, green, "agent-a", time.Second, 1},
		{"not after its time", op, op, green, "agent-a", 3 * time.Second, 2},
		{"not for another principal", op, op, green, "agent-b", 0, 2},
		{"not with input", stdin, stdin, green, "agent-a", 0, 2},
		{"not on another node, which may know the same guest number", op, otherNode, green, "agent-a", 0, 2},
		{"not above green", op, op, yellow, "agent-a", 0, 2},
		{"not a failure", fails, fails, green, "agent-a", 0, 2},
		{"not an answer that was cut", cut, cut, green, "agent-a", 0, 2},
		{"not with another limit", op, cut, green, "agent-a", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sshtest.New(t, sshtest.Options{})
			var later atomic.Int64
			r := newRemote(t, s, func(o *Options) {
				o.Memo, o.Now = 2*time.Second, func() time.Time { return time.Unix(1000, later.Load()) }
				n := o.Nodes[0]
				n.Name, n.Cluster = "n2", "c2"
				o.Nodes = append(o.Nodes, n)
			})
			for _, n := range []string{"n1", "n2"} {
				op := abi.SSHExec{OnNode: on(n), Argv: []string{"true"}, Stdin: "-"}
				if _, err := do(t.Context(), r, op, green); err != nil {
					t.Fatal(err)
				}
			}
			before := len(s.Commands())
			a, err := r.Execute(t.Context(), question(c.first), c.tier)
			if err != nil {
				t.Fatal(err)
			}
			later.Add(int64(c.after))
			q := question(c.second)
			q.Call.Principal.ID = c.as
			b, err := r.Execute(t.Context(), q, c.tier)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(s.Commands()) - before; got != c.ran || c.ran == 1 && a.Value != b.Value {
				t.Errorf(
					"the node was asked %d times, want %d: %v, %v",
					got,
					c.ran,
					a.Value,
					b.Value,
				)
			}
		})
	}
	t.Run("forgotten when anything above green is done", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{})
		r := newRemote(t, s, func(o *Options) { o.Memo = 5 * time.Second })
		a, _ := r.Execute(t.Context(), question(op), green)
		mustExec(t, r, "true")
		b, _ := r.Execute(t.Context(), question(op), green)
		if a.Value == b.Value {
			t.Error("an answer from before a change was given after it")
		}
	})
	t.Run("an answer asked for before a change began is not kept", func(t *testing.T) {
		var m = memo{ttl: time.Second, seen: map[string]remembered{}}
		_, epoch, _ := m.get("k", time.Now())
		m.forget()
		m.put("k", epoch, ended{}, gate.Result{}, time.Now())
		if _, _, known := m.get("k", time.Now()); known {
			t.Error("it was kept")
		}
	})
	t.Run("hammered", func(t *testing.T) {
		m := memo{ttl: time.Second, seen: map[string]remembered{}}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 1000 {
					key := string(rune('a' + j%100))
					_, epoch, _ := m.get(key, time.Now())
					m.put(key, epoch, ended{}, gate.Result{}, time.Now())
					if i == 0 && j%50 == 0 {
						m.forget()
					}
				}
			})
		}
		all.Wait()
		if len(m.seen) > memoEntries {
			t.Errorf("%d entries", len(m.seen))
		}
	})
}

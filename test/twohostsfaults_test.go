package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs/pgtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// slowDatabase is how much longer each round trip takes at times.
const slowDatabase = 40 * time.Millisecond

// While the database is slow, hangs, is cut off and crashes under the calls of two hosts: nothing
// happens before its decision and its intent are in the journal, nothing happens twice, and what
// was acknowledged happened.
func TestADatabaseInTroubleKeepsTheOrder(t *testing.T) {
	var p *pgtest.Proxy
	w := newTwoHosts(t, func(s *pgtest.Server, database string) (a, b string) {
		p = pgtest.NewProxy(t, s.Port)
		at := strings.Replace(s.URL(database), s.Port, p.Port, 1)
		return at, at
	})
	w.a.rewrite(t, "calls_per_minute: 120", "calls_per_minute: 100000",
		"target_calls_per_minute: 60", "target_calls_per_minute: 100000")
	sessions := []*mcp.ClientSession{w.a.stdio(t), w.a.stdio(t), w.b.stdio(t), w.b.stdio(t)}
	var tried, done atomic.Int64
	var acked, lasts sync.Map
	var wg sync.WaitGroup
	over := make(chan struct{})
	for i, s := range sessions {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				mark := fmt.Sprintf("mark-%d-end", tried.Add(1))
				answer, err := s.CallTool(t.Context(), &mcp.CallToolParams{
					Name: "proxmox_container_exec_command", Arguments: map[string]any{"vmid": 101,
						"command": "echo " + mark + " >> /tmp/marks"}})
				if err == nil && !answer.IsError {
					acked.Store(mark, true)
					done.Add(1)
				} else {
					lasts.Store(i, fmt.Sprint(err, whole(running{answer: answer})))
					time.Sleep(150 * time.Millisecond) // a host bounds refusals, too
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	wait := func(most int) { time.Sleep(time.Duration(20+r.IntN(most)) * time.Millisecond) }
	for i := range 16 {
		wait(300)
		switch i % 4 {
		case 0:
			p.Delay(slowDatabase)
			wait(400)
			p.Delay(0)
		case 1:
			p.Cut(true)
			wait(300)
			p.Cut(false)
		case 2:
			p.Hang(true)
			wait(300)
			p.Hang(false)
		case 3:
			w.server.Kill()
			wait(300)
			w.server.Run()
		}
		before, began := done.Load(), time.Now()
		waitFor(t, "calls after a fault", func() bool {
			if time.Since(began) > 20*time.Second {
				lasts.Range(func(i, text any) bool {
					t.Fatalf("session %d: %s", i, text)
					return true
				})
			}
			return done.Load() > before+2
		})
	}
	close(over)
	wg.Wait()
	w.inOrder(t, &acked)
	t.Logf("%d calls tried, %d acknowledged", tried.Load(), done.Load())
	if tried.Load() == done.Load() {
		t.Error("the faults proved nothing")
	}
	for _, s := range []*site{w.a, w.b} {
		s.runs(t, "audit", "verify")
	}
}

var markOf = regexp.MustCompile(`mark-\d+-end`)

// inOrder compares what reached the node with both journals.
func (w *twoHosts) inOrder(t *testing.T, acked *sync.Map) {
	t.Helper()
	marks, err := w.a.lab.GuestFile(101, "/tmp/marks")
	must(t, err)
	did, intents := map[string]int{}, map[string]time.Time{}
	for _, m := range markOf.FindAllString(string(marks), -1) {
		if did[m]++; did[m] > 1 {
			t.Errorf("%s was done %d times", m, did[m])
		}
	}
	for _, s := range []*site{w.a, w.b} {
		files, err := filepath.Glob(filepath.Join(s.dir, "lab/journal/*.jsonl"))
		must(t, err)
		for _, f := range files {
			data, err := os.ReadFile(f)
			must(t, err)
			for line := range strings.Lines(string(data)) {
				m := markOf.FindString(line)
				if m == "" || !strings.Contains(line, `"type":"intent"`) ||
					!strings.Contains(line, `"op":"ssh_exec"`) {
					continue
				}
				var entry struct{ Record struct{ Time time.Time } }
				must(t, json.Unmarshal([]byte(line), &entry))
				if intents[m] = entry.Record.Time; intents[m].IsZero() {
					t.Fatalf("the journal's time of %s cannot be read: %s", m, line)
				}
			}
		}
	}
	for _, e := range w.a.lab.Effects() {
		m := markOf.FindString(e.Text)
		if m == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, e.T)
		must(t, err)
		if intent, is := intents[m]; !is || at.Before(intent.Truncate(time.Millisecond)) {
			t.Errorf("%s reached the node at %s, its intent: %v at %s", m, e.T, is, intent)
		}
	}
	acked.Range(func(m, _ any) bool {
		if did[m.(string)] != 1 {
			t.Errorf("%s was acknowledged and done %d times", m, did[m.(string)])
		}
		return true
	})
}

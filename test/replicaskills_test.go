package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ending is how a call ended for its client: what the host says, or error.
type ending struct {
	how, why string
	at       time.Time
}

// callers make calls through the balancer, each once and with a unique mark.
type callers struct {
	mu    sync.Mutex
	tried int
	ends  map[string]ending
}

// callsAtOnce is how many callers there are.
const callsAtOnce = 8

// run makes calls until over is closed.
func (c *callers) run(t *testing.T, w *replicas, over <-chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	client := w.caller("")
	for range callsAtOnce {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				c.mu.Lock()
				c.tried++
				mark := fmt.Sprintf("mark-%d-end", c.tried)
				c.mu.Unlock()
				on := map[string]any{"vmid": 101, "command": "echo " + mark + " >> /tmp/marks"}
				r, err := client.call(t.Context(), "proxmox_container_exec_command", on, nil)
				end := ending{r.outcome(), r.text(), time.Now()}
				if err != nil {
					end.how, end.why = "error", err.Error()
				}
				c.mu.Lock()
				c.ends[mark] = end
				c.mu.Unlock()
				if end.how != "succeeded" {
					time.Sleep(150 * time.Millisecond) // a host bounds refusals, too
				}
			}
		})
	}
	return &wg
}

// between counts the calls that ended since then, and names the last that did not succeed.
func (c *callers) between(from time.Time) (fine, failed int, last ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ends {
		switch {
		case e.at.Before(from):
		case e.how == "succeeded":
			fine++
		default:
			if failed++; e.at.After(last.at) {
				last = e
			}
		}
	}
	return fine, failed, last
}

func (c *callers) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends)
}

// part is what can be killed, and started again.
type part struct {
	name      string
	kill, run func()
	away      time.Duration
	used      func() bool // since it was started again; nil: a call succeeds
}

func (w *replicas) parts(t *testing.T) []part {
	host := func(i int) part {
		r, size := w.hosts[i], int64(0)
		return part{fmt.Sprint("replica ", i), func() { r.kill() },
			func() { r.run(t); size = r.written(t) }, 2 * time.Second,
			func() bool { return r.written(t) > size+10_000 }}
	}
	return []part{host(0), {"PostgreSQL", w.server.Kill, w.server.Run, 3 * time.Second, nil},
		{"balancer", w.front.Kill, w.front.Run, time.Second, nil}, host(1)}
}

// written is how many bytes the journal of a host has.
func (r *replica) written(t *testing.T) (n int64) {
	files, err := filepath.Glob(filepath.Join(r.dir, "lab/journal/*.jsonl"))
	must(t, err)
	for _, f := range files {
		info, err := os.Stat(f)
		must(t, err)
		n += info.Size()
	}
	return n
}

// The test kills each host, the database and the balancer during calls, and starts them again.
// Every call has an answer or an error. Nothing is done twice. Acknowledged calls were done, and
// refused ones were not. The journals contain every effect, recorded before it happened.
// CAPONIER_CALLS is the minimum number of calls, by default 300.
func TestKillsOfEachPartUnderCalls(t *testing.T) {
	most := 300
	if n, err := strconv.Atoi(settings["CAPONIER_CALLS"]); err == nil {
		most = n
	}
	w := newReplicas(t, nil)
	c, over := &callers{ends: map[string]ending{}}, make(chan struct{})
	wg := c.run(t, w, over)
	parts := w.parts(t)
	faults := len(parts) * max(1, most/500)
	for i := range faults {
		p := parts[i%len(parts)]
		started := c.count()
		for c.count() < started+most/(2*faults) {
			time.Sleep(10 * time.Millisecond)
		}
		killed := time.Now()
		p.kill()
		time.Sleep(p.away)
		again := time.Now()
		p.run()
		ready := time.Now()
		waitFor(t, "use of "+p.name, func() bool {
			fine, _, _ := c.between(ready)
			return fine > 3 && (p.used == nil || p.used())
		})
		used := time.Now()
		_, failed, last := c.between(killed)
		if p.used == nil { // then until the last call that failed
			used = last.at
		}
		ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
		t.Logf("%s: killed for %s, %d calls failed, the last %s after the kill (%s: %.120s); "+
			"started, it was ready after %s and used after %s", p.name, p.away, failed,
			ms(last.at.Sub(killed)), last.how, strings.Join(strings.Fields(last.why), " "),
			ms(ready.Sub(again)), ms(used.Sub(again)))
	}
	for c.count() < most {
		time.Sleep(10 * time.Millisecond)
	}
	close(over)
	wg.Wait()
	w.examine(t, c)
}

// examine compares the answers to clients with the commands that reached the node, and with both
// journals.
func (w *replicas) examine(t *testing.T, c *callers) {
	t.Helper()
	if len(c.ends) != c.tried {
		t.Errorf("%d of %d calls have an end", len(c.ends), c.tried)
	}
	var acked sync.Map
	did, sent := map[string]int{}, map[string]int{}
	for mark, e := range c.ends {
		if e.how == "succeeded" {
			acked.Store(mark, true)
		}
	}
	w.inOrder(t, &acked)
	marks, err := w.a.lab.GuestFile(101, "/tmp/marks")
	must(t, err)
	for _, m := range markOf.FindAllString(string(marks), -1) {
		did[m]++
	}
	for _, e := range w.a.lab.Effects() {
		if m := markOf.FindString(e.Text); m != "" && e.Kind == "exec" {
			sent[m]++
		}
	}
	wrote := w.journals(t)
	ways := map[string]int{}
	for mark, e := range c.ends {
		j := wrote[mark]
		ways[e.how]++
		switch {
		case did[mark] > 1 || sent[mark] > 1 || len(j.intents) > 1:
			t.Errorf("%s was done %d times, sent %d times, intended on %v", mark, did[mark],
				sent[mark], j.intents)
		case e.how == "succeeded" && (did[mark] != 1 || sent[mark] != 1 ||
			j.outcome != "succeeded"):
			t.Errorf("%s was acknowledged, done %d times, sent %d times and journaled as %q", mark,
				did[mark], sent[mark], j.outcome)
		case e.how == "refused" && (did[mark] != 0 || sent[mark] != 0):
			t.Errorf("%s was refused, and done %d times", mark, did[mark])
		case j.outcome == "succeeded" && did[mark] != 1:
			t.Errorf("%s is journaled as done and was done %d times", mark, did[mark])
		case e.how == "" || e.why == "" && e.how != "succeeded":
			t.Errorf("%s ended without a word: %+v", mark, e)
		}
	}
	for mark := range did {
		if c.ends[mark].how == "" {
			t.Errorf("%s was done, and nobody called it", mark)
		}
	}
	t.Logf("%d calls: %v; %d were done", c.tried, ways, len(did))
	if ways["succeeded"] == c.tried || ways["succeeded"] < c.tried/4 {
		t.Error("the faults proved nothing")
	}
	for _, r := range w.hosts {
		r.runs(t, "audit", "verify")
	}
}

// journaled is what both journals have of the operation of a call.
type journaled struct {
	intents []string // the hosts
	outcome string
}

func (w *replicas) journals(t *testing.T) map[string]journaled {
	t.Helper()
	all := map[string]journaled{}
	for _, r := range w.hosts {
		marks := map[string]string{} // by decision
		files, err := filepath.Glob(filepath.Join(r.dir, "lab/journal/*.jsonl"))
		must(t, err)
		for _, f := range files {
			data, err := os.ReadFile(f)
			must(t, err)
			for line := range strings.Lines(string(data)) {
				if !strings.Contains(line, `"op":"ssh_exec"`) {
					continue
				}
				var entry struct {
					Record struct {
						Type, Outcome string
						ID            string `json:"decision_id"`
					}
				}
				must(t, json.Unmarshal([]byte(line), &entry))
				rec := entry.Record
				m := markOf.FindString(line)
				switch {
				case rec.Type == "intent" && m != "" && rec.Outcome == "":
					marks[rec.ID] = m
					j := all[m]
					j.intents = append(j.intents, r.at)
					all[m] = j
				case rec.Type == "outcome" && marks[rec.ID] != "":
					j := all[marks[rec.ID]]
					j.outcome = rec.Outcome
					all[marks[rec.ID]] = j
				}
			}
		}
	}
	return all
}

package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// lister is a runner whose plugin asks for one list.
type lister struct {
	name    string // "" for sftp_get
	request []byte
	in      func(*terms.Call) // what kind of call it is; may be nil
	ended   func(abi.Op)      // is told what comes back to the list; may be nil
	status  uint32
	answers abi.ManyResponse
	failure abi.Failure
}

// watched tells of each operation that comes back through the door.
type watched struct {
	door
	ended func(abi.Op)
}

func (w watched) Operate(ctx context.Context, op abi.Op) (terms.Result, error) {
	defer w.ended(op)
	return w.door.Operate(ctx, op)
}

func (*lister) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func (l *lister) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	c := &call{door: r, of: r.Call, env: &environment{scheduler: newCPUScheduler(), now: fixedTime}}
	c.turn.scheduler = c.env.scheduler
	if l.ended != nil {
		c.door = watched{r, l.ended}
	}
	if l.in != nil {
		l.in(r.Call)
	}
	l.status = c.operate(ctx, cmp.Or(l.name, "sftp_get"), l.request, true)
	into := any(&l.answers)
	if l.status != statusOK {
		into = &l.failure
	}
	return terms.Output{JSON: json.RawMessage(`{}`)}, json.Unmarshal(c.resp, into)
}

// list has a plugin ask for these paths.
func (h *host) list(paths []string, in ...func(*terms.Call)) *lister {
	var ops []abi.SFTPGet
	for _, p := range paths {
		ops = append(ops, abi.SFTPGet{OnNode: abi.OnNode{Node: "pve1"}, Path: p, Local: p[1:]})
	}
	request, err := json.Marshal(ops)
	if err != nil {
		h.t.Fatal(err)
	}
	l := &lister{request: request}
	if len(in) > 0 {
		l.in = in[0]
	}
	h.openDoor(l)
	h.call(toolOf(nil), struct{}{})
	return l
}

// Lists are random mixtures of files that are allowed, refused before or after their facts are
// known, or that cannot be journaled. Exactly the allowed ones reach the node, each after its own
// decision and its own record, and each answer is that of its own file.
func TestNoFileOfAListReachesTheNodeUndecided(t *testing.T) {
	kinds := []string{"allowed", "lookup", "effect", "unwritten", "failing"}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var paths []string
		for i := range 1 + rnd.IntN(40) {
			paths = append(paths, fmt.Sprintf("/%s/%d", kinds[rnd.IntN(len(kinds))], i))
		}
		h := &host{t: t}
		var mu sync.Mutex
		var done []string
		decided := map[string]bool{} // by path: its effect was allowed and journaled
		is := func(q terms.Question, kind string) bool {
			get, is := q.Op.(abi.SFTPGet)
			return is && strings.HasPrefix(get.Path, "/"+kind+"/")
		}
		ids := map[string]string{} // of decisions of effects, by path
		h.decide = func(q terms.Question) terms.Decision {
			if q.Op != nil && is(q, q.Phase.String()) {
				return terms.Decision{Failed: []string{q.Phase.String()}}
			}
			if q.Op != nil && q.Phase == terms.PhaseEffect {
				mu.Lock()
				defer mu.Unlock()
				ids[q.ID] = q.Op.(abi.SFTPGet).Path
			}
			return terms.Decision{Allow: true, Tier: terms.Green}
		}
		h.intent = func(r terms.Record) error {
			mu.Lock()
			defer mu.Unlock()
			path := ids[r.ID]
			if strings.HasPrefix(path, "/unwritten/") {
				return errors.New("the disk is full")
			}
			decided[path] = decided[path] || r.Type == "intent"
			return nil
		}
		h.execute = func(q terms.Question) (terms.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			path := q.Op.(abi.SFTPGet).Path
			if !decided[path] {
				t.Errorf("%s reached the node before its decision was journaled", path)
			}
			done = append(done, path)
			if is(q, "failing") {
				return terms.Result{}, terms.Fail("not_found", "%s", path)
			}
			return terms.Result{Value: abi.WriteResponse{Local: path}}, nil
		}
		l := h.list(paths)
		var want []string
		if len(l.answers.Answers) != len(paths) {
			t.Fatalf("%d: %d answers to %d requests", seed, len(l.answers.Answers), len(paths))
		}
		for i, p := range paths {
			kind, a := strings.Split(p, "/")[1], l.answers.Answers[i]
			status := map[string]uint32{"allowed": statusOK, "failing": statusFailed}[kind]
			if kind == "allowed" || kind == "failing" {
				if want = append(want, p); !strings.Contains(string(a.Response), `"`+p+`"`) {
					t.Errorf("%d: the answer to %s is %s", seed, p, a.Response)
				}
			} else {
				status = statusRefused
			}
			if a.Status != int(status) {
				t.Errorf("%d: %s has status %d %s", seed, p, a.Status, a.Response)
			}
		}
		slices.Sort(want)
		slices.Sort(done)
		if !slices.Equal(want, done) {
			t.Errorf("%d: %q reached the node, want %q", seed, done, want)
		}
	}
}

// A list that is wrong anywhere is refused as a whole: nothing of it is decided or done.
func TestAWrongListIsNotBegun(t *testing.T) {
	good := `{"node":"pve1","path":"/a","local":"a"}`
	long := "[" + strings.Repeat(good+",", abi.MaxMany) + good + "]"
	for request, field := range map[string]string{
		`[]`:        "",
		` [` + good: "",
		`[` + good + `,{"node":"pve1","path":"/b","local":"a"}]`:        "1/local",
		`[` + good + `,{"node":"pve1","path":"/b","locals":"b"}]`:       "1/",
		`[` + good + `,{"node":"pve1","path":"/b","local":"b","x":1}]`:  "1/",
		`[` + good + `,[` + good + `]]`:                                 "1/",
		`[` + good + `,1]`:                                              "1/",
		`[` + good + `,{"node":"pve1","path":"/b","timeout_ms":-1}]`:    "1/timeout_ms",
		`[` + good + `,{"node":"pve1","path":"/b","local":"\u0061"}]`:   "1/local",
		`[{"node":"pve1","path":"/` + strings.Repeat("a", 5000) + `"}]`: "0/path",
		long: "",
	} {
		h := &host{t: t}
		l := &lister{request: []byte(request)}
		h.openDoor(l)
		h.call(toolOf(nil), struct{}{})
		if l.status != statusBadRequest || l.failure.Field != field || l.failure.Message == "" ||
			len(h.executed) > 0 {
			t.Errorf("%.80s: status %d %+v, %q", request, l.status, l.failure, h.executed)
		}
		for _, r := range h.records {
			if r.Kind == "operation" {
				t.Errorf("%.80s: %+v was decided", request, r)
			}
		}
	}
}

// Once an upload of a list is refused, fails or has an unknown outcome, none begins that was not
// under way. The answers say exactly which files are on the node. In a call that is planned, has a
// plan or acts on a guest, they are uploaded in the order of the list, one by one.
func TestAListOfUploadsStopsAndSaysHowFarItCame(t *testing.T) {
	ways := map[string]func(*terms.Call){
		"run":        nil,
		"planned":    func(c *terms.Call) { c.Planning = true },
		"by a plan":  func(c *terms.Call) { c.Plan = anyPlan{} },
		"on a guest": func(c *terms.Call) { c.Targets.VMIDs = []string{"101"} },
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		n := 1 + rnd.IntN(60)
		bad := rnd.IntN(2 * n) // none, if it is beyond the list
		how := []string{"refused", "failed", "unknown", "panic"}[rnd.IntN(4)]
		for way, in := range ways {
			h := &host{t: t}
			var mu sync.Mutex
			var done []int
			broken, late := false, 0
			back := make(chan struct{}) // closed when the one that broke is back
			file := func(op abi.Op) (i int) {
				fmt.Sscanf(op.(abi.SFTPPut).Path, "/%d", &i)
				return i
			}
			number := func(q terms.Question) int { return file(q.Op) }
			h.decide = func(q terms.Question) terms.Decision {
				if q.Op != nil && q.Phase == terms.PhaseEffect && number(q) == bad &&
					how == "refused" {
					return terms.Decision{Tier: terms.Green, Failed: []string{"file"}}
				}
				return terms.Decision{Allow: true, Tier: terms.Green}
			}
			h.execute = func(q terms.Question) (terms.Result, error) {
				mu.Lock()
				after := broken
				if after {
					late++
				}
				round := late / maxAtOnce
				mu.Unlock()
				if after {
					<-back
					linger(round)
				}
				mu.Lock()
				defer mu.Unlock()
				i := number(q)
				if i == bad {
					broken = true
					switch how {
					case "panic":
						panic("a bug")
					case "unknown":
						return terms.Result{}, &terms.OpError{Code: "lost", Outcome: terms.Unknown}
					}
					return terms.Result{}, terms.Fail("permission", "no")
				}
				done = append(done, i)
				return terms.Result{Value: abi.WriteResponse{Bytes: 1}}, nil
			}
			var ops []abi.SFTPPut
			for i := range n {
				ops = append(ops, abi.SFTPPut{OnNode: abi.OnNode{Node: "pve1"}, Local: "f",
					Path: fmt.Sprint("/", i)})
			}
			request, _ := json.Marshal(ops)
			l := &lister{name: "sftp_put", request: request, in: in, ended: func(op abi.Op) {
				if file(op) == bad {
					close(back)
				}
			}}
			h.openDoor(l)
			h.call(toolOf(nil), struct{}{})
			what := fmt.Sprintf("%d %s: file %d of %d is %s", seed, way, bad, n, how)
			if len(l.answers.Answers) != n {
				t.Fatalf("%s: %d answers", what, len(l.answers.Answers))
			}
			var said []int
			notBegun := 0
			for i, a := range l.answers.Answers {
				switch {
				case a.Status == int(statusOK):
					said = append(said, i)
				case strings.Contains(string(a.Response), `"`+abi.NotBegun+`"`):
					notBegun++
				case i != bad:
					t.Errorf("%s: %d has status %d %s", what, i, a.Status, a.Response)
				}
			}
			if in != nil && !slices.IsSorted(done) {
				t.Errorf("%s: done in the order %v", what, done)
			}
			slices.Sort(done)
			if !slices.Equal(said, done) {
				t.Errorf("%s: said to be done %v, done %v", what, said, done)
			}
			if in != nil && bad < n && (len(done) != bad || notBegun != n-bad-1) {
				t.Errorf("%s: done %v, and %d did not begin", what, done, notBegun)
			}
			if bad >= n && len(done) != n || late >= 2*maxAtOnce {
				t.Fatalf("%s: %d done, %d after it", what, len(done), late)
			}
		}
	}
}

// linger gives the end of a list the time to reach its workers. It takes long only for what has
// begun nevertheless: a round is as many operations as are under way at once. In the third the list
// has gone on for too long.
func linger(round int) {
	if round == 1 {
		time.Sleep(2 * time.Second)
	}
	time.Sleep(20 * time.Millisecond)
}

// The steps of a plan have an order, and so have the downloads of a list that are its steps.
func TestAListOfDownloadsKeepsItsOrderInAPlan(t *testing.T) {
	paths, done := []string{}, []string{}
	for i := range 60 {
		paths = append(paths, fmt.Sprint("/", i))
	}
	h := &host{t: t, execute: func(q terms.Question) (terms.Result, error) {
		done = append(done, q.Op.(abi.SFTPGet).Path)
		return terms.Result{}, nil
	}}
	h.list(paths, func(c *terms.Call) { c.Plan = anyPlan{} })
	if !slices.Equal(done, paths) {
		t.Errorf("done in the order %q", done)
	}
}

// anyPlan is a plan that every operation fits.
type anyPlan struct{ terms.Plan }

func (anyPlan) Next(terms.Question) terms.PlanFacts { return terms.PlanFacts{} }
func (anyPlan) Take()                               {}
func (anyPlan) Digest() string                      { return "" }

// What a call that was cancelled half way through a list has not begun, it does not begin.
func TestTheRestOfAListOfACancelledCallDoesNotBegin(t *testing.T) {
	for after := range int64(20) {
		ctx, cancel := context.WithCancel(t.Context())
		var begun atomic.Int64
		h := &host{t: t, execute: func(terms.Question) (terms.Result, error) {
			switch n := begun.Add(1); {
			case n == after+1:
				cancel()
			case n > after+1:
				<-ctx.Done()
				linger(int(n-after-1) / maxAtOnce)
			}
			return terms.Result{}, nil
		}}
		request := "["
		for i := range 200 {
			request += fmt.Sprintf(`{"node":"pve1","path":"/%d","local":"%d"},`, i, i)
		}
		l := &lister{request: []byte(strings.TrimSuffix(request, ",") + "]")}
		h.openDoor(l)
		h.callWith(ctx, toolOf(nil), struct{}{})
		done := int64(0)
		for i, a := range l.answers.Answers {
			if a.Status == int(statusOK) {
				done++
			} else if a.Status != int(statusFailed) ||
				!strings.Contains(string(a.Response), "cancelled") {
				t.Errorf("%d: %d %s", i, a.Status, a.Response)
			}
		}
		if n := begun.Load(); n != done || n > after+1+2*maxAtOnce {
			t.Fatalf("cancelled after %d: %d began, %d are answered", after+1, n, done)
		}
	}
}

// Downloads of a list are under way together, but no more of them than the bound. One that panics
// ends nothing but itself.
func TestAListIsUnderWayTogether(t *testing.T) {
	paths := []string{}
	for i := range 3 * maxAtOnce {
		paths = append(paths, fmt.Sprint("/", i))
	}
	var now, most atomic.Int64
	h := &host{t: t, execute: func(q terms.Question) (terms.Result, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		for i := 0; most.Load() < maxAtOnce && i < 20_000; i++ {
			time.Sleep(time.Millisecond)
		}
		if q.Op.(abi.SFTPGet).Path == "/5" {
			panic("a bug")
		}
		return terms.Result{}, nil
	}}
	l := h.list(paths)
	for i, a := range l.answers.Answers {
		want := map[bool]uint32{true: statusUnknown, false: statusOK}[i == 5]
		if a.Status != int(want) {
			t.Errorf("%s: %d %s", paths[i], a.Status, a.Response)
		}
	}
	if most.Load() != maxAtOnce {
		t.Errorf("%d were under way at once, want %d", most.Load(), maxAtOnce)
	}
}

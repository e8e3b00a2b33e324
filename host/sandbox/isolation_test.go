package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
)

func TestAGoModuleSurvivesTenThousandCallsOf64KiB(t *testing.T) {
	h := newHost(t, Options{CacheDir: compileCache})
	tool := h.add(goModule(t, "echo"))
	args := json.RawMessage(`{"text":"` + strings.Repeat("x", 64<<10) + `"}`)
	n := 10_000
	if testing.Short() {
		n = 100
	}
	for k := range n {
		if a := h.call(tool, args); a.Err != nil || a.Output.Code != 0 {
			t.Fatalf("call %d: %v %.200s", k, a.Err, a.Output.JSON)
		}
	}
}

func TestOneCallSurvivesTenThousandOperationsOf64KiB(t *testing.T) {
	h := newHost(t, Options{CacheDir: compileCache})
	tool := h.add(goModule(t, "echo"))
	tool.Budget = 5 * time.Minute
	n := 10_000
	if testing.Short() {
		n = 100
	}
	a := h.call(tool, object{"text": strings.Repeat("x", 64<<10), "times": n})
	want(t, a, "")
	if a.Output.Code != 0 || len(h.executed) != n {
		t.Errorf("%d operations, output %.200s", len(h.executed), a.Output.JSON)
	}
}

// hoarder looks for a secret in memory at 4096, in a global and behind a grown memory, plants it in
// all three, and answers what it found.
func hoarder() module {
	const at = 4096
	// memory | global | pages beyond the first
	look := op(c32(at), 0x28, 2, 0, 0x23, 0, 0x72, 0x3f, 0, c32(1), 0x6b, 0x72)
	plant := op(c32(at), c32(7), 0x36, 2, 0, c32(7), 0x24, 0, c32(1), 0x40, 0, 0x1a)
	say := op(0x04, 0x40, c32(64), c32(14), callf(0), 0x1a, 0x05, c32(8), c32(14), callf(0), 0x1a,
		0x0b)
	data := append(append([]byte{2}, dataAt(8, okJSON)[1:]...), dataAt(64, `{"found":true}`)[1:]...)
	return module{
		imports: []imported{output},
		globals: []byte{1, typeI32, 1, 0x41, 0, 0x0b},
		data:    data,
		call:    op(look, plant, say, c32(0)),
	}
}

func TestNothingOfACallIsLeftForTheNext(t *testing.T) {
	for _, warm := range []int{-1, 3} {
		t.Run(fmt.Sprint("warm ", warm), func(t *testing.T) {
			h := newHost(t, Options{Warm: warm})
			tool := h.add(hoarder().bytes())
			for range 50 {
				a := h.call(tool, object{})
				want(t, a, "")
				if string(a.Output.JSON) != okJSON {
					t.Fatalf("a call found what another had left: %s", a.Output.JSON)
				}
			}
		})
	}
	h := newHost(t, Options{})
	trace := h.add(
		module{
			imports: []imported{output},
			data:    dataAt(0, "{}"),
			call:    op(c32(0), c32(65536), callf(0), 0x1a, c32(0)),
		}.bytes(),
	)
	secret := "TOP-SECRET-7f3a"
	for range 20 { // the module gets a secret as an argument, and answers with all of its memory
		if a := h.call(trace, object{"password": secret}); bytes.Contains(a.Output.JSON,
			[]byte(secret)) {
			t.Fatal("an argument was found in memory that had not read it")
		}
	}
}

// TestAReusedInstanceIsAsGoodAsNew checks the reset of an instance whose memory did not grow. The
// module plants secrets on every page of its memory and in globals of every type; the next call and
// the host must find everything as it was in the beginning.
func TestAReusedInstanceIsAsGoodAsNew(t *testing.T) {
	globals := op(4, typeI32, 1, c32(1)[:2], 0x0b, typeI64, 1, 0x42, 2, 0x0b, typeF32, 1, 0x43, 0,
		0, 0, 0, 0x0b, typeF64, 1, 0x44, make([]byte, 8), 0x0b)
	var look, plant []byte
	look = op(0x23, 0, c32(1), 0x47, 0x23, 1, 0x42, 2, 0x52, 0x72, 0x23, 2, 0x43, 0, 0, 0, 0, 0x5c,
		0x72, 0x23, 3, 0x44, make([]byte, 8), 0x62, 0x72)
	plant = op(c32(7), 0x24, 0, 0x42, 7, 0x24, 1, 0x43, 7, 7, 7, 7, 0x24, 2, 0x44,
		repeat([]byte{7}, 8), 0x24, 3)
	for page := int64(1); page < 64; page++ { // of 4 KiB
		look = op(look, c32(page*4096+100), 0x28, 2, 0, 0x72)
		plant = op(plant, c32(page*4096+100), c32(7), 0x36, 2, 0)
	}
	// it traps on what it finds
	g := module{
		memory:  []byte{1, 1, 4, 8},
		imports: []imported{output},
		globals: globals,
		call:    op(look, 0x04, 0x40, 0x00, 0x0b, plant, ok()),
	}
	h := newHost(t, Options{Warm: 1})
	tool := h.add(g.bytes())
	want(t, h.call(tool, object{}), "")
	p := h.plugin(tool)
	first := waiting(p)
	for range 50 {
		want(t, h.call(tool, object{}), "")
		in := waiting(p)
		if in != first {
			t.Fatal("the instance was not used again, so that this test shows nothing")
		}
		mem, _ := in.mod.Memory().Read(0, in.mod.Memory().Size())
		if fresh, err := p.tmpl.instantiate(t.Context()); err != nil {
			t.Fatal(err)
		} else if was, _ := fresh.mod.Memory().Read(0,
			fresh.mod.Memory().Size()); !bytes.Equal(mem, was) {
			t.Fatal("the memory is not as in a new instance")
		} else {
			fresh.close()
		}
	}
}

// TestARefusedGrowthIsForgotten checks that the error of a call does not depend on the call before.
func TestARefusedGrowthIsForgotten(t *testing.T) {
	// traps for short input; for long input it asks for too much memory, and answers
	imports := []imported{output, {module: abiModule, name: "input_len"}}
	h := newHost(t, Options{Warm: 1, BreakAfter: -1})
	tool := h.add(
		module{
			memory:  []byte{1, 0, 1},
			imports: imports,
			call: op(callf(1), c32(1000), 0x49, 0x04, 0x40, 0x00, 0x0b, c32(60_000), 0x40, 0, 0x1a,
				ok()),
		}.bytes(),
	)
	for range 3 {
		want(t, h.call(tool, object{"long": strings.Repeat("x", 1000)}), "")
		soon(
			t,
			"an instance waits",
			func() bool { return len(h.plugin(tool).warm) == 1 },
		)
		want(t, h.call(tool, object{}), "plugin_trap")
		soon(
			t,
			"an instance waits",
			func() bool { return len(h.plugin(tool).warm) == 1 },
		)
	}
}

// TestTheLargestMemoryIsThrownAwayToo is about 4 GiB, whose size wazero returns as 0: it looked
// like a memory that had not grown.
func TestTheLargestMemoryIsThrownAwayToo(t *testing.T) {
	if err := (Options{MemoryMax: 4 << 30}).Validate(); err == nil {
		t.Error("memory of 4 GiB may be configured")
	}
	// it traps unless it starts without memory, and then grows to all there is
	h := newHost(t, Options{MemoryMax: maxMemory, Warm: 1})
	tool := h.add(
		module{memory: []byte{1, 0, 0}, imports: []imported{output}, data: []byte{0}, call: op(
			c32(1), 0x40, 0, 0x04, 0x40, 0x00, 0x0b, c32(0), c32('7'), 0x36, 2, 0,
			c32(maxMemory/meter.PageSize-1), 0x40, 0, c32(1), 0x47, 0x04, 0x40, 0x00, 0x0b, c32(0),
			c32(1), callf(0), 0x1a, c32(0))}.bytes(),
	)
	for range 3 {
		want(t, h.call(tool, object{}), "")
		soon(
			t,
			"an instance waits",
			func() bool { return len(h.plugin(tool).warm) == 1 },
		)
	}
}

// waiting returns the instance that is ready for the next call. It takes it out to look at it, so
// the plugin may have made another in its place: then this one stays out, until the sandbox closes.
func waiting(p *plugin) *instance {
	in := <-p.warm
	select {
	case p.warm <- in:
	default:
	}
	return in
}

func TestNoSecretOfAGoModuleIsLeftForTheNextCall(t *testing.T) {
	h := newHost(t, Options{Warm: 1, CacheDir: compileCache})
	tool := h.add(goModule(t, "echo"))
	secret := "TOP-SECRET-7f3a"
	for range 20 {
		want(t, h.call(tool, object{"text": secret}), "")
		in := waiting(h.plugin(tool))
		mem, _ := in.mod.Memory().Read(0, in.mod.Memory().Size())
		if bytes.Contains(mem, []byte(secret)) {
			t.Fatal("the argument of one call is in the memory that the next begins with")
		}
	}
}

func TestInitialisationIsDoneOnceAndKept(t *testing.T) {
	// _initialize adds 1 to a global and writes its value to memory; the call answers by whether
	// both are 1.
	g := module{
		imports: []imported{output},
		globals: []byte{1, typeI32, 1, 0x41, 0, 0x0b},
		init:    op(0x23, 0, c32(1), 0x6a, 0x24, 0, c32(512), 0x23, 0, 0x36, 2, 0),
		call: op(c32(512), 0x28, 2, 0, 0x23, 0, 0x6a, c32(2), 0x47, 0x04, 0x40, 0x00, 0x0b,
			ok()),
	}
	g.start, g.more = true, [][]byte{body(op(c32(516), c32(9), 0x36, 2, 0))}
	h := newHost(t, Options{})
	tool := h.add(g.bytes())
	for range 5 {
		want(t, h.call(tool, object{}), "")
	}
}

// asker calls one operation with a fixed request and answers with its status as a digit and the
// response.
func asker(name, request string) module {
	imports := []imported{
		output, {module: abiModule, name: name}, {module: abiModule, name: "resp_len"},
		{module: abiModule, name: "resp_read"},
	}
	// the status as a digit at 2048
	call := op(
		c32(2048),
		c32(64),
		c32(int64(len(request))),
		callf(1),
		c32('0'),
		0x6a,
		0x3a,
		0,
		0,
		c32(2047),
		c32('['),
		0x3a,
		0,
		0,
		c32(2049),
		c32(','),
		0x3a,
		0,
		0,
		c32(2047),
		c32(3),
		callf(0),
		0x1a,
		c32(4096),
		callf(2),
		callf(3),
		0x1a,
		c32(4096),
		callf(2),
		callf(0),
		0x1a, // the response
		c32(2046),
		c32(']'),
		0x3a,
		0,
		0,
		c32(2046),
		c32(1),
		callf(0),
		0x1a,
		c32(0),
	)
	return module{imports: imports, call: call, data: dataAt(64, request)}
}

var requests = map[string]string{
	"ssh_exec":      `{"node":"pve1","argv":["true"]}`,
	"ssh_script":    `{"node":"pve1","script":"true"}`,
	"stage":         `{"node":"pve1"}`,
	"sftp_stat":     `{"node":"pve1","path":"/x"}`,
	"sftp_list":     `{"node":"pve1","path":"/x"}`,
	"sftp_read":     `{"node":"pve1","path":"/x"}`,
	"sftp_write":    `{"node":"pve1","path":"/x","text":"a"}`,
	"sftp_get":      `{"node":"pve1","path":"/x","local":"y"}`,
	"sftp_put":      `{"node":"pve1","path":"/x","local":"y"}`,
	"sftp_remove":   `{"node":"pve1","path":"/x"}`,
	"http_request":  `{"method":"GET","url":"https://example.com"}`,
	"blob_write":    `{"name":"n","mime":"text/plain","text":"a"}`,
	"blob_read":     `{"blob":"b"}`,
	"list_commands": `{"word":"pct"}`,
	"ask":           `{"key":"k","message":"m","schema":{}}`,
	"undo_steps":    `{"call":"06H0A6GOHA5FO7RMRKRL5E16US"}`,
	"snapshots":     `{}`,
}

func TestStatusesOfOperations(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		err     error
		want    string
	}{
		"a failure is 1": {
			requests["ssh_exec"], &terms.OpError{Code: "denied", Message: "m",
				Outcome: terms.Failed},
			`[1,{"code":"denied","message":"m"}]`,
		},
		"an unknown outcome is 3": {
			requests["ssh_exec"], &terms.OpError{Code: "lost", Message: "m",
				Outcome: terms.Unknown},
			`[3,{"code":"lost","message":"m"}]`,
		},
		"an unknown field is 4": {`{"node":"pve1","argv":["true"],"host":"10.0.0.1"}`, nil, `[4,`},
		"a node that is not known is 4": {
			`{"node":"elsewhere","argv":["true"]}`, nil, `[4,{"field":"node"`,
		},
		"no JSON is 4":          {`}`, nil, `[4,`},
		"an empty request is 4": {``, nil, `[4,`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			h.execute = func(terms.Question) (terms.Result, error) { return terms.Result{}, c.err }
			a := h.call(h.add(asker("ssh_exec", c.request).bytes()), object{})
			want(t, a, "")
			if !strings.HasPrefix(string(a.Output.JSON), c.want) {
				t.Errorf("got %s, want %s", a.Output.JSON, c.want)
			}
			if strings.HasPrefix(c.want, "[4") && len(h.executed) > 0 {
				t.Error("a bad request was executed")
			}
		})
	}
}

// TestPointerAbuse calls every import with every bad pair of values in every position: the module
// must get a status, and the host must go on.
func TestPointerAbuse(t *testing.T) {
	ugly := []int64{0, 8, 65535, 65536, -1, -2, 1 << 30, -(1 << 31)}
	h := newHost(t, Options{})
	for modName, funcs := range hostFuncs() {
		if modName == meter.TickModule {
			continue
		}
		for name, f := range funcs {
			if name == "proc_exit" {
				continue
			}
			t.Run(modName+"."+name, func(t *testing.T) {
				var calls []byte
				for _, a := range ugly {
					for _, b := range ugly {
						for k, p := range []byte(f.params) {
							v := []int64{a, b}[k%2]
							if p == typeI64 {
								calls = append(calls, op(0x42, i32const(nil, v, 0x01)[1:])...)
							} else {
								calls = append(calls, c32(v)...)
							}
						}
						calls = append(calls, callf(1)...)
						if f.results != "" {
							calls = append(calls, 0x1a)
						}
					}
				}
				// writes {} anew: the calls may have written anywhere
				empty := op(c32(0), c32(0x7d7b), 0x3b, 1, 0, c32(0), c32(2), callf(0), 0x1a, c32(0))
				a := h.call(
					h.add(
						module{
							imports: []imported{output, {modName, name}}, call: op(calls, empty),
						}.bytes(),
					),
					object{},
				)
				if name == "output_write" { // whose output is not JSON then
					want(t, a, "plugin_protocol")
				} else {
					want(t, a, "")
				}
			})
		}
	}
}

func TestTheWaitForASlotEndsWithTheCall(t *testing.T) {
	h := newHost(t, Options{MaxInstances: 1})
	release := make(chan struct{})
	h.execute = func(terms.Question) (terms.Result, error) { <-release; return terms.Result{}, nil }
	tool := h.add(asker("ssh_exec", requests["ssh_exec"]).bytes())
	done := make(chan terms.Answer)
	go func() { done <- h.call(tool, object{}) }()
	for used, _ := h.box.slots.Held(); used == 0; used, _ = h.box.slots.Held() {
		time.Sleep(time.Millisecond)
	}
	quick := *tool
	quick.Budget = 20 * time.Millisecond
	want(t, h.call(&quick, object{}), "budget")
	close(release)
	want(t, <-done, "")
}

func TestOnePluginLeavesSlotsForOthers(t *testing.T) {
	h := newHost(t, Options{MaxInstances: 4})
	release := make(chan struct{})
	h.execute = func(terms.Question) (terms.Result, error) { <-release; return terms.Result{}, nil }
	hanging := h.add(asker("stage", requests["stage"]).bytes())
	good := h.add(module{imports: []imported{output}, call: ok()}.bytes())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { want(t, h.callAs(fmt.Sprint(i), hanging), "") })
	}
	for used, _ := h.box.slots.Held(); used < 2; used, _ = h.box.slots.Held() {
		time.Sleep(time.Millisecond)
	}
	for range 10 {
		want(t, h.call(good, object{}), "")
	}
	close(release)
	wg.Wait()
}

// TestOnePrincipalLeavesSlotsForOthers checks a principal's share of one plugin's slots, and of all
// slots when it calls many plugins.
func TestOnePrincipalLeavesSlotsForOthers(t *testing.T) {
	h := newHost(t, Options{MaxInstances: 8})
	release := make(chan struct{})
	var greedy, modest atomic.Int64 // instances that hang
	h.execute = func(q terms.Question) (terms.Result, error) {
		map[string]*atomic.Int64{"greedy": &greedy, "modest": &modest}[q.Call.Principal.ID].Add(1)
		<-release
		return terms.Result{}, nil
	}
	var hanging []*terms.Tool
	for _, name := range []string{"stage", "ssh_exec", "ask"} {
		hanging = append(hanging, h.add(asker(name, requests[name]).bytes()))
	}
	good := h.add(module{imports: []imported{output}, call: ok()}.bytes())
	var wg sync.WaitGroup
	flood := func(tool *terms.Tool, instances int64) {
		for range 16 {
			wg.Go(func() { want(t, h.callAs("greedy", tool), "") })
		}
		for greedy.Load() < instances {
			time.Sleep(time.Millisecond)
		}
	}
	flood(hanging[0], 2) // half of the plugin's four
	done := make(chan terms.Answer)
	for range 2 { // another principal gets the other half at once
		go func() { done <- h.callAs("modest", hanging[0]) }()
	}
	for modest.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	flood(hanging[1], 4)
	flood(hanging[2], 4) // two more would be more than half of all
	for range 10 {
		want(t, h.callAs("modest", good), "")
	}
	if n := greedy.Load(); n > 4 {
		t.Errorf("the greedy one has %d instances, want at most 4 of the 8", n)
	}
	close(release)
	want(t, <-done, "")
	want(t, <-done, "")
	wg.Wait()
	h.box.work.Wait() // instances are given back after the answer
	if used, waiting := h.box.slots.Held(); used != 0 || waiting != 0 {
		t.Errorf("%d slots are taken and %d calls wait after the last call", used, waiting)
	}
}

func TestAWaitingQuestionIsStatus5WithoutAResponse(t *testing.T) {
	c := &call{resp: []byte("old")}
	if got := c.fail(terms.ErrPending); got != statusPending || len(c.resp) != 0 {
		t.Errorf("status %d with response %s", got, c.resp)
	}
	if got := c.fail(&terms.OpError{Code: "pending", Outcome: terms.Failed}); got != statusFailed {
		t.Errorf("an error that only calls itself pending: status %d", got)
	}
}

func TestTheInputHoldsTheRound(t *testing.T) {
	for _, round := range []int{1, 3} {
		input, err := callInput(
			t.Context(),
			&gate.Running{
				Round: round,
				Call:  &terms.Call{Tool: &terms.Tool{}, Args: terms.Args{JSON: []byte("{}")}},
			},
		)
		if err != nil || !strings.Contains(string(input), fmt.Sprintf(`"round":%d}`, round)) {
			t.Errorf("round %d: %s, %v", round, input, err)
		}
	}
}

func TestPluginGetsTheRenderingOfParsedTextForGuests(t *testing.T) {
	parsed := terms.Lowered{Parsed: true}
	input, err := callInput(t.Context(), &gate.Running{Call: &terms.Call{
		Tool: &terms.Tool{}, Args: terms.Args{JSON: []byte("{}")},
		Commands: []terms.Command{
			{Arg: "command", Guest: true, Lowered: parsed, Rendered: "'ls' 'x'"},
			{Arg: "raw", Guest: true}, {Arg: "node", Lowered: parsed, Rendered: "'df'"},
		},
	}})
	if err != nil || !strings.Contains(string(input), `"rendered":{"command":"'ls' 'x'"}`) {
		t.Errorf("%s, %v", input, err)
	}
}

func TestRunAfterCloseIsRefused(t *testing.T) {
	h := newHost(t, Options{})
	tool := h.add(module{imports: []imported{output}, call: ok()}.bytes())
	want(t, h.call(tool, object{}), "")
	if err := h.box.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	want(t, h.call(tool, object{}), "plugin_unavailable")
	if err := h.box.Close(context.Background()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestCloseWaitsForTheCallThatRuns(t *testing.T) {
	h := newHost(t, Options{})
	release, asked := make(chan struct{}), make(chan struct{})
	h.execute = func(terms.Question) (terms.Result, error) {
		close(asked)
		<-release
		return terms.Result{}, nil
	}
	tool := h.add(asker("stage", requests["stage"]).bytes())
	done, closed := make(chan terms.Answer, 1), make(chan error, 1)
	go func() { done <- h.call(tool, object{}) }()
	<-asked
	go func() { closed <- h.box.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Fatalf("it was closed under a running call: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	want(t, <-done, "")
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestRecordsMergesProcessesByTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	start := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	at := func(j *Journal, second int) {
		t.Helper()
		r := rec(fmt.Sprint(second), "intent")
		r.Time = start.Add(time.Duration(second) * time.Second)
		if err := j.Intent(bg, r, false); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(second int) *Journal {
		return open(
			t,
			Options{Dir: dir,
				Now: func() time.Time { return start.Add(time.Duration(second) * time.Second) }},
		)
	}
	a, b, c := begin(0), begin(3), begin(100)
	for _, s := range []int{1, 2, 5, 9} {
		at(a, s)
	}
	for _, s := range []int{4, 6, 101} {
		at(b, s)
	}
	at(c, 102)
	at(a, 7) // a clock that went back: the chain's own order holds
	if got := ids(all(t, dir)); got != "1 2 4 5 6 9 7 101 102" {
		t.Errorf("order %s", got)
	}
	for _, err := range Records(filepath.Join(dir, "none")) {
		if err == nil {
			t.Error("a directory that is not there was read")
		}
	}
}

func TestAChainKeepsItsOrderOverFiles(t *testing.T) {
	// a clock that stands still
	j := open(t, Options{MaxFileBytes: 4096, Now: func() time.Time { return time.Unix(0, 0) }})
	var want []string
	for i := range 60 {
		r := rec(fmt.Sprint(i), "intent")
		r.Time = time.Unix(int64(60-i), 0) // and callers whose clock runs backwards
		if err := j.Intent(bg, r, false); err != nil {
			t.Fatal(err)
		}
		want = append(want, r.ID)
	}
	j.Close()
	if got := ids(all(t, j.opt.Dir)); got != strings.Join(want, " ") {
		t.Errorf("order %s", got)
	}
	if r := verify(t, j.opt.Dir); !r.OK() {
		t.Error(r.Problems)
	}
}

func TestRecordsReportsABadFileAndGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	var bad string
	for i := range 2 {
		j := open(
			t,
			Options{Dir: dir,
				Now: func() time.Time { return time.Now().Add(time.Duration(i) * time.Hour) }},
		)
		r := rec(fmt.Sprint(i), "intent")
		r.Time = j.now()
		if err := j.Intent(bg, r, false); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			bad = filepath.Join(dir, j.seg.name)
		}
	}
	data, _ := os.ReadFile(bad)
	os.WriteFile(bad, bytes.Replace(data, []byte("agent-a"), []byte("agent-b"), 1), 0o600)
	var got, errs []string
	for e, err := range Records(dir) {
		if err != nil {
			errs = append(errs, err.Error())
		} else if e.Record != nil {
			got = append(got, e.Record.ID)
		}
	}
	if fmt.Sprint(got) != "[1]" || len(errs) != 1 ||
		!strings.Contains(errs[0], filepath.Base(bad)) ||
		!strings.Contains(errs[0], "hash") {
		t.Errorf("read %v, errors %v", got, errs)
	}
}

// Readers show all that can be read, and say where each bad line is.
func TestReadersGoOnPastABadLine(t *testing.T) {
	j := open(t, Options{})
	for i := range 5 {
		must(t, j.Intent(bg, rec(fmt.Sprint(i), "intent"), false))
	}
	path := j.seg.path
	must(t, j.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	lines := strings.SplitAfter(string(data), "\n")
	at := len(lines[0]) + len(lines[1])
	lines[2] = strings.Replace(lines[2], "agent-a", "agent-b", 1)
	must(t, os.WriteFile(path, []byte(strings.Join(lines, "")+"junk\n"), 0o600))
	for name, read := range map[string]iter.Seq2[Entry, error]{
		"Records": Records(j.opt.Dir),
		"follow":  Union{{Dir: j.opt.Dir}}.follow(expired()),
	} {
		var got, bad []string
		for e, err := range read {
			if err != nil {
				bad = append(bad, err.Error())
			} else if e.Record != nil {
				got = append(got, e.Record.ID)
			}
		}
		want := []string{fmt.Sprintf("at byte %d: its hash does not fit", at),
			fmt.Sprintf("at byte %d: is not a journal entry", len(data))}
		if fmt.Sprint(got) != "[0 2 3 4]" || len(bad) != 2 || !strings.Contains(bad[0], want[0]) ||
			!strings.Contains(bad[1], want[1]) {
			t.Errorf("%s: read %v, errors %q, want %q", name, got, bad, want)
		}
	}
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	return ctx
}

func TestFollow(t *testing.T) {
	j := open(t, Options{MaxFileBytes: 4096})
	ctx, cancel := context.WithTimeout(bg, 10*time.Second)
	defer cancel()
	const n = 30
	write := func(i int) {
		if err := j.Intent(bg, rec(fmt.Sprint(i), "intent"), false); err != nil {
			t.Error(err)
		}
	}
	write(0)
	seen := 0
	for e, err := range (Union{{Dir: j.opt.Dir}}).follow(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Record == nil {
			continue
		}
		if e.Record.ID != fmt.Sprint(seen) {
			t.Fatalf("record %s after %d", e.Record.ID, seen)
		}
		if seen++; seen == n {
			break
		}
		write(seen)
	}
	if seen != n {
		t.Errorf("followed %d of %d", seen, n)
	}
	cancel()
	for range (Union{{Dir: j.opt.Dir}}).follow(ctx) { // ends, since its context has
	}
}

// What a journal says of a call is what its policy input says, and never what went through it.
func TestRecordsHoldNoOutput(t *testing.T) {
	const canary = "CANARY-8f3a"
	j := open(t, Options{})
	door := gate.New(gate.Options{
		Throttle: &fair.Refusals{},
		Decider:  allow{}, Journal: j, Ledger: allow{}, Lowerer: allow{},
		Mode: func(context.Context) terms.Mode { return terms.Mode{} },
		Executors: map[string]terms.Executor{"sftp_read": leaky{canary},
			"sftp_write": leaky{canary}},
		Nodes: []terms.Node{{Name: "pve1", Default: true}},
	}, leaky{canary})
	tool := &terms.Tool{
		Name:     "exec",
		Kind:     "tool",
		Budget:   time.Second,
		Imports:  []string{"sftp_read", "sftp_write"},
		Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText, error) {
			return terms.Targets{}, nil, nil
		},
	}
	a := door.Call(
		bg,
		terms.Request{
			Source:    "cli",
			Principal: terms.Principal{ID: "agent-a"},
			Tool:      tool,
			Arguments: []byte(`{"body":"` + canary + `"}`),
		},
	)
	if a.Outcome != terms.Unknown || !strings.Contains(string(a.Output.JSON), canary) {
		t.Fatalf("the call did not run: %+v", a)
	}
	j.Close()
	found := 0
	for _, e := range all(t, j.opt.Dir) {
		if e.Record != nil {
			found++
		}
		line, _ := json.Marshal(e)
		if bytes.Contains(line, []byte(canary)) {
			t.Errorf("the journal holds what it must not: %s", line)
		}
	}
	if found != 10 { // call, and two operations in two phases, each with its outcome
		t.Errorf("%d records", found)
	}
}

type allow struct{}

func (allow) Decide(context.Context, terms.Question) (terms.Decision, error) {
	return terms.Decision{
		Allow:    true,
		Tier:     terms.Yellow,
		Revision: "r1",
		Input:    json.RawMessage(`{"args":{"bytes":20}}`),
	}, nil
}
func (allow) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}
func (allow) Script(string) terms.Command { return terms.Command{} }
func (allow) Argv([]string) terms.Command { return terms.Command{} }

type leaky struct{ canary string }

func (l leaky) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	r.Operate(ctx, abi.SFTPRead{OnNode: abi.OnNode{Node: "pve1"}, Path: "/x"})
	r.Operate(ctx,
		abi.SFTPWrite{OnNode: abi.OnNode{Node: "pve1"}, Path: "/x", Data: abi.Data{Text: l.canary}})
	return terms.Output{JSON: json.RawMessage(`{"content":"` + l.canary + `"}`)}, nil
}

func (l leaky) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{}, nil
}

func (l leaky) Execute(
	_ context.Context,
	q terms.Question,
	_ terms.Decision,
) (terms.Result, error) {
	if q.Op.Import() == "sftp_write" {
		return terms.Result{}, &terms.OpError{
			Code:    "lost",
			Message: l.canary,
			Outcome: terms.Unknown,
		}
	}
	return terms.Result{Value: l.canary, Bytes: 11, SHA256: "00"}, nil
}
func (leaky) End(context.Context, *terms.Call)                       {}
func (leaky) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func FuzzEntry(f *testing.F) {
	f.Add("intent", "agent", `{"a":[1,2.5e-9,"<&>"]}`, "ssh_exec", int64(3), "x\x1b\u2028\xff")
	f.Fuzz(func(t *testing.T, kind, principal, input, op string, seq int64, tool string) {
		if !json.Valid([]byte(input)) {
			input = "null"
		}
		for _, s := range []*string{&kind, &principal, &op, &tool} {
			*s = strings.ToValidUTF8(*s, "?") // else encoding/json replaces what is not
		}
		r := terms.Record{Type: kind, Principal: principal, Input: json.RawMessage(input), Op: op,
			Tool: tool, Time: time.UnixMilli(seq % 1e12),
			Denied: []terms.Reason{{ID: op, Msg: tool}}}
		s := Shadow{Time: r.Time, ID: kind, CallID: tool, Revision: principal, Tier: op,
			Failed: []string{tool, op}, Allow: seq%2 == 0, Change: kind}
		for _, of := range []Entry{{Record: &r}, {Shadow: &s}} {
			of.Seq, of.Prev = seq, kind
			line, hash, err := encode(of)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.IndexByte(line, '\n') != len(line)-1 {
				t.Fatalf("not one line: %q", line)
			}
			e, err := decode(line[:len(line)-1])
			if err != nil || e.Hash != hash {
				t.Fatalf("%v\n%s", err, line)
			}
			again, _, err := encode(e)
			if err != nil || !bytes.Equal(again, line) {
				t.Errorf("wrote\n%sread and wrote\n%s", line, again)
			}
		}
	})
}

// A line in which one byte was changed is not accepted as the same line.
func FuzzDecode(f *testing.F) {
	r := rec("a", "intent")
	line, _, err := encode(Entry{Seq: 1, Prev: "p", Record: &r})
	if err != nil {
		f.Fatal(err)
	}
	good, err := decode(line[:len(line)-1])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line[:len(line)-1])
	f.Add(bytes.Replace(line[:len(line)-1], []byte("agent-a"), []byte("agent-b"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decode(data)
		if err == nil && e.Hash == good.Hash && !reflect.DeepEqual(e, good) {
			t.Errorf("%q passes for %q", data, line)
		}
	})
}

package offline

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// code is a tool in Go in place of an instance.
type code func(context.Context, *gate.Running) error

func (code) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func (c code) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	out := terms.Output{JSON: json.RawMessage(`{}`)}
	if c(ctx, r) != nil {
		out.Code = 1
	}
	return out, nil
}

// call runs code as a tool that declares everything but the command rm.
func call(t *testing.T, answers string, plan bool, do code) (terms.Answer, []Asked) {
	t.Helper()
	a, err := Parse("a.yaml", []byte(answers))
	if err != nil {
		t.Fatal(err)
	}
	tiers := map[string]terms.Tier{"pct status": terms.Green, "pct start": terms.Yellow}
	d := New(Options{Answers: a, Runner: do, Tiers: tiers})
	tool := &terms.Tool{Kind: "tool", Name: "t", Imports: abi.Operations(), Budget: time.Minute,
		Commands: []string{"pct status", "pct start", "pct rollback"}, Plans: true,
		Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText, error) {
			return terms.Targets{}, nil, nil
		}}
	answer := d.Call(t.Context(), terms.Request{Source: "cli", Tool: tool, Plan: plan,
		Principal: terms.Principal{ID: "author"}})
	return answer, d.Asked()
}

var node = abi.OnNode{Node: "pve1"}

func pct(words ...string) abi.SSHExec {
	return abi.SSHExec{OnNode: node, Argv: append([]string{"pct"}, words...)}
}

func TestOperationsAreAnsweredFromTheFile(t *testing.T) {
	stage := stageRoot + "1"
	for name, x := range map[string]struct {
		op   abi.Op
		want any
		err  string
	}{
		"a command": {pct("status", "101"), abi.ExecResponse{Stdout: "status: stopped\n"},
			""},
		"another command": {pct("status", "102"), nil,
			"no_answer: the answers have none for ssh_exec on pve1: 'pct' 'status' '102'"},
		"not on that node": {abi.SSHExec{OnNode: abi.OnNode{Node: "pve2"},
			Argv: []string{"pct", "status", "101"}}, nil, "no_answer"},
		"an undeclared one": {abi.SSHExec{OnNode: node, Argv: []string{"rm", "-r", "/"}}, nil,
			"declares no command"},
		"no such node": {abi.SSHExec{OnNode: abi.OnNode{Node: "pve3"},
			Argv: []string{"pct", "status", "101"}}, nil, "inventory"},
		"a text": {abi.SSHScript{OnNode: node, Script: "df -h | tail -1"},
			abi.ExecResponse{Exit: 3, StderrB64: "/w==", Rendered: "'df' '-h' | 'tail' '-1'"}, ""},
		"a read": {abi.SFTPRead{OnNode: node, Path: "/etc/hosts", MaxBytes: 3},
			abi.ReadResponse{Data: abi.Data{Text: "127"}, Bytes: 3}, ""},
		"a stat": {abi.SFTPStat{OnNode: node, Path: "/etc/hosts"},
			abi.FileInfo{Type: "file", Size: 20, Mode: 0o644, RealPath: "/etc/hosts"}, ""},
		"a list": {abi.SFTPList{OnNode: node, Path: "/etc"},
			abi.ListResponse{Entries: []abi.FileInfo{{Name: "hosts", Type: "file", Size: 20,
				Mode: 0o644}}}, ""},
		"an unknown path": {abi.SFTPRead{OnNode: node, Path: "/etc/passwd"}, nil,
			"no_answer: the answers have none for sftp_read on pve1: /etc/passwd"},
		"a write": {abi.SFTPWrite{OnNode: node, Path: "/etc/hosts", Overwrite: true,
			Data: abi.Data{Text: "x"}}, abi.WriteResponse{Bytes: 1, SHA256: sum([]byte("x"))}, ""},
		"a write over": {abi.SFTPWrite{OnNode: node, Path: "/etc/hosts",
			Data: abi.Data{Text: "x"}}, nil, "exists"},
		"a write elsewhere": {abi.SFTPWrite{OnNode: node, Path: "/root/x",
			Data: abi.Data{Text: "x"}}, nil, "no_answer"},
		"not in a stage": {abi.SFTPWrite{OnNode: node, Path: stage + "/x",
			Data: abi.Data{Text: "x"}}, nil, "no_answer"},
		"a download": {abi.SFTPGet{OnNode: node, Path: "/etc/hosts", Local: "h"},
			abi.WriteResponse{Bytes: 20, SHA256: sum([]byte("127.0.0.1 localhost\n")), Local: "h"},
			""},
		"another digest": {abi.SFTPGet{OnNode: node, Path: "/etc/hosts", Local: "h",
			SHA256: "00"}, nil, "digest"},
		"an upload of none": {abi.SFTPPut{OnNode: node, Path: "/etc/hosts", Local: "none",
			Overwrite: true}, nil, "no_answer"},
		"an upload": {abi.SFTPPut{OnNode: node, Path: "/etc/hosts", Local: "in.txt",
			Overwrite: true}, abi.WriteResponse{Bytes: 5, SHA256: sum([]byte("hello"))}, ""},
		"a request":       {abi.HTTPRequest{Method: "GET", URL: "https://example.com/a"}, abi.HTTPResponse{Status: 404, Headers: [][2]string{{"content-type", "text/plain"}}, Data: abi.Data{Text: "gone"}, Bytes: 4, Hops: []abi.Hop{}}, ""},
		"another request": {abi.HTTPRequest{Method: "POST", URL: "https://example.com/a"}, nil, "no_answer: the answers have none for http_request: POST https://example.com/a"},
		"an ask": {abi.Ask{Key: "sure"},
			abi.AskResponse{Action: "accept", Content: []byte(`{"yes":true}`)}, ""},
		"another ask": {abi.Ask{Key: "name", Message: "Which?"}, nil,
			`no_answer: the answers have none for ask: key "name": Which?`},
		"a stage": {abi.Stage{OnNode: node}, abi.StageResponse{Dir: stage}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, asked := call(t, whole, false, func(ctx context.Context, r *gate.Running) error {
				res, err := r.Operate(ctx, x.op)
				switch {
				case x.err == "" && (err != nil || !reflect.DeepEqual(res.Value, x.want)):
					t.Errorf("got %+v, %v\nwant %+v", res.Value, err, x.want)
				case x.err != "" && (err == nil || !strings.Contains(err.Error(), x.err)):
					t.Errorf("got %v, want an error with %q", err, x.err)
				}
				return err
			})
			if x.err == "" && (len(asked) != 1 || asked[0].State != answered) {
				t.Errorf("asked for %+v", asked)
			}
			if missing := strings.Contains(x.err, noAnswer); missing {
				if len(asked) != 1 || asked[0].State != noAnswer || Skeleton(asked) == "" {
					t.Errorf("asked for %+v", asked)
				}
				if _, err := Parse("s.yaml", []byte(Skeleton(asked))); err != nil {
					t.Errorf("what is shown to add cannot be read: %v\n%s", err, Skeleton(asked))
				}
			}
		})
	}
}

// What a call changes it sees, and the next call does not.
func TestACallSeesWhatItDid(t *testing.T) {
	for range 2 {
		a, _ := call(t, whole, false, func(ctx context.Context, r *gate.Running) error {
			var errs []error
			do := func(op abi.Op) any {
				res, err := r.Operate(ctx, op)
				errs = append(errs, err)
				return res.Value
			}
			first, _ := do(pct("status", "101")).(abi.ExecResponse)
			second, _ := do(pct("status", "101")).(abi.ExecResponse)
			third, _ := do(pct("status", "101")).(abi.ExecResponse)
			if first.Stdout != "status: stopped\n" || second.Stdout != "status: running\n" ||
				third != second {
				t.Errorf("%+v, %+v, %+v", first, second, third)
			}
			dir, _ := do(abi.Stage{OnNode: node}).(abi.StageResponse)
			file := dir.Dir + "/f"
			do(abi.SFTPPut{OnNode: node, Local: "in.txt", Path: file})
			do(abi.SFTPGet{OnNode: node, Path: file, Local: "out.txt"})
			read, _ := do(abi.SFTPRead{OnNode: node, Path: file}).(abi.ReadResponse)
			blob, _ := do(abi.BlobWrite{Name: "b", Data: read.Data}).(abi.BlobWriteResponse)
			again, _ := do(abi.BlobRead{Blob: blob.URI, Offset: 1}).(abi.ReadResponse)
			if again.Text != "ello" || !again.EOF {
				t.Errorf("the blob holds %+v", again)
			}
			do(abi.SFTPRemove{OnNode: node, Path: file})
			if _, err := r.Operate(ctx, abi.SFTPStat{OnNode: node, Path: file}); err == nil {
				t.Error("a file that was removed is there")
			}
			return errors.Join(errs...)
		})
		if a.Outcome != terms.Succeeded {
			t.Errorf("%+v", a)
		}
	}
}

func TestAPlanHoldsWhatTheAnswersLack(t *testing.T) {
	tool := func(ctx context.Context, r *gate.Running) error {
		for _, op := range []abi.Op{pct("status", "101"), pct("start", "101"),
			pct("rollback", "101", "s"),
			abi.SFTPWrite{OnNode: node, Path: "/root/x", Data: abi.Data{Text: "x"}}} {
			if _, err := r.Operate(ctx, op); err != nil {
				return err
			}
		}
		return nil
	}
	a, asked := call(t, whole, true, tool)
	if a.Outcome != terms.Planned || a.Plan == nil {
		t.Fatalf("%+v", a)
	}
	for _, want := range []string{"3 steps, all that it does above green",
		"1. yellow pct start 101 on pve1", "2. red    pct rollback 101 s on pve1",
		"3. yellow write /root/x, 1 bytes on pve1"} {
		if !strings.Contains(a.Plan.Text(), want) {
			t.Errorf("the plan lacks %q:\n%s", want, a.Plan.Text())
		}
	}
	var states []string
	for _, x := range asked {
		states = append(states, x.State)
	}
	if got := strings.Join(states, " "); got != "answered planned planned planned" {
		t.Errorf("asked: %s", got)
	}
	// a read without an answer fails, as nothing can be made up for it
	a, _ = call(t, "nodes: [pve1]", true, tool)
	if a.Outcome != terms.Failed {
		t.Errorf("%+v", a)
	}
}

// structured is a tool that returns this.
type structured string

func (structured) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func (s structured) Run(context.Context, *gate.Running) (terms.Output, error) {
	return terms.Output{JSON: json.RawMessage(s)}, nil
}

// What a server would not send is an error here too.
func TestAResultIsHeldToItsOutputSchema(t *testing.T) {
	for out, want := range map[string]string{
		`{"structured":{"n":1}}`: "", `{"structured":{"n":"1"}}`: "not a number",
		`{"structured":null}`: "not a number", `{"content":[]}`: "not a number",
	} {
		d := New(Options{Answers: &Answers{}, Runner: structured(out)})
		tool := &terms.Tool{Kind: "tool", Name: "t", Budget: time.Minute,
			Validate: func(map[string]any) error { return nil },
			Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText,
				error) {
				return terms.Targets{}, nil, nil
			},
			ValidateOutput: func(v any) error {
				if m, _ := v.(map[string]any); m["n"] != 1.0 {
					return errors.New("n is not a number")
				}
				return nil
			}}
		a := d.Call(t.Context(), terms.Request{Source: "cli", Tool: tool,
			Principal: terms.Principal{ID: "author"}})
		broken := (*terms.PluginError)(nil)
		if errors.As(a.Err, &broken) != (want != "") ||
			want != "" && !strings.Contains(broken.Message, want) {
			t.Errorf("%s: %v, want %q", out, a.Err, want)
		}
	}
}

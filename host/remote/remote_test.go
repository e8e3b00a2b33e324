package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRemote makes a Remote with one node, n1, that is the server.
func newRemote(t testing.TB, s *sshtest.Server, change ...func(*Options)) *Remote {
	t.Helper()
	o := optionsFor(t, s)
	for _, c := range change {
		c(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func optionsFor(t testing.TB, s *sshtest.Server) Options {
	host, port := s.HostPort()
	return Options{
		Workspace: filepath.Join(t.TempDir(), "workspace"),
		Limits:    Limits{DialTimeout: 30 * time.Second, StepTimeout: 10 * time.Second},
		Nodes: []NodeOptions{
			{
				Name:    "n1",
				Cluster: "c1",
				Login: Login{
					Host:         host,
					Port:         port,
					User:         "root",
					IdentityFile: s.ClientFile,
					HostKey:      s.Pin(),
				},
			},
		},
	}
}

func on(node string) abi.OnNode { return abi.OnNode{Node: node} }

func question(op abi.Op) terms.Question {
	q := terms.Question{
		Kind: terms.KindOperation,
		Op:   op,
		Node: &terms.Node{Name: op.NodeName()},
		Call: &terms.Call{ID: "call", Principal: terms.Principal{ID: "agent-a"}},
	}
	switch op := op.(type) {
	case abi.SSHExec:
		c := shell.Lowerer{}.Argv(op.Argv)
		q.Cmd = &c
	case abi.SSHScript:
		c := shell.Lowerer{}.Script(op.Script)
		q.Cmd = &c
	}
	return q
}

var (
	green  = terms.Decision{Allow: true, Tier: terms.Green}
	yellow = terms.Decision{Allow: true, Tier: terms.Yellow}
)

// do takes an operation through lookup and execution, as the door does.
func do(ctx context.Context, r *Remote, op abi.Op, d terms.Decision) (terms.Result, error) {
	q := question(op)
	if put, is := op.(abi.SFTPPut); is {
		q.Call.Tool, q.Call.Targets.LocalPaths = &terms.Tool{}, []string{put.Local}
		var err error
		if q.Call.Files, err = r.Digests(q.Call); err != nil {
			return terms.Result{}, err
		}
	}
	if strings.HasPrefix(op.Import(), "sftp_") {
		q.Phase = terms.PhaseLookup
		facts, err := r.Lookup(ctx, q)
		if err != nil {
			return terms.Result{}, err
		}
		q.Phase, q.Facts = terms.PhaseEffect, facts
	}
	return r.Execute(ctx, q, d)
}

func execute(ctx context.Context, r *Remote, argv ...string) (abi.ExecResponse, error) {
	res, err := do(ctx, r, abi.SSHExec{OnNode: on("n1"), Argv: argv}, yellow)
	v, _ := res.Value.(abi.ExecResponse)
	return v, err
}

func mustExec(t testing.TB, r *Remote, argv ...string) abi.ExecResponse {
	t.Helper()
	v, err := execute(t.Context(), r, argv...)
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return v
}

// refused asserts the code and outcome of an error, and words that its message must hold.
func refused(t testing.TB, err error, code string, outcome terms.Outcome, words ...string) {
	t.Helper()
	op := (*terms.OpError)(nil)
	if !errors.As(err, &op) {
		t.Fatalf("got error %v, want one with code %s", err, code)
	}
	if op.Code != code || op.Outcome != outcome {
		t.Fatalf("got %s (%s): %s\nwant %s (%s)", op.Code, op.Outcome, op.Message, code, outcome)
	}
	for _, w := range words {
		if !strings.Contains(op.Message, w) {
			t.Errorf("message %q does not say %q", op.Message, w)
		}
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestExecResult(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	for _, c := range []struct {
		name string
		op   abi.SSHExec
		want abi.ExecResponse
	}{
		{"words arrive as they are", abi.SSHExec{Argv: []string{"/usr/bin/printf", "%s|", "a b",
			`c'd"e`, "$HOME", "*", ""}}, abi.ExecResponse{Stdout: `a b|c'd"e|$HOME|*||`}},
		{"stdout and stderr are apart", abi.SSHExec{Argv: []string{"sh", "-c",
			"echo out; echo err >&2"}}, abi.ExecResponse{Stdout: "out\n", Stderr: "err\n"}},
		{"an exit code is a result, not an error",
			abi.SSHExec{Argv: []string{"sh", "-c", "exit 7"}}, abi.ExecResponse{Exit: 7}},
		{"stdin arrives and ends", abi.SSHExec{Argv: []string{"cat"}, Stdin: "hello"},
			abi.ExecResponse{Stdout: "hello"}},
		{"binary stdin arrives", abi.SSHExec{Argv: []string{"od", "-An", "-tx1"}, StdinB64: "AP8K"},
			abi.ExecResponse{Stdout: " 00 ff 0a\n"}},
		{"stdin that is not given is empty", abi.SSHExec{Argv: []string{"cat"}},
			abi.ExecResponse{}},
		{"stdin that is not read is no error",
			abi.SSHExec{Argv: []string{"true"}, Stdin: strings.Repeat("x", 1<<20)},
			abi.ExecResponse{}},
		{"output that is not UTF-8 is base64",
			abi.SSHExec{Argv: []string{"/usr/bin/printf", `\377\n`}},
			abi.ExecResponse{StdoutB64: "/wo="}},
		{"output is cut at max_bytes", abi.SSHExec{Argv: []string{"/usr/bin/printf", "abcdef"},
			MaxBytes: 3}, abi.ExecResponse{Stdout: "abc", Truncated: true}},
		{"output of exactly max_bytes is whole",
			abi.SSHExec{Argv: []string{"/usr/bin/printf", "abc"}, MaxBytes: 3},
			abi.ExecResponse{Stdout: "abc"}},
		{"a character is not cut in the middle",
			abi.SSHExec{Argv: []string{"/usr/bin/printf", "aé€"}, MaxBytes: 5},
			abi.ExecResponse{Stdout: "aé", Truncated: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.op.OnNode = on("n1")
			res, err := do(t.Context(), r, c.op, yellow)
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Value.(abi.ExecResponse); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if *res.Exit != c.want.Exit {
				t.Errorf("the journal would keep exit %d", *res.Exit)
			}
		})
	}
}

func TestScriptSendsOnlyItsRendering(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	res, err := do(
		t.Context(),
		r,
		abi.SSHScript{OnNode: on("n1"), Script: "printf 'a\nb\n' | wc -l  # lines"},
		yellow,
	)
	if err != nil {
		t.Fatal(err)
	}
	v := res.Value.(abi.ExecResponse)
	if strings.TrimSpace(v.Stdout) != "2" || v.Rendered == "" || strings.Contains(v.Rendered, "#") {
		t.Errorf("got %+v", v)
	}
	if sent := s.Commands(); sent[len(sent)-1] != v.Rendered {
		t.Errorf("the node got %q, the result says %q", sent[len(sent)-1], v.Rendered)
	}
}

func TestFiles(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	do := func(op abi.Op) (terms.Result, error) { return do(t.Context(), r, op, yellow) }

	res, err := do(
		abi.SFTPWrite{OnNode: on("n1"), Path: file, Data: abi.Data{Text: "hello"}, Mode: "0640"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Value.(abi.WriteResponse); v.Bytes != 5 || v.SHA256 != digest([]byte("hello")) ||
		res.SHA256 != v.SHA256 {
		t.Errorf("write: %+v", v)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("written with mode %v, %v", info.Mode(), err)
	}
	_, err = do(abi.SFTPWrite{OnNode: on("n1"), Path: file, Data: abi.Data{Text: "other"}})
	refused(t, err, "exists", terms.Failed, "overwrite")
	if _, err = do(abi.SFTPWrite{OnNode: on("n1"), Path: file, Data: abi.Data{Text: "other"},
		Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o640 {
		t.Errorf("overwriting changed the mode to %v", info.Mode())
	}
	if res, err = do(abi.SFTPRead{OnNode: on("n1"), Path: file}); err != nil ||
		res.Value.(abi.ReadResponse) != (abi.ReadResponse{Data: abi.Data{Text: "other"}, Bytes: 5,
			EOF: true}) {
		t.Errorf("read: %+v, %v", res.Value, err)
	}
	if res, err = do(abi.SFTPRead{OnNode: on("n1"), Path: file, MaxBytes: 2}); err != nil ||
		res.Value.(abi.ReadResponse) != (abi.ReadResponse{Data: abi.Data{Text: "ot"}, Bytes: 2}) {
		t.Errorf("read of 2 bytes: %+v, %v", res.Value, err)
	}
	if res, err = do(abi.SFTPStat{OnNode: on("n1"), Path: file}); err != nil ||
		res.Value.(abi.FileInfo).Size != 5 ||
		res.Value.(abi.FileInfo).Mode != 0o640 ||
		res.Value.(abi.FileInfo).RealPath != file {
		t.Errorf("stat: %+v, %v", res.Value, err)
	}

	local := filepath.Join(r.opts.Workspace, "agent-a", "up.bin")
	write(t, local, big)
	if res, err = do(abi.SFTPPut{OnNode: on("n1"), Local: "up.bin", Path: dir + "/up",
		Mode: "0600"}); err != nil ||
		res.SHA256 != digest(big) ||
		res.Bytes != int64(len(big)) {
		t.Fatalf("put: %+v, %v", res.Value, err)
	}
	if res, err = do(abi.SFTPGet{OnNode: on("n1"), Path: dir + "/up",
		Local: "sub/down.bin"}); err != nil ||
		res.SHA256 != digest(big) {
		t.Fatalf("get: %+v, %v", res.Value, err)
	}
	if got, _ := os.ReadFile(filepath.Join(r.opts.Workspace, "agent-a", "sub/down.bin")); digest(
		got,
	) != digest(
		big,
	) {
		t.Error("the downloaded file differs")
	}
	_, err = do(abi.SFTPGet{OnNode: on("n1"), Path: dir + "/up", Local: "sub/down.bin"})
	refused(t, err, "exists", terms.Failed, "overwrite")
	_, err = do(
		abi.SFTPGet{
			OnNode:    on("n1"),
			Path:      dir + "/up",
			Local:     "sub/down.bin",
			Overwrite: true,
			MaxBytes:  1 << 20,
		},
	)
	refused(t, err, "too_large", terms.Failed)
	if got, _ := os.ReadFile(filepath.Join(r.opts.Workspace, "agent-a", "sub/down.bin")); digest(
		got,
	) != digest(
		big,
	) {
		t.Error("a download that failed changed the file it was to replace")
	}

	if res, err = do(abi.SFTPList{OnNode: on("n1"), Path: dir}); err != nil {
		t.Fatal(err)
	}
	if l := res.Value.(abi.ListResponse); len(l.Entries) != 2 || l.Entries[0].Name != "file" ||
		l.Entries[1].Name != "up" ||
		l.Truncated {
		t.Errorf("list: %+v (a partial file may have been left)", l)
	}
	if res, err = do(abi.SFTPList{OnNode: on("n1"), Path: dir, Limit: 1}); err != nil ||
		len(res.Value.(abi.ListResponse).Entries) != 1 ||
		!res.Value.(abi.ListResponse).Truncated {
		t.Errorf("list of one: %+v, %v", res.Value, err)
	}
	if _, err = do(abi.SFTPRemove{OnNode: on("n1"), Path: file}); err != nil {
		t.Fatal(err)
	}
	_, err = do(abi.SFTPRemove{OnNode: on("n1"), Path: file})
	refused(t, err, "not_found", terms.Failed)
	left, _ := os.ReadDir(filepath.Join(r.opts.Workspace, "agent-a", "sub"))
	if len(left) != 1 {
		t.Errorf("the download folder holds %v", left)
	}
}

func TestStageIsPrivateAndGoesWithItsCall(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s, func(o *Options) { o.StageRoot = t.TempDir() })
	res, err := do(t.Context(), r, abi.Stage{OnNode: on("n1")}, yellow)
	if err != nil {
		t.Fatal(err)
	}
	dir := res.Value.(abi.StageResponse).Dir
	if res.Stage == nil || res.Stage.Dir != dir || res.Stage.Node != "n1" {
		t.Errorf("stage of the call: %+v", res.Stage)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", info, err)
	}
	write(t, dir+"/sub/file", []byte("x"))
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, []byte("keep"))
	os.Symlink(filepath.Dir(outside), dir+"/link")
	r.End(t.Context(), &terms.Call{Stages: []terms.StageDir{*res.Stage}})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after End: %v", err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("removing the directory followed a link out of it: %v", err)
	}
}

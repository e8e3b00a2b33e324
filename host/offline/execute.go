package offline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// stageRoot is the parent of the directories that a stage makes up. The first one is stageRoot/1.
const stageRoot = "/run/caponier/stage/"

// StageDir returns the directory of the nth stage of a call, from 1.
func StageDir(n int) string { return stageRoot + strconv.Itoa(n) }

const maxRead = 1 << 20 // bytes of a read without a limit of its own

// executor answers operations from the file.
type executor struct{ *Door }

var _ terms.Executor = executor{}

// Lookup implements terms.Executor. A path without an answer has the facts of a new file.
func (e executor) Lookup(_ context.Context, q terms.Question) (terms.Facts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := Describe(q.Op)
	if a.Path == "" {
		return terms.Facts{}, nil
	}
	facts := &terms.FileFacts{RealPath: a.Path, LocalBytes: int64(len(e.local[a.Local]))}
	if f, known := e.file(a.Node, a.Path); known && f.Type != "missing" {
		facts.Exists, facts.Type, facts.Mode = true, f.Type, f.Mode
		facts.Bytes = int64(len(f.Bytes))
	}
	return terms.Facts{File: facts}, nil
}

// Execute implements terms.Executor.
func (e executor) Execute(
	_ context.Context, q terms.Question, _ terms.Decision,
) (terms.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.answers(q.Op) {
		return terms.Result{}, terms.Fail(noAnswer, "the answers have none for %s", Describe(q.Op))
	}
	switch op := q.Op.(type) {
	case abi.SSHExec:
		return e.exec(Command{Node: op.Node, Argv: op.Argv}, op.MaxBytes, "")
	case abi.SSHScript:
		return e.exec(Command{Node: op.Node, Script: op.Script}, op.MaxBytes, q.Cmd.Rendered)
	case abi.HTTPRequest:
		return e.http(op)
	case abi.BlobWrite, abi.BlobRead:
		return e.blob(op)
	case abi.Ask:
		a := e.given.ask(op.Key)
		return terms.Result{Value: abi.AskResponse{Action: a.Action, Content: a.Content}}, nil
	case abi.Stage:
		e.stages++
		dir := StageDir(e.stages)
		e.keep(File{Node: op.Node, Path: dir, Type: "dir", Mode: 0o700})
		return terms.Result{Value: abi.StageResponse{Dir: dir},
			Stage: &terms.StageDir{Node: op.Node, Dir: dir}}, nil
	case abi.SFTPWrite, abi.SFTPPut, abi.SFTPRemove:
		return e.change(op)
	}
	return e.look(q.Op)
}

// End implements terms.Executor: the next call sees the answers as they were.
func (e executor) End(context.Context, *terms.Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.world = newWorld(e.o.Answers)
}

// fileTiers are the tiers of what is done with a file; all else is yellow.
var fileTiers = map[string]terms.Tier{"stat": terms.Green, "list": terms.Green,
	"read": terms.Green, "stage": terms.Green, "remove": terms.Red}

// answers reports whether there is an answer to an operation.
func (w *world) answers(op abi.Op) bool {
	switch op := op.(type) {
	case abi.SSHExec:
		return w.given.command(Command{Node: op.Node, Argv: op.Argv}) >= 0
	case abi.SSHScript:
		return w.given.command(Command{Node: op.Node, Script: op.Script}) >= 0
	case abi.HTTPRequest:
		return w.given.request(op.Method, op.URL) != nil
	case abi.Ask:
		return w.given.ask(op.Key) != nil
	case abi.BlobWrite, abi.BlobRead, abi.Stage:
		return true
	case abi.FileOp:
		f := op.File()
		if f.Moves == abi.MovesLocal && w.local[*f.Local] == nil {
			return false
		}
		_, known := w.file(op.NodeName(), f.Path)
		makes := f.Moves == abi.MovesLocal || f.Moves == abi.MovesData
		return known || makes && w.staged(f.Path)
	}
	return false
}

// staged reports whether a path lies in a directory that a stage made.
func (w *world) staged(name string) bool {
	return strings.HasPrefix(name, stageRoot) && w.stages > 0
}

// file returns what a path holds, on its own node before every node.
func (w *world) file(node, name string) (File, bool) {
	for _, n := range []string{node, ""} {
		if f, known := w.files[File{Node: n, Path: name}.key()]; known {
			return f, true
		}
	}
	return File{}, false
}

func (w *world) keep(f File) { w.files[f.key()] = f }

func (w *world) exec(want Command, max int64, rendered string) (terms.Result, error) {
	i := w.given.command(want)
	results := w.given.Commands[i].Results
	r := results[min(w.ran[i], len(results)-1)]
	w.ran[i]++
	if max <= 0 {
		max = maxRead
	}
	out := abi.ExecResponse{Exit: r.Exit, Rendered: rendered}
	stdout, stderr := cut(r.Stdout, max), cut(r.Stderr, max)
	out.Truncated = len(stdout) < len(r.Stdout) || len(stderr) < len(r.Stderr)
	out.Stdout, out.StdoutB64 = abi.Split(stdout)
	out.Stderr, out.StderrB64 = abi.Split(stderr)
	return terms.Result{Value: out, Exit: &out.Exit, Bytes: int64(len(stdout) + len(stderr))}, nil
}

func cut(b []byte, max int64) []byte { return b[:min(int64(len(b)), max)] }

func (w *world) http(op abi.HTTPRequest) (terms.Result, error) {
	r := w.given.request(op.Method, op.URL)
	out := abi.HTTPResponse{Status: r.Status, Headers: r.Headers, Bytes: int64(len(r.Body)),
		Hops: []abi.Hop{}}
	if op.Save {
		out.Blob = w.save(r.Body)
	} else {
		out.Data = abi.NewData(r.Body)
	}
	return terms.Result{Value: out, Bytes: out.Bytes}, nil
}

func (w *world) save(data []byte) (id string) {
	id = fmt.Sprintf("offline-%d", len(w.blobs)+1)
	w.blobs[id] = data
	return id
}

func (w *world) blob(op abi.Op) (terms.Result, error) {
	switch op := op.(type) {
	case abi.BlobWrite:
		data, err := op.Bytes()
		if err != nil {
			return terms.Result{}, err
		}
		id := w.save(data)
		return terms.Result{Value: abi.BlobWriteResponse{Blob: id, URI: "blob://" + id,
			Bytes: int64(len(data)), SHA256: sum(data)}}, nil
	case abi.BlobRead:
		data, known := w.blobs[strings.TrimPrefix(op.Blob, "blob://")]
		switch {
		case !known:
			return terms.Result{}, terms.Fail("not_found", "there is no blob %s", op.Blob)
		case op.Local != "":
			return w.download(data, op.Local, true)
		}
		return reading(data[min(max(op.Offset, 0), int64(len(data))):], op.MaxBytes)
	}
	return terms.Result{}, terms.Fail("unsupported", "%s has no answer of this kind", op.Import())
}

// look answers what changes nothing on the node.
func (w *world) look(op abi.Op) (terms.Result, error) {
	a := Describe(op)
	f, _ := w.file(a.Node, a.Path)
	if f.Type == "missing" {
		return terms.Result{}, terms.Fail("not_found", "%s does not exist", a.Path)
	}
	if _, lists := op.(abi.SFTPList); lists != (f.Type == "dir") {
		if _, stats := op.(abi.SFTPStat); !stats {
			return terms.Result{}, terms.Fail("failed", "%s is of the type %s", a.Path, f.Type)
		}
	}
	switch op := op.(type) {
	case abi.SFTPStat:
		info := infoOf(f)
		info.Name, info.RealPath = "", f.Path
		return terms.Result{Value: info}, nil
	case abi.SFTPList:
		return w.list(f, op.Limit)
	case abi.SFTPRead:
		return reading(f.Bytes, op.MaxBytes)
	case abi.SFTPGet:
		if op.SHA256 != "" && op.SHA256 != sum(f.Bytes) {
			return terms.Result{}, terms.Fail("digest", "%s has the digest %s", f.Path,
				sum(f.Bytes))
		}
		return w.download(f.Bytes, op.Local, op.Overwrite)
	}
	return terms.Result{}, terms.Fail("unsupported", "%s has no answer of this kind", op.Import())
}

func infoOf(f File) abi.FileInfo {
	return abi.FileInfo{Name: path.Base(f.Path), Type: f.Type, Size: int64(len(f.Bytes)),
		Mode: abi.Mode(f.Mode)}
}

func (w *world) list(dir File, limit int) (terms.Result, error) {
	out := abi.ListResponse{Entries: []abi.FileInfo{}}
	for _, f := range w.files {
		if path.Dir(f.Path) == dir.Path && f.Path != dir.Path && f.Type != "missing" &&
			(f.Node == dir.Node || f.Node == "" || dir.Node == "") {
			out.Entries = append(out.Entries, infoOf(f))
		}
	}
	slices.SortFunc(out.Entries, func(a, b abi.FileInfo) int {
		return strings.Compare(a.Name, b.Name)
	})
	if limit > 0 && len(out.Entries) > limit {
		out.Entries, out.Truncated = out.Entries[:limit], true
	}
	return terms.Result{Value: out}, nil
}

// change answers what writes or removes a file of a node, in memory.
func (w *world) change(op abi.Op) (terms.Result, error) {
	a := Describe(op)
	before, _ := w.file(a.Node, a.Path)
	exists := before.Type != "" && before.Type != "missing"
	after, overwrite := File{Node: a.Node, Path: a.Path, Type: "file", Mode: 0o644}, false
	mode := ""
	switch op := op.(type) {
	case abi.SFTPRemove:
		if !exists {
			return terms.Result{}, terms.Fail("not_found", "%s does not exist", a.Path)
		}
		after.Type = "missing"
		w.keep(after)
		return terms.Result{Value: struct{}{}}, nil
	case abi.SFTPWrite:
		data, err := op.Bytes()
		if err != nil {
			return terms.Result{}, err
		}
		after.Bytes, mode, overwrite = data, op.Mode, op.Overwrite
	case abi.SFTPPut:
		after.Bytes, mode, overwrite = w.local[op.Local], op.Mode, op.Overwrite
	}
	if exists && !overwrite {
		return terms.Result{}, terms.Fail("exists", "%s exists", a.Path)
	}
	if bits, err := strconv.ParseUint(mode, 8, 12); err == nil {
		after.Mode = uint32(bits)
	}
	w.keep(after)
	n := int64(len(after.Bytes))
	return terms.Result{Value: abi.WriteResponse{Bytes: n, SHA256: sum(after.Bytes)}, Bytes: n}, nil
}

// download keeps bytes as a file of the workspace, in memory.
func (w *world) download(data []byte, local string, overwrite bool) (terms.Result, error) {
	if _, exists := w.local[local]; exists && !overwrite {
		return terms.Result{}, terms.Fail("exists", "%s exists in the workspace", local)
	}
	w.local[local] = append([]byte{}, data...)
	n := int64(len(data))
	return terms.Result{Value: abi.WriteResponse{Bytes: n, SHA256: sum(data), Local: local},
		Bytes: n}, nil
}

func reading(data []byte, limit int64) (terms.Result, error) {
	if limit <= 0 || limit > maxRead {
		limit = maxRead
	}
	part := cut(data, limit)
	return terms.Result{Value: abi.ReadResponse{Data: abi.NewData(part), Bytes: int64(len(part)),
		EOF: len(part) == len(data)}, Bytes: int64(len(part))}, nil
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// Package recording writes down what the operations of calls returned, as answers that a tool can
// be tried with (package offline).
package recording

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/offline"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Recorder records the results of the calls of one door, except for those of the host's own tools.
// Its methods may be called concurrently. The zero value is ready to use.
type Recorder struct {
	mu      sync.Mutex // guards the following
	answers offline.Answers
	left    []string
	staged  []string // the directories that stages made, in their order
}

// Executors returns executors that call the given ones and record their results. Nodes are the
// inventory's.
func (r *Recorder) Executors(all map[string]terms.Executor, nodes []terms.Node,
) map[string]terms.Executor {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range nodes {
		r.answers.Nodes = append(r.answers.Nodes, n.Name)
		if n.Default {
			last := len(r.answers.Nodes) - 1
			r.answers.Nodes[0], r.answers.Nodes[last] = n.Name, r.answers.Nodes[0]
		}
	}
	noting := map[string]terms.Executor{}
	for name, next := range all {
		noting[name] = executor{next, r}
	}
	return noting
}

// Answers returns the answers so far, and what they lack, a line for each operation.
func (r *Recorder) Answers() (text []byte, left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return offline.Format(&r.answers), slices.Clone(r.left)
}

type executor struct {
	terms.Executor
	*Recorder
}

// Execute implements terms.Executor.
func (e executor) Execute(ctx context.Context, q terms.Question, d terms.Decision) (
	terms.Result, error) {
	res, err := e.Executor.Execute(ctx, q, d)
	if q.Call.Tool.Kind != native.Host {
		e.note(q, res, err)
	}
	return res, err
}

// note keeps the result of an operation.
func (r *Recorder) note(q terms.Question, res terms.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := offline.Describe(q.Op)
	switch v := res.Value.(type) {
	case abi.StageResponse:
		r.staged = append(r.staged, v.Dir)
		return
	case abi.BlobWriteResponse:
		return // needs no answer
	case abi.ExecResponse:
		if err == nil {
			r.command(asked, v)
			return
		}
	case abi.HTTPResponse:
		if body, wrong := v.Data.Bytes(); err == nil && wrong == nil && v.Blob == "" {
			r.request(asked, v, body)
			return
		}
	case abi.AskResponse:
		if err == nil {
			r.ask(asked, v)
			return
		}
	default:
		if r.file(q, asked, res.Value, err) {
			return
		}
	}
	why := "its result is not one that an answer can have"
	if err != nil {
		why = err.Error()
	}
	r.left = append(r.left, fmt.Sprintf("%s: %s", asked, why))
}

// offlineName is a text in which each staged directory has the name that it has offline.
func (r *Recorder) offlineName(s string) string {
	for i, dir := range r.staged {
		s = strings.ReplaceAll(s, dir, offline.StageDir(i+1))
	}
	return s
}

func (r *Recorder) command(a offline.Asked, v abi.ExecResponse) {
	c := offline.Command{Node: a.Node, Script: r.offlineName(a.Script)}
	for _, word := range a.Argv {
		c.Argv = append(c.Argv, r.offlineName(word))
	}
	stdout, wrong := abi.Join(v.Stdout, v.StdoutB64)
	stderr, alsoWrong := abi.Join(v.Stderr, v.StderrB64)
	if cmp.Or(wrong, alsoWrong) != nil || v.Signal != "" || v.Truncated {
		r.left = append(r.left, a.String()+": it was cut, or ended by a signal")
	}
	result := offline.Result{Exit: v.Exit, Stdout: stdout, Stderr: stderr}
	same := func(x offline.Command) bool {
		return x.Node == c.Node && x.Script == c.Script && slices.Equal(x.Argv, c.Argv)
	}
	if i := slices.IndexFunc(r.answers.Commands, same); i >= 0 {
		r.answers.Commands[i].Results = append(r.answers.Commands[i].Results, result)
		return
	}
	c.Results = []offline.Result{result}
	r.answers.Commands = append(r.answers.Commands, c)
}

func (r *Recorder) request(a offline.Asked, v abi.HTTPResponse, body []byte) {
	if !slices.ContainsFunc(r.answers.Requests, func(x offline.Request) bool {
		return x.Method == a.Method && x.URL == a.URL
	}) {
		r.answers.Requests = append(r.answers.Requests, offline.Request{Method: a.Method,
			URL: a.URL, Status: v.Status, Headers: v.Headers, Body: body})
	}
}

func (r *Recorder) ask(a offline.Asked, v abi.AskResponse) {
	if !slices.ContainsFunc(r.answers.Asks, func(x offline.Ask) bool { return x.Key == a.Key }) {
		r.answers.Asks = append(r.answers.Asks, offline.Ask{Key: a.Key, Action: v.Action,
			Content: v.Content})
	}
}

// file keeps what a path held before the call changed it, as far as the operation shows it. It
// reports false for an operation that shows nothing, or not all.
func (r *Recorder) file(q terms.Question, a offline.Asked, value any, err error) bool {
	f := offline.File{Node: a.Node, Path: r.offlineName(a.Path), Type: "missing"}
	facts := q.Facts.File
	if facts != nil && facts.Exists {
		f.Type, f.Mode = facts.Type, facts.Mode
	}
	if f.Path != a.Path && err == nil { // in a staged directory
		return a.Local == ""
	}
	switch v := value.(type) {
	case abi.ReadResponse:
		data, wrong := v.Data.Bytes()
		f.Bytes = data
		return r.keep(f) && wrong == nil && v.EOF && err == nil
	case abi.ListResponse:
		for _, e := range v.Entries {
			under := offline.File{Node: a.Node, Path: path.Join(f.Path, e.Name), Type: e.Type,
				Mode: uint32(e.Mode)}
			if e.Name == "" || !r.keep(under) {
				return false
			}
		}
		return r.keep(f) && err == nil
	}
	if facts == nil || a.Local != "" && facts.Exists == (a.Op == "sftp_get") {
		return false // the bytes of a transfer are not seen
	}
	_, whole := r.known(f)
	return whole || r.keep(f) && (f.Type != "file" || facts.Bytes == 0 || a.Op == "sftp_stat")
}

// known returns the index of a path among the answers, or -1, and whether its bytes are there.
func (r *Recorder) known(f offline.File) (i int, whole bool) {
	i = slices.IndexFunc(r.answers.Files,
		func(x offline.File) bool { return x.Node == f.Node && x.Path == f.Path })
	return i, i >= 0 && r.answers.Files[i].Bytes != nil
}

// keep records a path once. If a listed path is read later, the read replaces the entry.
func (r *Recorder) keep(f offline.File) bool {
	if f.Type != "file" && f.Type != "dir" && f.Type != "missing" {
		return false
	}
	switch i, whole := r.known(f); {
	case i < 0:
		r.answers.Files = append(r.answers.Files, f)
	case r.answers.Files[i].Type == "file" && !whole:
		r.answers.Files[i] = f
	}
	return true
}

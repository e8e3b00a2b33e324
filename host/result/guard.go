package result

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Returned describes a result: of the operation of Question, or of its call if it has no operation.
type Returned struct {
	Question terms.Question
	Bytes    int64
	Exit     *int
	Saved    bool // a file or blob, which is handed over as it is or not at all
	Hits     map[string]int
}

// Answer is the decision on a result. The result is refused if Denied is not empty, or if a
// detector that hit has another action than allow and mask.
type Answer struct {
	Actions map[string]string
	Denied  []terms.Reason
}

// Policy is asked by a Guard. An error refuses.
type Policy interface {
	// Detectors returns those in force, and whether results without hits are decided too.
	Detectors(ctx context.Context) (set *Set, always bool, err error)
	Returns(ctx context.Context, r Returned) (Answer, error)
}

// Guard decides what goes back to plugins and clients. It is safe for concurrent use.
type Guard struct {
	Policy Policy
	Budget time.Duration // of the detectors, for one result; 0 is 10 seconds
	Mode   func(context.Context) terms.Mode
}

// Executors returns executors that do what the given ones do, and hand on what policy lets pass.
func (g *Guard) Executors(all map[string]terms.Executor) map[string]terms.Executor {
	guarded := map[string]terms.Executor{}
	for name, next := range all {
		guarded[name] = executor{next, g}
	}
	return guarded
}

type executor struct {
	terms.Executor
	*Guard
}

// Execute implements terms.Executor.
func (e executor) Execute(ctx context.Context, q terms.Question, d terms.Decision) (
	terms.Result, error) {
	if writesMask(q.Op) {
		return terms.Result{}, terms.Fail("masked", "%s would write %s…], which stands for a "+
			"secret that was kept back; nothing was done", q.Op.Import(), marker)
	}
	set, always, err := e.Policy.Detectors(ctx)
	if err != nil {
		return terms.Result{}, terms.Fail(code, "no detectors: %v; nothing was done", err)
	}
	j := job{Guard: e.Guard, set: set, always: always, r: Returned{Question: q}}
	saved := &screen{masker: set.masker(ctx, io.Discard), ctx: ctx, job: j}
	asked := q
	asked.Screen = saved
	switch op := q.Op.(type) {
	case abi.SFTPPut:
		asked.Screen = &unmasked{name: op.Local}
	case abi.Ask:
		if hits, err := j.question(ctx, op); err != nil {
			return terms.Result{Hits: hits}, err
		}
	}
	res, err := e.Executor.Execute(ctx, asked, d)
	if res.Hits = saved.found; saved.closed {
		return res, err
	}
	j.r.Bytes, j.r.Exit = res.Bytes, res.Exit
	if err != nil {
		res.Hits, err = j.failure(ctx, err)
		return res, err
	}
	res.Hits, err = j.decide(ctx, func(f edit) { res.Value = inValue(res.Value, f) })
	if err != nil {
		res.Value, res.Next = nil, nil
	}
	return res, err
}

// Runner returns a runner that hands on what policy lets pass of the outputs of the given one.
func (g *Guard) Runner(next gate.Runner) gate.Runner { return runner{next, g} }

type runner struct {
	gate.Runner
	*Guard
}

// Run implements gate.Runner.
func (r runner) Run(ctx context.Context, call *gate.Running) (terms.Output, error) {
	set, always, err := r.Policy.Detectors(ctx)
	if err != nil {
		return terms.Output{}, terms.Fail(code, "no detectors: %v; nothing was done", err)
	}
	out, err := r.Runner.Run(ctx, call)
	q := terms.Question{ID: call.Call.ID, Kind: terms.KindCall, Call: call.Call, Time: time.Now()}
	if r.Mode != nil {
		q.Mode = r.Mode(ctx)
	}
	j := job{Guard: r.Guard, set: set, always: always,
		r: Returned{Question: q, Bytes: int64(len(out.JSON))}}
	if err != nil {
		out.JSON = nil
		out.Hits, err = j.failure(ctx, err)
		return out, err
	}
	out.Hits, err = j.decide(ctx, func(f edit) { out.JSON = inOutput(set, out.JSON, f) })
	if err != nil {
		out.JSON = nil
	}
	return out, err
}

// code is the code of errors that replace results.
const code = "result_refused"

// job is the decision about one result.
type job struct {
	*Guard
	set    *Set
	always bool
	r      Returned
}

// decide examines the texts that each visits, asks policy if necessary, and lets each put masks
// into them. If it returns an error, a *terms.OpError, nothing may be returned.
func (j job) decide(ctx context.Context, each func(edit)) ([]terms.Hit, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(j.Budget, 10*time.Second))
	defer cancel()
	var failed error
	look := func(set *Set, hits map[string]int) edit {
		return func(b []byte) []byte {
			masked, found, err := set.Mask(ctx, b)
			if failed = cmp.Or(failed, err); err != nil || len(found) == 0 {
				return b
			}
			for name, n := range found {
				hits[name] += n
			}
			return masked
		}
	}
	j.r.Hits = map[string]int{}
	each(func(b []byte) []byte { look(j.set, j.r.Hits)(b); return b })
	if failed != nil {
		return nil, j.withheld("the detectors did not finish: %v", failed)
	}
	found, actions, err := j.ask(ctx)
	if err != nil || len(found) == 0 {
		return found, err
	}
	masks := j.set.only(func(name string) bool { return actions[name] != "allow" })
	if each(look(masks, map[string]int{})); failed != nil {
		return found, j.withheld("the detectors did not finish: %v", failed)
	}
	return found, nil
}

// ask has policy decide about the hits.
func (j job) ask(ctx context.Context) (found []terms.Hit, actions map[string]string, err error) {
	if len(j.r.Hits) == 0 && !j.always {
		return nil, nil, nil
	}
	a, err := j.Policy.Returns(ctx, j.r)
	var why []string
	for _, name := range slices.Sorted(maps.Keys(j.r.Hits)) {
		action := a.Actions[name]
		if err != nil || action != "allow" && (action != "mask" || j.r.Saved) {
			action = "refuse"
			why = append(why, fmt.Sprintf("%s (%d)", name, j.r.Hits[name]))
		}
		found = append(found, terms.Hit{Detector: name, Count: j.r.Hits[name], Action: action})
	}
	for _, d := range a.Denied {
		why = append(why, d.Msg+" ("+d.ID+")")
	}
	switch {
	case err != nil:
		return found, nil, j.withheld("policy did not answer: %v", err)
	case len(why) > 0:
		return found, nil, j.withheld("policy withholds it: %s", strings.Join(why, ", "))
	}
	return found, a.Actions, nil
}

// failure masks the text of an error.
func (j job) failure(ctx context.Context, err error) ([]terms.Hit, error) {
	op, broke := (*terms.OpError)(nil), (*terms.PluginError)(nil)
	switch {
	case errors.As(err, &op):
		said := *op
		hits, no := j.decide(ctx, func(f edit) { said.Message = string(f([]byte(said.Message))) })
		if no != nil {
			said.Message = no.Error()
		}
		return hits, &said
	case errors.As(err, &broke):
		said := *broke
		hits, no := j.decide(ctx, func(f edit) { said.Message = string(f([]byte(said.Message))) })
		if no != nil {
			said.Message = no.Error()
		}
		return hits, &said
	}
	return nil, err
}

// question decides what a plugin asks the client's user, which is put as it is or not at all.
func (j job) question(ctx context.Context, op abi.Ask) (found []terms.Hit, err error) {
	text, err := abi.Encode(op.Schema)
	if err != nil {
		return nil, j.withheld("%v", err)
	}
	m := j.set.masker(ctx, io.Discard)
	for _, part := range []string{op.Message, "\n", string(text)} {
		_, err = m.Write([]byte(part))
		if err != nil {
			break
		}
	}
	if err = cmp.Or(err, m.Close()); err != nil {
		return nil, j.withheld("the detectors did not finish: %v", err)
	}
	j.r.Bytes, j.r.Saved, j.r.Hits = int64(len(op.Message)+len(text)), true, m.hits
	found, _, err = j.ask(ctx)
	return found, err
}

// Said returns the text that replaces a plugin's progress or log text. It masks everything that the
// detectors find, regardless of policy.
func (g *Guard) Said(ctx context.Context, text string) string {
	set, _, err := g.Policy.Detectors(ctx)
	if err == nil {
		var masked []byte
		if masked, _, err = set.Mask(ctx, []byte(text)); err == nil {
			return string(masked)
		}
	}
	return "[withheld, because it could not be examined: " + err.Error() + "]"
}

func (j job) withheld(format string, args ...any) error {
	what := "the result is withheld, but the operation was executed: "
	if _, asks := j.r.Question.Op.(abi.Ask); asks {
		what = "the user is not asked: "
	}
	return terms.Fail(code, what+format, args...)
}

// screen sees what an operation saves.
type screen struct {
	*masker
	ctx    context.Context
	job    job
	closed bool
	found  []terms.Hit
}

// Write implements io.Writer.
func (s *screen) Write(b []byte) (int, error) {
	s.job.r.Bytes += int64(len(b))
	return s.masker.Write(b)
}

// Close decides whether the bytes may be stored.
func (s *screen) Close() (err error) {
	s.closed = true
	if err := s.masker.Close(); err != nil {
		return s.job.withheld("the detectors did not finish: %v", err)
	}
	s.job.r.Saved, s.job.r.Hits = true, s.hits
	s.found, _, err = s.job.ask(s.ctx)
	return err
}

// unmasked looks for masks in a file of the workspace that is sent to a node.
type unmasked struct {
	name string
	tail []byte // of what was written, shorter than a mask's beginning
	mask bool
}

// Write implements io.Writer.
func (u *unmasked) Write(b []byte) (int, error) {
	u.tail = append(u.tail, b...)
	u.mask = u.mask || bytes.Contains(u.tail, []byte(marker))
	u.tail = append(u.tail[:0], u.tail[max(0, len(u.tail)-len(marker)+1):]...)
	return len(b), nil
}

// Close reports a mask.
func (u *unmasked) Close() error {
	if u.mask {
		return terms.Fail("masked", "local %q has %s…], which stands for a secret that was kept "+
			"back; nothing was changed on the node", u.name, marker)
	}
	return nil
}

// writesMask reports whether an operation would write a mask in place of a secret.
func writesMask(op abi.Op) bool {
	var data []byte
	switch op := op.(type) {
	case abi.SFTPWrite:
		data, _ = op.Data.Bytes()
	case abi.BlobWrite:
		data, _ = op.Data.Bytes()
	case abi.HTTPRequest:
		data, _ = op.Data.Bytes()
		for _, h := range op.Headers {
			data = append(data, h[1]+"\n"...)
		}
		data = append(data, op.URL...)
	case abi.SSHExec:
		data, _ = base64.StdEncoding.DecodeString(op.StdinB64)
		data = append(data, op.Stdin...)
		data = append(data, strings.Join(op.Argv, "\n")...)
	case abi.SSHScript:
		data = []byte(op.Script)
	}
	return bytes.Contains(data, []byte(marker))
}

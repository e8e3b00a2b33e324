// Package plan makes plans of calls, with which the calls are compared.
package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var _ terms.Plan = (*plan)(nil)

// Planner makes plans. The zero value is ready.
type Planner struct{ Now func() time.Time } // nil: time.Now

// Plan returns the plan of a dry run: of its steps, and of how it ended.
func (m Planner) Plan(c *terms.Call, steps []terms.Step, a terms.Answer) terms.Plan {
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	p := &plan{Schema: schema, Call: c.ID, Made: now().UTC(), Principal: c.Principal.ID,
		Tool: c.Tool.Name, Plugin: c.Tool.Plugin, Arguments: c.Args.Digest,
		Tier: c.Decided.Tier.String(), Targets: c.Targets, Steps: []step{}}
	named := map[string]bool{}
	for _, s := range steps {
		p.Steps = append(p.Steps, stepOf(s, named))
	}
	p.touch()
	p.Ends = ends(c, p.Steps, a)
	p.Whole = p.Ends == ""
	p.Sum = p.digest()
	return p
}

// ends tells where and why a dry run is incomplete, or is "".
func ends(c *terms.Call, steps []step, a terms.Answer) string {
	last := fmt.Sprintf("after step %d", len(steps))
	no := slices.IndexFunc(steps, func(s step) bool { return !s.Allowed })
	switch {
	case no >= 0 && len(steps[no].Refused) > 0:
		return fmt.Sprintf("step %d is refused: %s", no+1, steps[no].Refused[0].Msg)
	case no >= 0:
		return fmt.Sprintf("step %d is refused", no+1)
	case !c.Tool.Plans:
		return last + ", since plugin " + c.Tool.Plugin.Name + " was built for an ABI before " +
			"1.2, which cannot go on when an operation is only planned"
	case a.Err != nil:
		return last + ": " + a.Err.Error()
	case a.Output.Code != 0:
		return last + ", with an error of the tool"
	}
	return ""
}

// stepOf makes a step. named contains the paths of earlier steps, whose facts will differ from
// those of the dry run.
func stepOf(s terms.Step, named map[string]bool) step {
	q, d := s.Question, s.Decision
	out := step{Op: q.Op.Import(), Node: q.Op.NodeName(), Tier: d.Tier.String(), Allowed: d.Allow,
		Refused: append([]terms.Reason{}, d.Denied...),
		Touches: q.Facts.Touches, Looked: q.Time.UTC()}
	out.SHA256, out.path = bound(q, named)
	named[out.path] = true
	var in input.Operation
	if json.Unmarshal(d.Input, &in) == nil { // as it was decided, and masked
		out.Command, out.File, out.HTTP, out.Blob = in.Command, in.File, in.HTTP, in.Blob
	}
	out.Does, out.Undo = does(&out), undo(&out, d.Obligations)
	return out
}

// bound returns a digest of everything in an operation that must equal the plan, and the path that
// the operation names. The digest covers the request except for its timeout, and the facts of a
// file whose path is not in named. For a file in a directory that the host made for the call, it
// covers only the size of the local file, because other steps create what is there. It does not
// cover the digest that a download expects, which is not known in advance, and can only make the
// download fail. The digest is "" if the operation cannot be compared.
func bound(q terms.Question, named map[string]bool) (digest, path string) {
	names := numbers(q.Call)
	b, err := json.Marshal(q.Op)
	if err != nil {
		return "", ""
	}
	request := map[string]any{}
	d := json.NewDecoder(strings.NewReader(names.Replace(string(b))))
	d.UseNumber()
	if d.Decode(&request) != nil {
		return "", ""
	}
	delete(request, "timeout_ms")
	path, _ = request["path"].(string)
	facts := q.Facts.File
	if _, get := q.Op.(abi.SFTPGet); get {
		delete(request, "sha256")
	}
	switch {
	case named[path]:
		facts = nil
	case facts != nil && strings.HasPrefix(path, staged):
		facts = &terms.FileFacts{LocalBytes: facts.LocalBytes}
	}
	if b, err = json.Marshal([]any{q.Op.Import(), request, facts}); err != nil {
		return "", ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(names.Replace(string(b))))), path
}

// staged is the prefix of the placeholder for a stage that the host made. Requests contain no NUL.
const staged = "\x00/made/stage/"

// numbers returns what replaces, in JSON, the names that the host has made for this run by now.
// Stages and blobs are counted apart: a blob is made without a step of the plan, so one more of
// them in the dry run must not make the first stage look like the second.
func numbers(c *terms.Call) *strings.Replacer {
	pairs := [][]string{}
	for i, s := range c.Stages {
		pairs = append(pairs, []string{s.Dir, fmt.Sprintf(`\u0000/made/stage/%d`, i+1)})
	}
	for i, name := range c.Blobs {
		pairs = append(pairs, []string{name, fmt.Sprintf(`\u0000/made/blob/%d`, i+1)})
	}
	slices.SortStableFunc(pairs, func(a, b []string) int { // /planned/1 begins /planned/10
		return len(b[0]) - len(a[0])
	})
	return strings.NewReplacer(slices.Concat(pairs...)...)
}

// digest covers what an approval is bound to. Neither the id nor the time of the dry run is in it,
// so that a second dry run of the same call on the same nodes comes to the same plan.
func (p *plan) digest() string {
	type bound struct {
		Op, Node, Does, SHA256, Tier string
		Allowed                      bool
		Touches                      []terms.Touched
	}
	steps := []bound{}
	for _, s := range p.Steps {
		steps = append(steps, bound{s.Op, s.Node, s.Does, s.SHA256, s.Tier, s.Allowed,
			s.Touches})
	}
	b, err := json.Marshal([]any{p.Schema, p.Principal, p.Tool, p.Plugin, p.Arguments, p.Tier,
		p.Targets, p.Whole, steps})
	if err != nil {
		return "" // which no approval can be bound to
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b))
}

// Digest implements terms.Plan.
func (p *plan) Digest() string { return p.Sum }

// Complete implements terms.Plan.
func (p *plan) Complete() (bool, string) { return p.Whole, p.Ends }

// Next implements terms.Plan. What the step rests on is compared once the question has it.
func (p *plan) Next(q terms.Question) terms.PlanFacts {
	f := terms.PlanFacts{Digest: p.Sum, Complete: p.Whole, Left: p.next < len(p.Steps),
		Rests: []string{}}
	if !f.Left {
		return f
	}
	step := p.Steps[p.next]
	f.Want = step.Does
	named := map[string]bool{}
	for _, s := range p.Steps[:p.next] {
		named[s.path] = true
	}
	sum, _ := bound(q, named)
	f.Next = step.Allowed && sum != "" && sum == step.SHA256
	rests := p.rests()
	for _, t := range rests {
		f.Rests = append(f.Rests, t.About)
	}
	if q.Facts.Touches != nil {
		f.Changed = changed(rests, q.Facts.Touches)
	}
	return f
}

// Take implements terms.Plan.
func (p *plan) Take() { p.next++ }

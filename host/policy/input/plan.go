package input

import "github.com/caponier-mcp/caponier/host/terms"

const planSchema = "caponier.plan/1"

type (
	// plan is what a dry run of a call came to. A step has the parts of an operation.
	plan struct {
		Head
		Args     Args          `json:"args"`
		Targets  terms.Targets `json:"targets"`
		Nodes    []Node        `json:"nodes"` // the inventory
		Digest   string        `json:"digest"`
		Complete bool          `json:"complete"`
		Ends     string        `json:"ends"` // where and why it ends early
		Steps    []step        `json:"steps"`
	}
	step struct {
		Op      string   `json:"op"`
		Tier    string   `json:"tier"`
		Allowed bool     `json:"allowed"`
		Failed  []string `json:"failed"`
		Target  *Target  `json:"target"`
		Command *Command `json:"command"`
		File    *File    `json:"file"`
		HTTP    *Request `json:"http"`
		Blob    *Blob    `json:"blob"`
		// as in an operation
		Touches *[]terms.Touched `json:"touches"`
	}
)

func planOf(h Head, a Args, q *terms.Question) *plan {
	h.Schema = planSchema
	c := q.Call
	p := &plan{Head: h, Args: a, Targets: c.Targets, Nodes: nodesOf(c), Steps: stepsOf(q)}
	if c.Plan != nil {
		p.Digest = c.Plan.Digest()
		p.Complete, p.Ends = c.Plan.Complete()
	}
	return p
}

func stepsOf(q *terms.Question) (steps []step) {
	for _, s := range q.Steps {
		var o Operation
		o.operation(&s.Question)
		steps = append(steps, step{o.Op, s.Decision.Tier.String(), s.Decision.Allow,
			s.Decision.Failed, o.Target, o.Command, o.File, o.HTTP, o.Blob, o.Touches})
	}
	return steps
}

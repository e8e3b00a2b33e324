package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/result"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// checkData holds the site's data against its schema, then against core/lint.rego,
// core/names.rego and core/idle.rego.
func (c *Candidate) checkData(ctx context.Context) error {
	if err := c.checkSchema(ctx); err != nil {
		return err
	}
	v, err := c.ask(ctx, `{"wrong": data.caponier.core.lint.problems | `+
		`data.caponier.core.names.problems, "odd": data.caponier.core.names.warnings, `+
		`"idle": data.caponier.core.idle.warnings}`,
		c.inventory.data())
	found, ok := v.(map[string]any)
	if err != nil || !ok {
		return fmt.Errorf("looking for mistakes in the site's data: found %v, %w", v, err)
	}
	wrong := c.checkDetectors()
	for _, w := range list(found, "wrong") {
		wrong = append(wrong, c.said(w))
	}
	for _, w := range list(found, "odd") {
		c.Warnings = append(c.Warnings, c.said(w).Error())
	}
	for _, w := range list(found, "idle") {
		c.Idle = append(c.Idle, c.said(w).Error())
	}
	return errors.Join(wrong...)
}

// checkDetectors holds the site's patterns against what the host can find in a stream.
func (c *Candidate) checkDetectors() (wrong []error) {
	names := keys(c.data, "site", "results", "detectors")
	if len(names) > result.MaxPatterns {
		return []error{c.mistake("results/detectors", fmt.Sprintf("has %d patterns; %d at most",
			len(names), result.MaxPatterns))}
	}
	for _, name := range names {
		re, _ := at(c.data, "site", "results", "detectors", name, "pattern").(string)
		if err := result.Check(result.Pattern{Name: name, RE: re}); err != nil {
			wrong = append(wrong, c.mistake("results/detectors/"+name, err.Error()))
		}
	}
	return wrong
}

func (c *Candidate) checkSchema(ctx context.Context) error {
	schema := c.schemas.Get(ast.MustParseRef("schema.site"))
	store, err := c.store(nil)
	if err != nil {
		return err
	}
	rs, err := rego.New(rego.Query("json.match_schema(data.site, input)[1]"), rego.Store(store),
		rego.Input(schema), rego.StrictBuiltinErrors(true)).Eval(ctx)
	if err != nil || len(rs) != 1 {
		return fmt.Errorf("holding the site's data against its schema: %d answers, %w", len(rs),
			err)
	}
	var wrong []error
	found, _ := rs[0].Expressions[0].Value.([]any)
	for _, w := range found {
		m, _ := w.(map[string]any)
		at, desc := fmt.Sprint(m["field"]), fmt.Sprint(m["desc"])
		if name, unknown := strings.CutPrefix(desc, "Additional property "); unknown {
			name = strings.TrimSuffix(name, " is not allowed")
			desc = unknownKey(at, name, c.inventory.Tools)
			at += "." + name
		} else {
			desc = plainly(valueAt(c.data["site"], at), desc, c.meant)
		}
		wrong = append(wrong, c.mistake(at, desc))
	}
	return errors.Join(wrong...)
}

// said is a mistake as Rego reports it: "PLACE: WHAT".
func (c *Candidate) said(text any) error {
	at, what, _ := strings.Cut(fmt.Sprint(text), ": ")
	return c.mistake(at, what)
}

// data is what core/names.rego and core/idle.rego see of an inventory: data.inventory names tools
// as KIND:NAME.
func (i Inventory) data() map[string]any {
	known := map[string]any{}
	var tools, nodes []any
	declares, aliases := map[string]any{}, map[string]any{}
	for _, t := range i.Tools {
		tools = append(tools, t.Kind+":"+t.Name)
		declares[t.Kind+":"+t.Name] = map[string]any{"imports": anys(t.Imports),
			"commands": anys(t.Commands)}
		if t.AliasOf != "" {
			aliases[t.Kind+":"+t.Name] = t.Kind + ":" + t.AliasOf
		}
	}
	for _, n := range i.Nodes {
		nodes = append(nodes, n.Name)
	}
	if i.Tools != nil {
		known["tools"], known["declares"], known["aliases"] = tools, declares, aliases
	}
	if i.Nodes != nil {
		known["nodes"] = nodes
	}
	return map[string]any{"inventory": known}
}

func anys(names []string) []any {
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = n
	}
	return all
}

// mistake names the place of a mistake in the site's data, and what was meant, if a name there is
// nearly one that exists.
func (c *Candidate) mistake(at, what string) error {
	quoted := quotedName.FindStringSubmatch(what)
	if quoted != nil && !strings.Contains(what, "did you mean") {
		what += c.meant(quoted[1], c.names())
	}
	return fmt.Errorf("%s: %s", c.place(at), what)
}

var quotedName = regexp.MustCompile(`^[^"]*\b(?:is no|no) [^"]*"([^"]+)"`)

// names are all names that a site's data can mean.
func (c *Candidate) names() (names []string) {
	for _, t := range c.inventory.Tools {
		names = append(names, t.Name, t.Kind+":"+t.Name)
	}
	names = slices.Concat(names, c.inventory.names(), keys(c.data, "site", "roles"),
		result.Names(), keys(c.data, "site", "results", "detectors"))
	var walk func(any)
	walk = func(v any) {
		m, _ := v.(map[string]any)
		props, _ := m["properties"].(map[string]any)
		for k := range props {
			names = append(names, k)
		}
		for _, x := range m {
			walk(x)
		}
	}
	walk(c.schemas.Get(ast.MustParseRef("schema.site")))
	return names
}

// smoke decides one question of every kind, and where the site has rules one call of each tool,
// with exactly the rules that will decide. Whether the answer is yes or no does not matter here: an
// error would refuse every later question of its kind.
func (c *Candidate) smoke(ctx context.Context) error {
	var wrong []error
	seen := map[string]bool{}
	for _, q := range c.samples() {
		if _, err := c.Rules.Decide(ctx, q); err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			what := map[terms.Kind]string{terms.KindCall: "a call of",
				terms.KindVisible: "the visibility of", terms.KindPlan: "a plan of"}[q.Kind]
			if q.Op != nil {
				what = "the operation " + q.Op.Import() + " of"
			}
			wrong = append(wrong, fmt.Errorf("no decision on %s %s: %w", what, q.Call.Tool.Name,
				err))
		}
	}
	return errors.Join(wrong...)
}

// firstOfKind returns a tool, a resource and a prompt, as far as there are any.
func firstOfKind(tools []*terms.Tool) (first []*terms.Tool) {
	for _, t := range tools {
		if !slices.ContainsFunc(first, func(f *terms.Tool) bool { return f.Kind == t.Kind }) {
			first = append(first, t)
		}
	}
	return first
}

// samples are questions of every kind, as the first principal of the site asks them.
func (c *Candidate) samples() (all []terms.Question) {
	var steps []terms.Step
	node := terms.Node{Name: "node", Cluster: "node", Host: "192.0.2.1", Port: 22, User: "root"}
	cmd := terms.Command{Form: "argv", Lowered: terms.Lowered{Parsed: true,
		Calls: []terms.Simple{{Argv: []string{"uptime"}, Static: true}}}}
	call := terms.Call{ID: "smoke", Source: "cli", Clusters: []string{node.Cluster},
		Nodes: []terms.Node{node},
		Args: terms.Args{JSON: []byte("{}"), Digest: "sha256:",
			Scalars: map[string]any{"vmid": int64(999)}},
		Confirmation: terms.Confirmation{State: "none"}, Commands: []terms.Command{cmd},
		Targets: terms.Targets{Nodes: []string{node.Name}, VMIDs: []string{"999"},
			Services: []string{"nginx.service"}, Hosts: []string{"host.example"},
			Paths: []string{"/var/log/x"}, GuestPaths: []string{"/root/x"},
			LocalPaths: []string{"x"}},
		Decided: terms.Decision{Allow: true, Tier: terms.Red},
		Stages:  []terms.StageDir{{Node: node.Name, Dir: "/run/caponier/x"}}}
	call.Principal.Auth = "config"
	for _, id := range keys(c.data, "site", "principals") {
		call.Principal.ID = id
		break
	}
	tools := c.inventory.Tools
	if c.wellTyped { // core's rules are the same for all tools, and tested
		tools = firstOfKind(tools)
	}
	if len(tools) == 0 {
		tools = []*terms.Tool{{Kind: "tool", Name: "list_nodes", Commands: []string{"uptime"},
			Imports: abi.Operations(), TargetKinds: []string{"nodes"}}}
	}
	ask := func(q terms.Question, t *terms.Tool) {
		one := call
		one.Tool, q.Call, q.ID, q.Time = t, &one, "smoke", time.Unix(1_700_000_000, 0)
		all = append(all, q)
	}
	for _, t := range tools {
		ask(terms.Question{Kind: terms.KindCall,
			Facts: terms.Facts{Counts: terms.Counts{Calls60s: 1}}}, t)
		ask(terms.Question{Kind: terms.KindVisible}, t)
	}
	for _, entry := range abi.Table() {
		op := entry.Example
		for _, phase := range []terms.Phase{terms.PhaseLookup, terms.PhaseEffect} {
			q := terms.Question{Kind: terms.KindOperation, Op: op, Phase: phase}
			if entry.View == abi.ViewCommand {
				q.Cmd = &cmd
			}
			if op.NodeName() != "" {
				q.Node = &node
			}
			if phase == terms.PhaseEffect {
				q.Facts.File = &terms.FileFacts{RealPath: "/var/log/x", Exists: true, Type: "file"}
				q.Facts.Addrs = []terms.Addr{{IP: "192.0.2.7", Class: "global"}}
				steps = append(steps, terms.Step{Question: q, Decision: call.Decided})
			}
			ask(q, tools[0])
		}
	}
	ask(terms.Question{Kind: terms.KindPlan, Steps: steps}, tools[0])
	return all
}

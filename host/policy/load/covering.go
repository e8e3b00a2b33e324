package load

import (
	"fmt"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// RuleCoverage is what tests saw of one rule of a site, or of one else of it.
type RuleCoverage struct {
	Rule   string   `json:"rule"`         // with its package, without "data."
	ID     string   `json:"id,omitempty"` // of a refusal: what deny gives as id
	Where  string   `json:"where"`        // file:line
	Held   bool     `json:"held"`         // in a test it held; a refusal refused
	Missed []string `json:"missed"`       // lines that no test came to: file:line, file:line-line
}

// covering counts lines as OPA's coverage does, and which rules held. Unlike OPA's, it has each
// test run once.
type covering struct {
	*cover.Cover
	mu   sync.Mutex
	held map[string]bool // by place
}

func (c *covering) TraceEvent(e topdown.Event) {
	c.Cover.TraceEvent(e)
	if rule, ok := e.Node.(*ast.Rule); ok && e.Op == topdown.ExitOp {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held[exactly(rule.Head.Location)] = true
	}
}

func exactly(l *ast.Location) string { return fmt.Sprintf("%s:%d:%d", l.File, l.Row, l.Col) }

// of returns the percentage of covered lines of these modules, and what was seen of each rule.
func (c *covering) of(modules []*ast.Module) (percent float64, all []RuleCoverage) {
	byFile := map[string]*ast.Module{}
	for _, m := range modules {
		byFile[m.Package.Location.File] = m
	}
	yes, no, all, report := 0, 0, []RuleCoverage{}, c.Report(byFile)
	for _, m := range modules {
		lines := report.Files[m.Package.Location.File]
		if lines == nil {
			continue
		}
		yes, no = yes+lines.CoveredLines, no+lines.NotCoveredLines
		var rules []*ast.Rule
		for _, rule := range m.Rules {
			for ; rule != nil; rule = rule.Else {
				rules = append(rules, rule)
			}
		}
		for i, rule := range rules {
			last := int(^uint(0) >> 1)
			if i+1 < len(rules) {
				last = rules[i+1].Head.Location.Row - 1
			}
			all = append(all, c.rule(m, rule, lines, last))
		}
	}
	if yes+no == 0 {
		return 100, all
	}
	return 100 * float64(yes) / float64(yes+no), all
}

// rule returns what was seen of a rule, whose lines end before the next one begins.
func (c *covering) rule(m *ast.Module, r *ast.Rule, lines *cover.FileReport,
	last int) RuleCoverage {
	at := r.Head.Location
	seen := RuleCoverage{Rule: strings.TrimPrefix(m.Package.Path.String(), "data.") + "." +
		r.Head.Ref().String(), ID: idOf(r), Where: fmt.Sprintf("%s:%d", at.File, at.Row),
		Held: c.held[exactly(at)], Missed: []string{}}
	if r.Default {
		seen.Held = true
	}
	for _, l := range lines.NotCovered {
		if l.Start.Row < at.Row || l.Start.Row > last {
			continue
		}
		place := fmt.Sprintf("%s:%d", at.File, l.Start.Row)
		if l.End.Row > l.Start.Row {
			place += fmt.Sprintf("-%d", l.End.Row)
		}
		seen.Missed = append(seen.Missed, place)
	}
	return seen
}

// idOf is the id of a rule that adds {"id": text, …} to a set, else "".
func idOf(r *ast.Rule) string {
	if r.Head.Key == nil {
		return ""
	}
	if entry, ok := r.Head.Key.Value.(ast.Object); ok {
		if id := entry.Get(ast.StringTerm("id")); id != nil {
			return textOf(id)
		}
	}
	return ""
}

package policy

import (
	"context"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Lister executes list_commands: it tells callers which commands they may run. No field may be nil.
type Lister struct {
	Rules func() *Rules        // in force; nil while there are none
	Tools func() []*terms.Tool // that the host offers
	Turns terms.Turns          // a list is decided in a turn of its caller
}

var _ terms.Executor = (*Lister)(nil)

const (
	listDeadline = 5 * time.Second
	// maxListed bounds the nodes of one list: each costs a decision for each tool and tier.
	maxListed = 16
)

// Lookup implements terms.Executor: a list has no facts.
func (*Lister) Lookup(context.Context, terms.Question) (f terms.Facts, err error) { return f, nil }

// End implements terms.Executor: nothing is left of a list.
func (*Lister) End(context.Context, *terms.Call) {}

// Execute implements terms.Executor. Policy says what the list is, on the very questions that calls
// of the tools would be.
func (l *Lister) Execute(ctx context.Context, q terms.Question, _ terms.Decision) (
	terms.Result, error) {
	op, isList := q.Op.(abi.ListCommands)
	r := l.Rules()
	if !isList || r == nil {
		return terms.Result{}, unlisted("there is no policy to ask")
	}
	who := q.Call.Principal.ID
	if err := l.Turns.Acquire(ctx, who); err != nil {
		return terms.Result{}, unlisted(err.Error())
	}
	defer l.Turns.Release(who)
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	names, more := nodeNames(q.Call.Nodes, op.Node)
	roles, err := r.effectiveRoles(ctx, q.Call.Principal)
	if err != nil {
		return terms.Result{}, unlisted(err.Error())
	}
	asks := input.List{Word: op.Word, MoreNodes: more}
	for _, t := range l.Tools() {
		if !slices.Contains(t.Commands, terms.CallersText) ||
			!slices.Contains(t.Imports, abi.SSHScript{}.Import()) {
			continue
		}
		for _, name := range names {
			asked := Supposed(q, t, terms.Targets{Nodes: []string{name}})
			if doc, ok := input.Of(&asked, roles).(*input.Call); ok {
				asks.Questions = append(asks.Questions, *doc)
			}
		}
	}
	var list abi.CommandsResponse
	v, err := r.eval(ctx, "listing", value.Of(asks))
	if err == nil {
		err = value.Read("listing", v, &list)
	}
	if err != nil {
		return terms.Result{}, unlisted(err.Error())
	}
	return terms.Result{Value: list}, nil
}

// Supposed returns the question of a call that nobody made, like another one but of this tool and
// on these targets. It has no arguments but those that say what it acts on.
func Supposed(like terms.Question, t *terms.Tool, on terms.Targets) terms.Question {
	c := terms.Call{ID: like.Call.ID, Source: like.Call.Source, Principal: like.Call.Principal,
		Tool: t, Nodes: like.Call.Nodes, Targets: on, Args: terms.Args{JSON: []byte("{}")},
		Confirmation: terms.Confirmation{State: "none"}}
	return terms.Question{Kind: terms.KindCall, Call: &c, ID: like.ID, Time: like.Time,
		Mode: like.Mode, Facts: like.Facts}
}

// About reads what the rule of an entry says about a question: "able", the commands of the tool
// of a call that it may come to, or "held", the roles that grant it, with what they list.
func (r *Rules) About(ctx context.Context, entry string, q terms.Question, into any) error {
	roles, err := r.effectiveRoles(ctx, q.Call.Principal)
	if err != nil {
		return err
	}
	v, err := r.eval(ctx, entry, value.Of(input.Of(&q, roles)))
	if err != nil {
		return err
	}
	return value.Read(entry, v, into)
}

func unlisted(why string) error {
	return terms.Fail("unavailable", "the commands could not be listed: %s", why)
}

// nodeNames returns the nodes of a list: the named one, or the first of the inventory, and how many
// more there are.
func nodeNames(nodes []terms.Node, only string) (names []string, more int) {
	for _, n := range nodes {
		if only == "" || n.Name == only {
			names = append(names, n.Name)
		}
	}
	more = max(0, len(names)-maxListed)
	return names[:len(names)-more], more
}

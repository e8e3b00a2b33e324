package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Detail is what a person sees of a call before deciding: all of it, because a request that is cut
// could hide what matters.
type Detail struct {
	CallID    string          `json:"call_id"`
	CallKey   string          `json:"call_key"` // digest of what a yes binds, but for the plan
	Source    string          `json:"source"`
	Principal terms.Principal `json:"principal"`
	Plugin    terms.Plugin    `json:"plugin"`
	Tool      string          `json:"tool"`
	Title     string          `json:"title,omitempty"`
	Runs      string          `json:"runs"`     // what the tool's author says that it does
	Declared  []string        `json:"declared"` // the commands that its operations may run
	Tier      string          `json:"tier"`
	Hints     terms.Hints     `json:"hints"`
	// canonical; values that the site keeps out of the journal are masked, here and in commands and
	// targets
	Args    json.RawMessage `json:"args"`
	Digest  string          `json:"args_digest"`
	Targets terms.Targets   `json:"targets"`
	// names of guests by number, as far as their cluster was asked
	Guests    map[string]string `json:"guests,omitempty"`
	Nodes     []Node            `json:"nodes"`
	Commands  []Command         `json:"commands"`
	Plan      json.RawMessage   `json:"plan,omitempty"`      // what it would do, step by step
	PlanText  string            `json:"plan_text,omitempty"` // the same for people
	Why       []terms.Reason    `json:"why"`
	Channels  []string          `json:"channels"`  // on which a yes counts,
	Approvers []string          `json:"approvers"` // and of whom; "*" is everybody who may approve
	Needs     terms.Needs       `json:"needs"`
}

// planDigest returns the digest of the plan, "" without one.
func (d Detail) planDigest() string {
	var p struct{ Digest string }
	if json.Unmarshal(d.Plan, &p) != nil {
		return ""
	}
	return p.Digest
}

// Node is a target node as the inventory has it.
type Node struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
}

// Command is an argument that holds command text, and what it was lowered to.
type Command struct {
	Arg      string   `json:"arg"`
	Guest    bool     `json:"guest"` // for the shell inside a guest, not for the node's
	Parsed   bool     `json:"parsed"`
	Error    string   `json:"error,omitempty"`
	Features []string `json:"features,omitempty"`
	Calls    []string `json:"calls"` // each argv, quoted so that the end of each word shows
}

// maxPlan is how many bytes of JSON the plan of a request may have.
const maxPlan = 1 << 20

// newDetail shows what policy has masked, and nothing of the call itself that could hold a value
// which the site redacts.
func newDetail(c *terms.Call, d terms.Decision, key string, most int) (json.RawMessage, error) {
	var in struct {
		Targets  terms.Targets          `json:"targets"`
		Guests   map[string]terms.Guest `json:"guests"`
		Commands []struct {
			Arg      string
			Guest    bool
			Parsed   bool
			Error    string
			Features []string
			Calls    []terms.Simple
		} `json:"commands"`
	}
	if len(d.Input) == 0 || len(d.Shown) == 0 {
		return nil, errors.New("the decision does not say what a person may be shown")
	}
	if err := json.Unmarshal(d.Input, &in); err != nil {
		return nil, fmt.Errorf("reading the decision's input: %w", err)
	}
	t := c.Tool
	out := Detail{CallID: c.ID, CallKey: key,
		Source: c.Source, Principal: c.Principal, Plugin: t.Plugin,
		Tool: t.Name, Title: t.Title, Runs: t.Runs, Declared: t.Commands, Tier: d.Tier.String(),
		Hints: t.Hints, Args: d.Shown, Digest: c.Args.Digest, Targets: in.Targets, Why: d.Denied,
		Guests:   map[string]string{},
		Channels: d.Obligations.Channels, Approvers: d.Obligations.Approvers,
		Needs: d.Obligations.Needs}
	for id, g := range in.Guests {
		out.Guests[id] = g.Name
	}
	out.Nodes = nodesOf(c)
	for _, cmd := range in.Commands {
		shown := Command{Arg: cmd.Arg, Guest: cmd.Guest, Parsed: cmd.Parsed, Error: cmd.Error,
			Features: cmd.Features}
		for _, call := range cmd.Calls {
			shown.Calls = append(shown.Calls, words(call.Argv))
		}
		out.Commands = append(out.Commands, shown)
	}
	if c.Plan != nil {
		plan, err := json.Marshal(c.Plan)
		if err != nil {
			return nil, fmt.Errorf("showing the plan of the call: %w", err)
		}
		out.Plan, out.PlanText = plan, c.Plan.Text()
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("showing the call: %w", err)
	}
	// a person reads the plan as text, which says each step, and not as JSON
	if n := len(data) - len(out.Plan); n > most || len(out.Plan) > maxPlan {
		return nil, fmt.Errorf("it is too long for a person to judge: %d bytes and a plan of %d, "+
			"the limits are %d and %d: do it in several calls", n, len(out.Plan), most, maxPlan)
	}
	return data, nil
}

func nodesOf(c *terms.Call) (all []Node) {
	for _, n := range c.Nodes {
		if slices.Contains(c.Targets.Nodes, n.Name) {
			all = append(all, Node{n.Name, n.Cluster, n.Host})
		}
	}
	return all
}

// Read decodes the request's Detail.
func (r Request) Read() (d Detail, err error) {
	if err = json.Unmarshal(r.Detail, &d); err != nil {
		err = fmt.Errorf("reading approval %s: %w", r.ID, err)
	}
	return d, err
}

// words quotes an argv for reading.
func words(argv []string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("%+,-./:=@_", r)
	}
	shown := make([]string, len(argv))
	for i, w := range argv {
		shown[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
			shown[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(shown, " ")
}

type kind struct {
	Name   string
	Values []string
}

// Target names what the call acts on, for lists.
func (d Detail) Target() string {
	var parts []string
	for _, k := range d.targets() {
		parts = append(parts, k.Name+" "+strings.Join(k.Values, " "))
	}
	return strings.Join(parts, ", ")
}

func (d Detail) targets() []kind {
	t := d.Targets
	guests := slices.Clone(t.VMIDs)
	for i, id := range guests {
		if name := d.Guests[id]; name != "" {
			guests[i] = fmt.Sprintf("%s (%.60s)", id, name)
		}
	}
	all := []kind{{"guest", guests}, {"node", t.Nodes}, {"service", t.Services},
		{"host", t.Hosts}, {"path", t.Paths}, {"guest path", t.GuestPaths},
		{"local path", t.LocalPaths}}
	return slices.DeleteFunc(all, func(k kind) bool { return len(k.Values) == 0 })
}

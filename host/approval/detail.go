package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

// Detail is what a person sees of a call before deciding: all of it, because a request that is cut
// could hide what matters.
type Detail struct {
	CallID    string         `json:"call_id"`
	Source    string         `json:"source"`
	Principal gate.Principal `json:"principal"`
	Plugin    gate.Plugin    `json:"plugin"`
	Tool      string         `json:"tool"`
	Title     string         `json:"title,omitempty"`
	Runs      string         `json:"runs"`     // what the tool's author says that it does
	Declared  []string       `json:"declared"` // the commands that its operations may run
	Tier      string         `json:"tier"`
	Hints     gate.Hints     `json:"hints"`
	// canonical; values that the site keeps out of the journal are masked, here and in commands and
	// targets
	Args      json.RawMessage `json:"args"`
	Digest    string          `json:"args_digest"`
	Targets   gate.Targets    `json:"targets"`
	Nodes     []Node          `json:"nodes"`
	Commands  []Command       `json:"commands"`
	Why       []gate.Reason   `json:"why"`
	Channels  []string        `json:"channels"`  // on which a yes counts,
	Approvers []string        `json:"approvers"` // and of whom; "*" is everybody who may approve
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

// newDetail shows what policy has masked, and nothing of the call itself that could hold a value
// which the site redacts.
func newDetail(c *gate.Call, d gate.Decision, most int) (json.RawMessage, error) {
	var in struct {
		Targets  gate.Targets `json:"targets"`
		Commands []struct {
			Arg      string
			Guest    bool
			Parsed   bool
			Error    string
			Features []string
			Calls    []gate.Simple
		} `json:"commands"`
	}
	if len(d.Input) == 0 || len(d.Shown) == 0 {
		return nil, errors.New("the decision does not say what a person may be shown")
	}
	if err := json.Unmarshal(d.Input, &in); err != nil {
		return nil, fmt.Errorf("reading the decision's input: %w", err)
	}
	t := c.Tool
	out := Detail{CallID: c.ID, Source: c.Source, Principal: c.Principal, Plugin: t.Plugin,
		Tool: t.Name, Title: t.Title, Runs: t.Runs, Declared: t.Commands, Tier: d.Tier.String(),
		Hints: t.Hints, Args: d.Shown, Digest: c.Args.Digest, Targets: in.Targets, Why: d.Denied,
		Channels: d.Obligations.Channels, Approvers: d.Obligations.Approvers}
	for _, n := range c.Nodes {
		if slices.Contains(c.Targets.Nodes, n.Name) {
			out.Nodes = append(out.Nodes, Node{n.Name, n.Cluster, n.Host})
		}
	}
	for _, cmd := range in.Commands {
		shown := Command{Arg: cmd.Arg, Guest: cmd.Guest, Parsed: cmd.Parsed, Error: cmd.Error,
			Features: cmd.Features}
		for _, call := range cmd.Calls {
			shown.Calls = append(shown.Calls, words(call.Argv))
		}
		out.Commands = append(out.Commands, shown)
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("showing the call: %w", err)
	}
	if len(data) > most {
		return nil, fmt.Errorf("it is too long for a person to judge: %d bytes, the limit is %d",
			len(data), most)
	}
	return data, nil
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

// Target names what the call acts on, for lists.
func (d Detail) Target() string {
	var parts []string
	for _, k := range d.targets() {
		parts = append(parts, k.Name+" "+strings.Join(k.Values, " "))
	}
	return strings.Join(parts, ", ")
}

type kind struct {
	Name   string
	Values []string
}

func (d Detail) targets() []kind {
	t := d.Targets
	all := []kind{{"guest", t.VMIDs}, {"node", t.Nodes}, {"service", t.Services},
		{"host", t.Hosts}, {"path", t.Paths}, {"guest path", t.GuestPaths},
		{"local path", t.LocalPaths}}
	return slices.DeleteFunc(all, func(k kind) bool { return len(k.Values) == 0 })
}

// why says for a person why the call waits. What policy says of a missing confirmation is written
// for the caller.
func (d Detail) why() (out []string) {
	for _, r := range d.Why {
		if r.ID == "confirmation" {
			out = append(out, "Calls of tier "+d.Tier+" run only after a person approved them.")
		} else {
			out = append(out, r.Msg+" ("+r.ID+")")
		}
	}
	return out
}

// left is the time until t for a person: "14 min".
func left(t, now time.Time) string {
	switch d := t.Sub(now); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(d+time.Second-1, 0)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
}

// question puts the whole request to the user of a client, in one text.
func (r Request) question() (string, error) {
	d, args, err := r.parts()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	put := func(format string, a ...string) {
		shown := make([]any, len(a))
		for i, s := range a {
			shown[i] = plaintext.Show(s)
		}
		fmt.Fprintf(&b, format, shown...)
	}
	put("Caponier asks you, not the agent: may %s run %s (plugin %s) once", d.Principal.ID, d.Tool,
		d.Plugin.Name)
	if t := d.Target(); t != "" {
		put(" on %s", t)
	}
	put("? Its tier is %s. What it runs: %s\nIt may run: %s\n", d.Tier, d.Runs,
		strings.Join(gate.DescribeCommands(d.Declared), ", "))
	for _, a := range args {
		put("The agent's words, never instructions to you: | %s: %s\n", a.Name, a.Values[0])
	}
	for _, c := range d.Commands {
		for _, call := range c.Calls {
			put("%s: | $ %s\n", c.place(), call)
		}
		if c.Error != "" || !c.Parsed {
			put("%s: | text that was not taken apart (%s)\n", c.place(), c.Error)
		}
	}
	put("Request %s, until %s.", r.ID, r.Expires.UTC().Format("15:04:05 MST"))
	return b.String(), nil
}

// parts reads the request's detail and its canonical arguments, sorted by name.
func (r Request) parts() (d Detail, out []kind, err error) {
	if d, err = r.Read(); err != nil {
		return d, nil, err
	}
	var args map[string]json.RawMessage
	if err := json.Unmarshal(d.Args, &args); err != nil {
		return d, nil, fmt.Errorf("reading approval %s: %w", r.ID, err)
	}
	for _, k := range slices.Sorted(maps.Keys(args)) {
		out = append(out, kind{k, []string{string(args[k])}})
	}
	return d, out, nil
}

// Print shows a request to a person at a terminal. Lines that hold words of the caller or of the
// plugin begin with a bar.
func (r Request) Print(w io.Writer) error {
	d, args, err := r.parts()
	if err != nil {
		return err
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, plaintext.Show(value))
		}
	}
	state := r.State
	if r.By != "" {
		state += " by " + r.By + " (" + r.Channel + ")"
	}
	line("request", r.ID)
	line("state", state+", expires "+r.Expires.UTC().Format("2006-01-02 15:04:05 MST"))
	line("asks", fmt.Sprintf("%s  (known by %s, over %s)", d.Principal.ID, d.Principal.Auth,
		d.Source))
	line("tool", fmt.Sprintf("%s  of plugin %s %s", d.Tool, d.Plugin.Name, d.Plugin.Version))
	line("does", d.Runs)
	for _, c := range gate.DescribeCommands(d.Declared) {
		line("may run", c)
	}
	line("tier", d.Tier)
	for _, k := range d.targets() {
		line(k.Name, strings.Join(k.Values, "  "))
	}
	for _, n := range d.Nodes {
		line("at", fmt.Sprintf("%s in cluster %s, %s", n.Name, n.Cluster, n.Host))
	}
	for _, why := range d.why() {
		line("why asked", why)
	}
	line("note", r.Note)
	line("yes counts", "on "+strings.Join(d.Channels, ", ")+", in this site's policy")
	b.WriteString("arguments, in the caller's words:\n")
	for _, a := range args {
		fmt.Fprintf(&b, "  | %s: %s\n", plaintext.Show(a.Name), plaintext.Show(a.Values[0]))
	}
	for _, c := range d.Commands {
		fmt.Fprintf(&b, "%s, from argument %s:\n", c.place(), plaintext.Show(c.Arg))
		for _, call := range c.Calls {
			fmt.Fprintf(&b, "  | $ %s\n", plaintext.Show(call))
		}
		if c.Error != "" || !c.Parsed {
			fmt.Fprintf(&b, "  not taken apart: %s\n", plaintext.Show(c.Error))
		}
	}
	line("plugin", d.Plugin.Digest)
	line("arguments", d.Digest)
	line("policy", r.Revision)
	line("call", d.CallID)
	_, err = io.WriteString(w, b.String())
	return err
}

func (c Command) place() string {
	if c.Guest {
		return "runs in the guest's shell"
	}
	return "runs on the node"
}

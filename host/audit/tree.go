package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// printTree prints records for people: each call once it has ended, with its operations and how
// each ended, refused ones with the checks that did not hold. Calls without an outcome follow when
// records end. Times are in UTC.
func printTree(w io.Writer, records iter.Seq[told]) error {
	calls, answers := map[string]*callTree{}, map[string]told{}
	for r := range records {
		text := ""
		if r.Shadow != nil {
			text = r.Shadow.String()
		} else if r.Kind == "approval" {
			if answers[r.ID] = r; r.Type != "intent" {
				text = answer(r)
				delete(answers, r.ID)
			}
		} else {
			c := calls[r.CallID]
			if c == nil {
				c = &callTree{host: r.Host, outcomes: map[string]terms.Record{}}
				calls[r.CallID] = c
			}
			if c.add(*r.Record) {
				text = c.String()
				delete(calls, r.CallID)
			}
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		b.WriteString(answer(answers[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(calls)) { // ids sort by time
		b.WriteString(calls[id].String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// callTree is what is known of one call.
type callTree struct {
	host     string // "" if there is one alone
	call     *terms.Record
	ops      []terms.Record
	outcomes map[string]terms.Record // by decision
}

// add reports whether the call is over.
func (c *callTree) add(r terms.Record) bool {
	switch {
	case r.Type == "outcome":
		c.outcomes[r.ID] = r
	case r.Kind == "operation":
		c.ops = append(c.ops, r)
	default:
		c.call = &r
	}
	return r.Kind == "call" && r.Type != "intent"
}

const stamp = "2006-01-02 15:04:05.000"

func (c *callTree) String() string {
	var b strings.Builder
	call := c.call
	if call == nil { // its intent is in a file that is gone, or it is still to come
		call = &terms.Record{Tool: "?"}
		if len(c.ops) > 0 {
			op := c.ops[0]
			call = &terms.Record{Time: op.Time, CallID: op.CallID, Principal: op.Principal,
				Tool: op.Tool}
		}
	}
	fmt.Fprintf(&b, "%s  %s  %s", call.Time.UTC().Format(stamp), clean(call.Principal),
		clean(call.Tool))
	word(&b, "", call.Tier)
	word(&b, "at ", c.host)
	word(&b, "via ", call.Source)
	word(&b, "call ", call.CallID)
	if about := summary(call.Input); about != "" {
		b.WriteString("\n│    " + about)
	}
	for _, op := range c.ops {
		b.WriteString("\n├─ " + clean(op.Op))
		if op.Phase == "lookup" {
			b.WriteString(" (looking)")
		}
		word(&b, "on ", op.Node)
		word(&b, "", op.Tier)
		if about := summary(op.Input); about != "" {
			b.WriteString(": " + about)
		}
		c.end(&b, "\n│    ", op)
	}
	c.end(&b, "\n└─ ", *call)
	return b.String() + "\n\n"
}

// answer tells what a person said about a call that waited.
func answer(r told) string {
	v := terms.Verdict{By: "?"}
	if r.Verdict != nil {
		v = *r.Verdict
	}
	said, lasts := "denies", "until it expires"
	if v.Approve {
		said, lasts = "approves", "once"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s %s of %s", r.Time.UTC().Format(stamp), clean(v.By), said,
		clean(r.Tool), clean(r.Principal))
	word(&b, "at ", r.Host)
	word(&b, "via ", v.Channel)
	word(&b, "request ", v.Request)
	word(&b, "call ", r.CallID)
	if v.Note != "" {
		b.WriteString("\n│    note: " + clean(v.Note))
	}
	b.WriteString("\n└─ ")
	switch {
	case r.Type == "intent":
		b.WriteString("? no outcome: its process ended before it could say whether the answer " +
			"counts")
	case r.Outcome != terms.Succeeded:
		b.WriteString("! the answer was not taken: it came too late, or cannot be kept")
	default:
		b.WriteString("✓ the answer counts, " + lasts)
	}
	return b.String() + "\n\n"
}

// String says in a line what the candidate would change, "" if that is nothing.
func (s Shadow) String() string {
	if s.Change == "" {
		return ""
	}
	would := "allow it, " + s.Tier
	if !s.Allow {
		would = "refuse it: " + strings.Join(s.Failed, ", ")
	}
	return fmt.Sprintf("%s  decision %s: %s; candidate %s would %s\n",
		s.Time.UTC().Format(stamp), clean(s.ID), clean(s.Change), clean(s.Revision), clean(would))
}

// end tells how a call or an operation ended.
func (c *callTree) end(b *strings.Builder, indent string, r terms.Record) {
	if r.Type == "refused" && r.Outcome == terms.Waits {
		b.WriteString(indent + "… WAITS for a person: nothing has run")
		return
	}
	if r.Type == "refused" {
		fmt.Fprintf(b, "%s✗ REFUSED  checks that did not hold: %s", indent,
			clean(strings.Join(r.Failed, ", ")))
		for _, d := range r.Denied {
			fmt.Fprintf(b, "%s    %s: %s", strings.ReplaceAll(indent, "└─", "  "), clean(d.ID),
				clean(d.Msg))
		}
		return
	}
	o, ended := c.outcomes[r.ID]
	if !ended {
		b.WriteString(indent +
			"? no outcome: it still runs, or its process ended before it could say")
		return
	}
	mark := "✓"
	if o.Outcome != terms.Succeeded {
		mark = "!"
	}
	fmt.Fprintf(b, "%s%s %s", indent, mark, clean(string(o.Outcome)))
	word(b, "", o.Code)
	if o.Exit != nil {
		fmt.Fprintf(b, "  exit %d", *o.Exit)
	}
	if o.Bytes > 0 {
		fmt.Fprintf(b, "  %d bytes", o.Bytes)
	}
	word(b, "sha256 ", o.SHA256)
	took := time.Duration(o.DurationUS) * time.Microsecond
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if took >= unit {
			took = took.Round(unit / 100)
			break
		}
	}
	fmt.Fprintf(b, "  %s", took)
	if o.Refused > 0 {
		fmt.Fprintf(b, "  (%d operations refused)", o.Refused)
	}
}

func word(b *strings.Builder, before, s string) {
	if s != "" {
		b.WriteString("  " + before + clean(s))
	}
}

type guest struct {
	Name string `json:"name"` // "" if the cluster was not asked
}

// of is a guest by its number and its name.
func (g guest) of(id string) string {
	if g.Name == "" {
		return id
	}
	return fmt.Sprintf("%s (%.60s)", id, g.Name)
}

// About says in one line what a record of a decision is about, for people.
func About(r terms.Record) string { return summary(r.Input) }

// summary picks what a person looks for out of a policy input: targets, command, file, address. It
// leaves out what it does not know.
func summary(input json.RawMessage) string {
	type argv struct {
		Argv []string `json:"argv"`
	}
	var in struct {
		Targets  map[string][]string `json:"targets"`
		Guests   map[string]guest    `json:"guests"`
		Commands []struct {
			Calls []argv `json:"calls"`
		} `json:"commands"`
		Command *struct {
			Calls []argv `json:"calls"`
		} `json:"command"`
		File *struct {
			Action, Path string
			Local        any `json:"local"`
		} `json:"file"`
		HTTP *struct {
			Method string `json:"method"`
			Host   string `json:"host"`
			Path   string `json:"path"`
		} `json:"http"`
		Confirmation terms.Confirmation `json:"confirmation"`
	}
	if json.Unmarshal(input, &in) != nil {
		return ""
	}
	var parts []string
	for i, id := range in.Targets["vmids"] {
		in.Targets["vmids"][i] = in.Guests[id].of(id)
	}
	for _, kind := range []string{"nodes", "vmids", "services", "hosts", "paths", "guest_paths",
		"local_paths"} {
		if list := in.Targets[kind]; len(list) > 0 {
			parts = append(parts, kind+" "+strings.Join(list, " "))
		}
	}
	if in.Command != nil {
		in.Commands = append(in.Commands, *in.Command)
	}
	for _, c := range in.Commands {
		for _, call := range c.Calls {
			parts = append(parts, "$ "+words(call.Argv))
		}
	}
	if in.File != nil {
		parts = append(parts, in.File.Action+" "+in.File.Path)
		if local, ok := in.File.Local.(string); ok && local != "" {
			parts = append(parts, "here "+local)
		}
	}
	if in.HTTP != nil {
		parts = append(parts, in.HTTP.Method+" "+in.HTTP.Host+in.HTTP.Path)
	}
	if in.Confirmation.State == "approved" && in.Command == nil && in.File == nil &&
		in.HTTP == nil {
		parts = append(parts, "approved by "+approvers(in.Confirmation))
	}
	return clean(strings.Join(parts, " · "))
}

// approvers names who said yes, with their tickets.
func approvers(c terms.Confirmation) string {
	if len(c.Answers) == 0 {
		return c.By
	}
	var all []string
	for _, y := range c.Answers {
		if y.Ticket != "" {
			y.By += " (" + y.Ticket + ")"
		}
		all = append(all, y.By)
	}
	return strings.Join(all, ", ")
}

// words quotes argv so that the end of each word shows. It is for reading, not for a shell.
func words(argv []string) string {
	shown := make([]string, len(argv))
	for i, w := range argv {
		if shown[i] = w; w == "" || strings.ContainsAny(w, " '\"\\") {
			shown[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(shown, " ")
}

// clean makes text from anywhere harmless for a terminal, and short.
func clean(s string) string { return plaintext.Show(plaintext.Short(s, 400)) }

package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Tree prints the journal for people: each call once it has ended, with its operations and how each
// ended, refused ones with the checks that did not hold. Calls without an outcome come when records
// end. Times are in UTC.
func Tree(w io.Writer, records iter.Seq2[Entry, error]) error {
	calls, answers := map[string]*callTree{}, map[string]gate.Record{}
	for e, err := range records {
		if err != nil {
			return err
		}
		r := e.Record
		if r == nil {
			continue
		}
		if r.Kind == "approval" {
			if answers[r.ID] = *r; r.Type != "intent" {
				delete(answers, r.ID)
				if err := printAnswer(w, *r); err != nil {
					return err
				}
			}
			continue
		}
		c := calls[r.CallID]
		if c == nil {
			c = &callTree{outcomes: map[string]gate.Record{}}
			calls[r.CallID] = c
		}
		if c.add(*r) {
			delete(calls, r.CallID)
			if err := c.print(w); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		if err := printAnswer(w, answers[id]); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(calls)) { // ids sort by time
		if err := calls[id].print(w); err != nil {
			return err
		}
	}
	return nil
}

// callTree is what is known of one call.
type callTree struct {
	call     *gate.Record
	ops      []gate.Record
	outcomes map[string]gate.Record // by decision
}

// add reports whether the call is over.
func (c *callTree) add(r gate.Record) bool {
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

func (c *callTree) print(w io.Writer) error {
	var b strings.Builder
	call := c.call
	if call == nil { // its intent is in a file that is gone, or it is still to come
		call = &gate.Record{Tool: "?"}
		if len(c.ops) > 0 {
			op := c.ops[0]
			call = &gate.Record{
				Time:      op.Time,
				CallID:    op.CallID,
				Principal: op.Principal,
				Tool:      op.Tool,
			}
		}
	}
	fmt.Fprintf(
		&b,
		"%s  %s  %s",
		call.Time.UTC().Format("2006-01-02 15:04:05.000"),
		clean(call.Principal),
		clean(call.Tool),
	)
	word(&b, "", call.Tier)
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
	b.WriteString("\n\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// printAnswer tells what a person said about a call that waited.
func printAnswer(w io.Writer, r gate.Record) error {
	v := gate.Verdict{By: "?"}
	if r.Verdict != nil {
		v = *r.Verdict
	}
	said := map[bool]string{true: "approves", false: "denies"}[v.Approve]
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"%s  %s  %s %s of %s",
		r.Time.UTC().Format("2006-01-02 15:04:05.000"),
		clean(v.By),
		said,
		clean(r.Tool),
		clean(r.Principal),
	)
	word(&b, "via ", v.Channel)
	word(&b, "request ", v.Request)
	word(&b, "call ", r.CallID)
	if v.Note != "" {
		b.WriteString("\n│    note: " + clean(v.Note))
	}
	switch {
	case r.Type == "intent":
		b.WriteString(
			"\n└─ ? no outcome: its process ended before it could say whether the answer counts",
		)
	case r.Outcome != gate.Succeeded:
		b.WriteString("\n└─ ! the answer was not taken: it came too late, or cannot be kept")
	default:
		b.WriteString(
			"\n└─ ✓ the answer counts, " + map[bool]string{true: "once", false: "until it expires"}[v.Approve],
		)
	}
	b.WriteString("\n\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// end tells how a call or an operation ended.
func (c *callTree) end(b *strings.Builder, indent string, r gate.Record) {
	if r.Type == "refused" && r.Outcome == gate.Waits {
		b.WriteString(indent + "… WAITS for a person: nothing has run")
		return
	}
	if r.Type == "refused" {
		fmt.Fprintf(
			b,
			"%s✗ REFUSED  checks that did not hold: %s",
			indent,
			clean(strings.Join(r.Failed, ", ")),
		)
		for _, d := range r.Denied {
			fmt.Fprintf(
				b,
				"%s    %s: %s",
				strings.ReplaceAll(indent, "└─", "  "),
				clean(d.ID),
				clean(d.Msg),
			)
		}
		return
	}
	o, ended := c.outcomes[r.ID]
	if !ended {
		b.WriteString(
			indent + "? no outcome: it still runs, or its process ended before it could say",
		)
		return
	}
	mark := "✓"
	if o.Outcome != gate.Succeeded {
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

// summary picks what a person looks for out of a policy input: targets, command, file, address. It
// leaves out what it does not know.
func summary(input json.RawMessage) string {
	type argv struct {
		Argv []string `json:"argv"`
	}
	var in struct {
		Targets  map[string][]string `json:"targets"`
		Commands []struct {
			Calls []argv `json:"calls"`
		} `json:"commands"`
		Command *struct {
			Calls []argv `json:"calls"`
		} `json:"command"`
		File *struct {
			Action string `json:"action"`
			Path   string `json:"path"`
			Local  any    `json:"local"`
		} `json:"file"`
		HTTP *struct {
			Method string `json:"method"`
			Host   string `json:"host"`
			Path   string `json:"path"`
		} `json:"http"`
		Confirmation struct {
			State string `json:"state"`
			By    string `json:"by"`
		} `json:"confirmation"`
	}
	if json.Unmarshal(input, &in) != nil {
		return ""
	}
	var parts []string
	for _, kind := range []string{"nodes", "vmids", "services", "hosts", "paths", "guest_paths", "local_paths"} {
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
		parts = append(parts, "approved by "+in.Confirmation.By)
	}
	return clean(strings.Join(parts, " · "))
}

// words shows argv so that it can be told where each word ends. It is for reading, not for a shell.
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
func clean(s string) string {
	const limit = 400
	cut := ""
	if len(s) > limit {
		s, cut = strings.ToValidUTF8(s[:limit], ""), "…"
	}
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
	}
	return b.String() + cut
}

package plan

import (
	"fmt"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/reverse"
)

const (
	maxLine  = 300 // characters of a step for people
	maxSteps = 40  // steps that a text lists
)

// Text is the plan for people: one line for each step, then what it touches, and what undoes it or
// why nothing can. It contains no control characters, and no text that imitates the host's own.
func (p *plan) Text() string {
	var b strings.Builder
	state := "all that it does above green"
	if !p.Whole {
		state = "NOT COMPLETE: " + plaintext.Short(plaintext.Show(p.Ends), maxLine)
	}
	fmt.Fprintf(&b, "Plan of %s by %s, %s, %s\n", p.Tool, p.Principal, count(len(p.Steps)), state)
	for i, s := range p.Steps {
		if i == maxSteps {
			fmt.Fprintf(&b, "… and %d more steps\n", len(p.Steps)-i)
			break
		}
		fmt.Fprintf(&b, "%3d. %-6s %s\n", i+1, s.Tier, s.Does)
		if !s.Allowed {
			for _, r := range s.Refused {
				fmt.Fprintf(&b, "     REFUSED (%s): %s\n", r.ID, plaintext.Short(r.Msg, maxLine))
			}
			continue
		}
		for _, t := range s.Touches {
			if line := touchedText(t); line != "" {
				fmt.Fprintf(&b, "     %s\n", plaintext.Short(plaintext.Show(line), maxLine))
			}
		}
		fmt.Fprintf(&b, "     undo:  %s\n", s.Undo)
	}
	fmt.Fprintf(&b, "digest %s\n", p.Sum)
	return b.String()
}

// does describes a step in one line. Everything in it is quoted as data.
func does(s *step) string {
	at := ""
	if s.Node != "" {
		at = " on " + s.Node
	}
	text := s.Op
	switch {
	case s.Command != nil:
		text = commandText(s.Command)
	case s.File != nil:
		text = fileText(s.File)
	case s.HTTP != nil:
		h := s.HTTP
		text = fmt.Sprintf("%s %s://%s:%d%s, %d bytes", h.Method, h.Scheme, h.Host, h.Port, h.Path,
			h.BodyBytes)
	case s.Blob != nil:
		text = fmt.Sprintf("copy blob %s to %s in the workspace", s.Blob.Name, s.Blob.Local)
	}
	return plaintext.Short(plaintext.Show(text), maxLine) + at
}

func commandText(c *input.Command) string {
	text := c.Text
	if text == "" && len(c.Calls) > 0 {
		text = strings.Join(reverse.Words(c.Calls[0].Argv), " ")
	}
	if c.Stdin.Bytes > 0 {
		text += fmt.Sprintf(" < %d bytes (%s)", c.Stdin.Bytes, c.Stdin.SHA256)
	}
	return text
}

func fileText(f *input.File) string {
	size := ""
	if f.Bytes != nil {
		size = fmt.Sprintf(", %d bytes", *f.Bytes)
	}
	replaces := ""
	if f.Exists != nil && *f.Exists {
		replaces = ", replacing what is there"
	}
	local := ""
	if f.Local != nil {
		local = *f.Local
	}
	switch f.Action {
	case "stage":
		return "make a temporary directory, which goes when the call ends"
	case "write":
		return "write " + f.Path + size + replaces
	case "put":
		return fmt.Sprintf("upload %s to %s%s%s", local, f.Path, size, replaces)
	case "get":
		return fmt.Sprintf("download %s to %s in the workspace%s", f.Path, local, size)
	case "remove":
		return "remove " + f.Path
	}
	return f.Action + " " + f.Path
}

func count(steps int) string {
	if steps == 1 {
		return "1 step"
	}
	return fmt.Sprint(steps, " steps")
}

// undo describes how to undo a step. More steps can be undone if the host keeps copies.
func undo(s *step, o gate.Obligations) reverse.Way {
	switch {
	case len(o.Snapshot.VMIDs) > 0:
		return reverse.Way{Rollback: o.Snapshot.VMIDs}
	case s.File != nil:
		f := s.File
		return reverse.File(f.Action, f.Path, f.Exists != nil && *f.Exists, o.Undo.Record)
	case s.HTTP != nil:
		return reverse.Way{None: "what a server does with a request is not known"}
	case s.Blob != nil:
		return reverse.Way{}
	case s.Command == nil || len(s.Command.Calls) != 1:
		return reverse.Way{None: "several commands at once have no reverse that is known"}
	}
	return reverse.Command(s.Command.Calls[0].Argv, o.Undo.Record)
}

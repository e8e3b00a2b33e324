package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/reverse"
	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	maxLine  = 300 // characters of a step for people
	maxAlone = 5   // uploads in a row that are each a line
)

// Text is the plan for people: one line for each step, then what it touches, and what undoes it or
// why nothing can. Uploads of one directory are one step with the name of each file. It contains no
// control characters, and no text that imitates the host's own.
func (p *plan) Text() string {
	var b strings.Builder
	state := "all that it does above green"
	if !p.Whole {
		state = "NOT COMPLETE: " + plaintext.Short(plaintext.Show(p.Ends), maxLine)
	}
	fmt.Fprintf(&b, "Plan of %s by %s, %s, %s\n", p.Tool, p.Principal, count(len(p.Steps)), state)
	for i := 0; i < len(p.Steps); i++ {
		s := p.Steps[i]
		if n := p.uploads(i); n > maxAlone {
			p.writeUploads(&b, i, n)
			i += n - 1
			continue
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

// uploads returns how many steps from i on upload files of one directory that the call names to
// another one, each under its own name.
func (p *plan) uploads(i int) (n int) {
	first := p.Steps[i]
	for _, s := range p.Steps[i:] {
		if p.below(s) == "" || !s.Allowed || s.Tier != first.Tier || s.Node != first.Node ||
			undoOf(s) != undoOf(first) || len(s.Touches) > 0 {
			break
		}
		n++
	}
	return n
}

// below returns the name of an uploaded file below directories of the call, "" for none.
func (p *plan) below(s step) string {
	if s.File == nil || s.File.Action != "put" || s.File.Local == nil {
		return ""
	}
	for _, from := range p.Targets.LocalPaths {
		name, is := strings.CutPrefix(*s.File.Local, from+"/")
		if is && slices.ContainsFunc(p.Targets.Paths, func(to string) bool {
			return s.File.Path == path.Join(to, name)
		}) {
			return name
		}
	}
	return ""
}

// writeUploads writes n uploads from step i on as one.
func (p *plan) writeUploads(b *strings.Builder, i, n int) {
	bytes, replaces, names := int64(0), 0, []string{}
	for _, s := range p.Steps[i : i+n] {
		if f := s.File; f.Bytes != nil {
			bytes += *f.Bytes
		}
		if f := s.File; f.Exists != nil && *f.Exists {
			replaces++
		}
		names = append(names, plaintext.Short(plaintext.Show(p.below(s)), maxLine))
	}
	first := p.Steps[i]
	from := strings.TrimSuffix(*first.File.Local, "/"+p.below(first))
	to := strings.TrimSuffix(first.File.Path, "/"+p.below(first))
	what := fmt.Sprintf("upload %d files of %s to %s, %d bytes", n, from, to, bytes)
	if replaces > 0 {
		what += fmt.Sprintf(", replacing %d", replaces)
	}
	fmt.Fprintf(b, "%3d–%d. %-6s %s on %s\n", i+1, i+n, first.Tier,
		plaintext.Short(plaintext.Show(what), maxLine), first.Node)
	for _, name := range names {
		fmt.Fprintf(b, "     %s\n", name)
	}
	fmt.Fprintf(b, "     undo:  %s\n", undoOf(first))
}

// undoOf says how an upload is taken back, without its name.
func undoOf(s step) string {
	if s.File != nil && s.Undo.Remove == s.File.Path {
		return "remove what was uploaded"
	}
	return s.Undo.String()
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
func undo(s *step, o terms.Obligations) reverse.Way {
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

// Package shell lowers command text to argv lists, of which a POSIX shell then sees exactly the
// words.
//
// It is pure. What it cannot lower it refuses by name: text is never checked in one form and sent
// in another.
package shell

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
)

const (
	// MaxScript is the longest command text in bytes. It is checked before parsing, because nested
	// text of a few hundred kilobytes overflows the parser's stack, which nothing can recover from.
	MaxScript = 10_000
	// MaxRendered is the longest rendering in bytes: the login shell gets it as one argument, and
	// Linux takes at most 128 KiB for one.
	MaxRendered = 120_000

	maxDepth   = 3  // of command text inside command text
	maxOptions = 32 // of a shell before its command text
	maxNested  = 64 // command texts in one command
	maxCalls   = 64 // simple commands in one text: each is decided
)

var _ gate.Lowerer = Lowerer{}

// Lowerer implements [gate.Lowerer]. It is safe for concurrent use.
type Lowerer struct {
	// Shells are names of programs whose -c is command text, without a folder. Nil means
	// [DefaultShells].
	Shells []string `koanf:"shells"`
}

// DefaultShells are the POSIX shells that a node or a container may have.
func DefaultShells() []string {
	return []string{
		"sh",
		"bash",
		"dash",
		"ash",
		"ksh",
		"ksh93",
		"mksh",
		"oksh",
		"rbash",
		"static-sh",
		"zsh",
	}
}

// Validate refuses names that could never match a program.
func (l Lowerer) Validate() error {
	for _, s := range l.Shells {
		if s == "" || strings.ContainsAny(s, "/ \t\n") {
			return fmt.Errorf(
				"shells: %q is not the name of a program: write it without a folder, such as bash",
				s,
			)
		}
	}
	return nil
}

// Script lowers command text. When it is parsed, Rendered holds the same commands with every word
// quoted; otherwise Rendered is empty, Error names the first construct that is in the way and its
// place, and Features names all of them. The joiners of commands ("pipe", "and", "or", "sequence")
// are Features too, and so are redirections that touch no file ("discard", "merge").
func (l Lowerer) Script(text string) gate.Command {
	lowered, around := lower(text)
	return l.command("script", lowered, around)
}

// Argv takes one program with its words. It is refused when it is empty, or names no program, or
// has a NUL in a word, or when the node's login shell would read one of its words as code, as in
// eval X.
func (l Lowerer) Argv(argv []string) gate.Command {
	c := gate.Simple{Argv: slices.Clone(argv), Static: true}
	lowered := gate.Lowered{Parsed: true, Features: []string{}, Calls: []gate.Simple{c}}
	switch why := evaluates(argv); {
	case len(argv) == 0 || argv[0] == "":
		lowered = refuse(
			"the argument list names no program: its first word must be the program",
			nil,
		)
	case slices.ContainsFunc(argv, func(w string) bool { return strings.ContainsRune(w, 0) }):
		lowered = refuse("a word has a NUL character, which no program can receive", nil)
	case why != "":
		lowered = refuse(why, []string{"builtin"})
	}
	return l.command("argv", lowered, glue{tails: []string{""}})
}

func (l Lowerer) command(form string, lowered gate.Lowered, around glue) gate.Command {
	c := gate.Command{Form: form, Lowered: lowered, Nested: []gate.Nested{}}
	if !c.Parsed {
		return c
	}
	rendered := render(c.Calls, around)
	var nested []gate.Nested
	var err error
	switch { // the sizes first: what is inside takes longer to find
	case len(rendered) > MaxRendered:
		err = fmt.Errorf(
			"the command is %d bytes when quoted, over the limit of %d: send long data as a file or as stdin",
			len(rendered),
			MaxRendered,
		)
	case len(c.Calls) > maxCalls:
		err = fmt.Errorf(
			"there are %d commands in the text, over the limit of %d: make several calls",
			len(c.Calls),
			maxCalls,
		)
	default:
		nested, err = l.nested(c.Calls, 1)
	}
	if err == nil && len(nested) > maxNested {
		err = fmt.Errorf(
			"there are %d command texts inside the command, over the limit of %d",
			len(nested),
			maxNested,
		)
	}
	if err != nil {
		c.Lowered = refuse(err.Error(), c.Features)
		return c
	}
	c.Rendered = rendered
	c.Nested = append(c.Nested, nested...)
	return c
}

// refuse is the only way to make a Lowered that is not parsed. It has no calls: half of a command
// says nothing about the whole.
func refuse(why string, features []string) gate.Lowered {
	return gate.Lowered{
		Error:    why,
		Features: append([]string{}, features...),
		Calls:    []gate.Simple{},
	}
}

// nested finds command text inside calls, wherever a shell's name stands in them, depth first: the
// parent of an entry is the last one before it that is less deep. What looks like a shell and is
// only a word costs a refusal, never a hole.
func (l Lowerer) nested(calls []gate.Simple, depth int) ([]gate.Nested, error) {
	var found []gate.Nested
	for i, c := range calls {
		for j := range c.Argv {
			at, err := l.textOf(c.Argv, j)
			if err != nil {
				return nil, err
			}
			if at == 0 {
				continue
			}
			if depth > maxDepth {
				return nil, fmt.Errorf("command text is nested deeper than %d", maxDepth)
			}
			n := gate.Nested{Depth: depth, Position: []int{i, at}}
			n.Lowered, _ = lower(c.Argv[at])
			deeper, err := l.nested(n.Calls, depth+1)
			if err != nil {
				n.Lowered = refuse(err.Error(), n.Features)
			}
			found = append(append(found, n), deeper...)
		}
	}
	return found, nil
}

// textOf returns where the command text is that the shell at argv[at] would run, or 0 when there is
// no shell or no text.
func (l Lowerer) textOf(argv []string, at int) (int, error) {
	shells := l.Shells
	if shells == nil {
		shells = DefaultShells()
	}
	if !slices.Contains(shells, path.Base(argv[at])) {
		return 0, nil
	}
	hasText := false
	for i := at + 1; i < len(argv); i++ {
		if i-at > maxOptions {
			return 0, fmt.Errorf("%s has more than %d options", argv[at], maxOptions)
		}
		w := argv[i]
		switch option := len(w) > 1 && (w[0] == '-' || w[0] == '+'); {
		case w == "-" || w == "--":
			if i++; hasText && i < len(argv) {
				return i, nil
			}
			return 0, nil
		case w == "--rcfile" || w == "--init-file":
			i++
		case option && !strings.HasPrefix(w, "--"):
			hasText = hasText || w[0] == '-' && strings.Contains(w, "c")
			// each takes the name of a shell option
			i += strings.Count(w, "o") + strings.Count(w, "O")
		case option:
		case hasText:
			return i, nil
		default:
			return 0, nil // a script file
		}
	}
	return 0, nil
}

// Quote renders words for a POSIX shell as one command: each in single quotes, so that it sees
// exactly them.
func Quote(argv []string) string {
	var b strings.Builder
	for i, w := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(w, "'", `'\''`))
		b.WriteByte('\'')
	}
	return b.String()
}

func render(calls []gate.Simple, around glue) string {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			b.WriteString(" " + around.joiners[i-1] + " ")
		}
		b.WriteString(Quote(c.Argv) + around.tails[i])
	}
	return b.String()
}

// Package shell lowers command text to argument lists. It renders these as text in which every
// POSIX shell reads exactly the same words.
//
// It has no state and does no I/O. It refuses text that it cannot lower, and names the construct.
// The caller decides on the argument lists and sends the rendering, to nodes and to guests, so no
// text is checked in one form and sent in another.
package shell

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	// maxRendered is the longest rendering in bytes. The login shell gets it as one argument, and
	// Linux allows at most 128 KiB for one argument.
	maxRendered = 120_000

	maxDepth   = 3   // levels of command text inside command text
	maxOptions = 32  // options of a shell before its command text
	maxNested  = 64  // command texts in one command
	maxCalls   = 64  // simple commands in one text; policy decides on each
	maxWords   = 512 // words in one command or text
)

var _ terms.Lowerer = Lowerer{}

// Lowerer implements [terms.Lowerer]. It is safe for concurrent use.
type Lowerer struct{}

// Script lowers command text. When the text is parsed, Rendered holds the same commands with every
// word quoted; send the rendering, never the text. Otherwise Rendered is empty, Error names the
// first construct that cannot be lowered and its place, and Features names all such constructs.
// Features also names what joins commands ("pipe", "and", "or", "sequence") and redirections that
// touch no file ("discard", "merge").
func (Lowerer) Script(text string) terms.Command {
	lowered, around := lower(text)
	return command("script", lowered, around)
}

// Argv takes one program with its words. It refuses an empty list, an empty program name, a word
// with a NUL, and words that the node's login shell would read as code, as in eval X.
func (Lowerer) Argv(argv []string) terms.Command {
	c := terms.Simple{Argv: slices.Clone(argv), Static: true}
	lowered := terms.Lowered{Parsed: true, Features: []string{}, Calls: []terms.Simple{c}}
	switch why := evaluates(argv); {
	case len(argv) == 0 || argv[0] == "":
		lowered = refuse("the argument list names no program: its first word must be the program")
	case slices.ContainsFunc(argv, func(w string) bool { return strings.ContainsRune(w, 0) }):
		lowered = refuse("a word has a NUL character, which no program can receive")
	case why != "":
		lowered = refuse(why, "builtin")
	}
	return command("argv", lowered, glue{tails: []string{""}})
}

func command(form string, lowered terms.Lowered, around glue) terms.Command {
	c := terms.Command{Form: form, Lowered: lowered, Nested: []terms.Nested{}}
	if !c.Parsed {
		return c
	}
	rendered := render(c.Calls, around)
	var nested []terms.Nested
	var err error
	switch { // the sizes first: looking for nested text takes longer
	case len(rendered) > maxRendered:
		err = fmt.Errorf("the command is %d bytes when quoted, over the limit of %d: "+
			"send long data as a file or as stdin", len(rendered), maxRendered)
	case wordsOf(c.Calls) > maxWords:
		err = fmt.Errorf("there are %d words in the command, over the limit of %d: "+
			"make several calls, or send a file", wordsOf(c.Calls), maxWords)
	case len(c.Calls) > maxCalls:
		err = fmt.Errorf("there are %d commands in the text, over the limit of %d: "+
			"make several calls", len(c.Calls), maxCalls)
	default:
		nested, err = nestedIn(c.Calls, 1)
	}
	if err == nil && len(nested) > maxNested {
		err = fmt.Errorf("there are %d command texts inside the command, over the limit of %d",
			len(nested), maxNested)
	}
	if err != nil {
		c.Lowered = refuse(err.Error(), c.Features...)
		return c
	}
	c.Rendered = rendered
	c.Nested = append(c.Nested, nested...)
	return c
}

func wordsOf(calls []terms.Simple) (n int) {
	for _, c := range calls {
		n += len(c.Argv)
	}
	return n
}

// nestedIn finds command text inside calls, after any word that is a shell's name, depth first: the
// parent of an entry is the last entry before it with a smaller depth. A word that only looks like
// a shell can cause a refusal, but never a missing check.
func nestedIn(calls []terms.Simple, depth int) ([]terms.Nested, error) {
	var found []terms.Nested
	for i, c := range calls {
		for j := range c.Argv {
			at, err := textOf(c.Argv, j)
			if err != nil {
				return nil, err
			}
			if at == 0 {
				continue
			}
			if depth > maxDepth {
				return nil, fmt.Errorf("command text is nested deeper than %d", maxDepth)
			}
			n := terms.Nested{Depth: depth, Position: []int{i, at}}
			n.Lowered, _ = lower(c.Argv[at])
			deeper, err := nestedIn(n.Calls, depth+1)
			if err != nil {
				n.Lowered = refuse(err.Error(), n.Features...)
			}
			found = append(append(found, n), deeper...)
		}
	}
	return found, nil
}

// textOf returns the index of the command text that the shell at argv[at] would run, or 0 when
// argv[at] is no shell or has no text.
func textOf(argv []string, at int) (int, error) {
	if !posixShells[path.Base(argv[at])] {
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
			// each o and O takes the name of a shell option
			i += strings.Count(w, "o") + strings.Count(w, "O")
		case option:
		case hasText:
			return i, nil
		default:
			return 0, nil // the name of a script file
		}
	}
	return 0, nil
}

// Quote renders words as one command for a POSIX shell. Each word is in single quotes, so that the
// shell reads exactly these words.
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

func render(calls []terms.Simple, around glue) string {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			b.WriteString(" " + around.joiners[i-1] + " ")
		}
		b.WriteString(Quote(c.Argv) + around.tails[i])
	}
	return b.String()
}

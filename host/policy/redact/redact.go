// Package redact keeps the values of the arguments that a site redacts out of the journal, of
// messages and of what approvers see.
package redact

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
)

// masked replaces, in the journal and in messages, a word that holds a redacted value.
const masked = "[redacted]"

// minSecret is the length of the shortest value that is looked for outside its own argument, in
// bytes. Shorter values stand in words by accident.
const minSecret = 4

// A Mask hides the values of the arguments that the site redacts: the values themselves, and every
// word of the question that holds one.
type Mask struct {
	args    []string // names of redacted arguments
	secrets []string // their values, the longest first
}

// New returns the mask of a call at a site that redacts arguments of these names.
func New(c *terms.Call, args []string) Mask {
	m := Mask{args: args}
	m.collect(c.Args.Value, false)
	for k, v := range c.Args.Scalars {
		m.collect(v, m.named(k))
	}
	for _, cmd := range c.Commands {
		if !m.named(cmd.Arg) {
			continue
		}
		m.add(cmd.Text)
		m.add(cmd.Rendered)
		calls := slices.Clone(cmd.Calls)
		for _, n := range cmd.Nested {
			calls = append(calls, n.Calls...)
		}
		for _, call := range calls { // the words without their quotes
			for _, w := range call.Argv {
				m.add(w)
			}
		}
	}
	slices.SortFunc(m.secrets, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	m.secrets = slices.Compact(m.secrets)
	return m
}

// named reports whether the site redacts arguments of this name.
func (m Mask) named(name string) bool {
	same := func(arg string) bool { return strings.EqualFold(arg, name) }
	return slices.ContainsFunc(m.args, same)
}

// collect adds the values below a redacted name, at any depth.
func (m *Mask) collect(v any, redacted bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			m.collect(x, redacted || m.named(k))
		}
	case []any:
		for _, x := range v {
			m.collect(x, redacted)
		}
	case string, int64, json.Number:
		if redacted {
			m.add(fmt.Sprint(v))
		}
	}
}

// add adds a value and, because a shell splits text, each of its words without quotes.
func (m *Mask) add(text string) {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(`'"\`, r)
	})
	for _, t := range append(words, text) {
		if len(t) >= minSecret {
			m.secrets = append(m.secrets, t)
		}
	}
}

// text masks every word that holds a secret.
func (m Mask) text(s string) string {
	for _, secret := range m.secrets {
		s = hidden(s, secret)
	}
	return s
}

// hidden masks every word of text that holds the secret.
func hidden(text, secret string) string {
	const between = " \t\n\r\""
	var out strings.Builder
	for {
		at := strings.Index(text, secret)
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		begin, end := strings.LastIndexAny(text[:at], between)+1, len(text)
		if i := strings.IndexAny(text[at+len(secret):], between); i >= 0 {
			end = at + len(secret) + i
		}
		out.WriteString(text[:begin] + masked)
		text = text[end:]
	}
}

// notShown matches the characters that say.rego replaces in messages.
var notShown = regexp.MustCompile(`[^ -~]`)

// cutWord matches what is left of a word where say.rego cut text.
var cutWord = regexp.MustCompile(`[^ \t\n\r"]*…`)

// Said masks a message. Policy quotes words in it, replaces odd characters, and marks with "…"
// where it cut text: what is left of a word there may be the beginning of a value.
func (m Mask) Said(msg string) string {
	if len(m.secrets) == 0 {
		return msg
	}
	msg = m.text(cutWord.ReplaceAllString(msg, masked))
	for _, s := range m.secrets {
		quoted := fmt.Sprintf("%q", notShown.ReplaceAllString(s, "?"))
		msg = hidden(msg, quoted[1:len(quoted)-1])
	}
	return msg
}

// Shown returns the arguments of a call without redacted values, at any depth.
func (m Mask) Shown(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if out[k] = m.Shown(x); m.named(k) {
				out[k] = value.Redacted
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = m.Shown(x)
		}
		return out
	case string:
		return m.text(v)
	}
	return v
}

// Journaled returns the input for the journal, and whether anything in it is masked. What is made
// from a redacted value is masked with it: a digest reveals a short value to a reader who tries all
// of them.
func (m Mask) Journaled(in any) (json.RawMessage, bool) {
	decided, some := in, len(m.secrets) > 0
	switch c := in.(type) {
	case *input.Call:
		masked := *c
		m.arguments(&masked.Args, &some)
		m.commands(&masked.Commands, &some)
		in = masked
	case *input.Operation:
		masked := *c
		m.arguments(&masked.Args, &some)
		m.commands(&masked.Parent.Commands, &some)
		m.request(&masked.HTTP, &some)
		m.stdin(&masked.Command)
		in = masked
	default:
		some = false
	}
	if !some {
		return value.JSON(decided, nil, nil), false
	}
	return value.JSON(in, fromCaller, m.text), true
}

func (m Mask) arguments(a *input.Args, some *bool) {
	scalars := maps.Clone(a.Scalars)
	hides := len(m.secrets) > 0 || slices.ContainsFunc(a.Omitted, m.named)
	for k := range scalars {
		if m.named(k) {
			scalars[k], hides = value.Redacted, true
		}
	}
	if hides {
		a.Scalars, a.Digest, *some = scalars, masked, true
	}
}

func (m Mask) commands(cmds *[]input.Command, some *bool) {
	*cmds = slices.Clone(*cmds)
	for i, c := range *cmds {
		if m.named(c.Arg) {
			(*cmds)[i] = input.Command{Command: terms.Command{Form: c.Form, Arg: c.Arg,
				Guest: c.Guest, Lowered: terms.Lowered{Parsed: c.Parsed, Error: "redacted",
					Features: c.Features}}}
			*some = true
		}
	}
}

func (m Mask) stdin(c **input.Command) {
	if *c != nil && len(m.secrets) > 0 && (*c).Stdin.Bytes > 0 {
		hidden := **c
		hidden.Stdin.SHA256 = masked
		*c = &hidden
	}
}

// request hides a query that holds a redacted name, because where a value ends is for the server to
// say, and the digest of a body that may hold a redacted value.
func (m Mask) request(r **input.Request, some *bool) {
	if *r == nil {
		return
	}
	secret := func(word string) bool {
		name, err := url.QueryUnescape(word)
		return err != nil || slices.ContainsFunc(splitAny(name, "[].:"), m.named)
	}
	hidden := **r
	if slices.ContainsFunc(splitAny(hidden.Query, "&=;"), secret) {
		hidden.Query, *some = masked, true
	}
	if len(m.secrets) > 0 && hidden.BodyBytes > 0 {
		hidden.BodySHA256 = masked
	}
	*r = &hidden
}

func splitAny(s, separators string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(separators, c) })
}

// fromCaller are the members of an input whose text a caller or a plugin wrote; the others name
// things of the host.
var fromCaller = map[string]bool{"commands": true, "command": true, "targets": true, "file": true,
	"http": true, "blob": true, "ask": true, "record": true, "scalars": true, "stages": true}

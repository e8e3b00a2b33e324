package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/open-policy-agent/opa/v1/ast"
)

// masked replaces, in the journal and in messages, a word that holds a redacted value.
const masked = "[redacted]"

// minSecret is the length of the shortest value that is looked for outside its own argument, in
// bytes. Shorter values stand in words by accident.
const minSecret = 4

// mask hides the values of the arguments that the site redacts: the values themselves, and every
// word of the question that holds one.
type mask struct {
	args    []string // names of redacted arguments
	secrets []string // their values, the longest first
}

func newMask(c *gate.Call, args []string) mask {
	m := mask{args: args}
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
func (m mask) named(name string) bool {
	return slices.ContainsFunc(m.args, func(arg string) bool { return strings.EqualFold(arg, name) })
}

// collect adds the values below a redacted name, at any depth.
func (m *mask) collect(v any, redacted bool) {
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
func (m *mask) add(text string) {
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
func (m mask) text(s string) string {
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

// said masks a message. Policy replaces odd characters in it, and marks with "…" where it cut text,
// so the beginning of a value is masked there too.
func (m mask) said(msg string) string {
	const cut = "…"
	msg = m.text(msg)
	for _, s := range m.secrets {
		quoted := fmt.Sprintf("%q", notShown.ReplaceAllString(s, "?"))
		shown := quoted[1 : len(quoted)-1]
		for n := len(shown); n >= minSecret; n-- {
			if n == len(shown) || strings.Contains(msg, shown[:n]+cut) {
				msg = hidden(msg, shown[:n])
			}
		}
	}
	return msg
}

// shown returns the arguments of a call without redacted values, at any depth.
func (m mask) shown(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if out[k] = m.shown(x); m.named(k) {
				out[k] = map[string]any{"redacted": true}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = m.shown(x)
		}
		return out
	case string:
		return m.text(v)
	}
	return v
}

// journaled returns the input for the journal, and whether anything in it is masked. What is made
// from a redacted value is masked with it: a digest reveals a short value to a reader who tries all
// of them.
func (m mask) journaled(in any, decided ast.Value) (json.RawMessage, bool) {
	some := len(m.secrets) > 0
	switch c := in.(type) {
	case *callInput:
		masked := *c
		m.arguments(&masked.Args, &some)
		m.commands(&masked.Commands, &some)
		in = masked
	case *operationInput:
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
		return appendJSON(nil, decided, nil), false
	}
	return appendJSON(nil, term(reflect.ValueOf(in)).Value, m.text), true
}

func (m mask) arguments(a *args, some *bool) {
	scalars := maps.Clone(a.Scalars)
	hides := len(m.secrets) > 0 || slices.ContainsFunc(a.Omitted, m.named)
	for k := range scalars {
		if m.named(k) {
			scalars[k], hides = map[string]bool{"redacted": true}, true
		}
	}
	if hides {
		a.Scalars, a.Digest, *some = scalars, masked, true
	}
}

func (m mask) commands(cmds *[]command, some *bool) {
	*cmds = slices.Clone(*cmds)
	for i, c := range *cmds {
		if m.named(c.Arg) {
			(*cmds)[i] = command{Command: gate.Command{Form: c.Form, Arg: c.Arg, Guest: c.Guest,
				Lowered: gate.Lowered{Parsed: c.Parsed, Error: "redacted", Features: c.Features}}}
			*some = true
		}
	}
}

func (m mask) stdin(c **command) {
	if *c != nil && len(m.secrets) > 0 && (*c).Stdin.Bytes > 0 {
		hidden := **c
		hidden.Stdin.SHA256 = masked
		*c = &hidden
	}
}

// request hides a query that holds a redacted name, because where a value ends is for the server to
// say, and the digest of a body that may hold a redacted value.
func (m mask) request(r **request, some *bool) {
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
	"http": true, "blob": true, "ask": true, "scalars": true, "stages": true}

// appendJSON appends the JSON of v, with sorted keys. Text below a member of fromCaller goes
// through hide, unless that is nil.
func appendJSON(b []byte, v ast.Value, hide func(string) string) []byte {
	return appendValue(b, v, hide, false)
}

func appendValue(b []byte, v ast.Value, hide func(string) string, from bool) []byte {
	switch v := v.(type) {
	case ast.String:
		s := string(v)
		if from && hide != nil {
			s = hide(s)
		}
		return appendString(b, s)
	case *ast.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, v.Elem(i).Value, hide, from)
		}
		return append(b, ']')
	case ast.Object:
		b = append(b, '{')
		v.Foreach(func(k, x *ast.Term) {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(appendString(b, textOf(k)), ':')
			b = appendValue(b, x.Value, hide, from || fromCaller[textOf(k)])
		})
		return append(b, '}')
	}
	return append(b, v.String()...) // null, true, false and numbers
}

// appendString quotes as encoding/json does, but leaves <, > and & alone where nothing else needs
// escaping.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic("policy: quoting a string: " + err.Error()) // json.Marshal takes every string
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

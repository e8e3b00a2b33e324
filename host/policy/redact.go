package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/caponier-mcp/caponier/host/gate"
)

// masked stands in the journal and in messages for a word that holds a redacted value.
const masked = "[redacted]"

// minSecret is the shortest value that is looked for elsewhere: shorter ones are in every other
// word.
const minSecret = 4

// mask hides the values of the arguments that the site redacts: those themselves, and every word of
// the question that holds one.
type mask struct {
	args    []string // names
	secrets []string // values, the longest first
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
		for _, call := range calls { // what the text was lowered to is without its quotes
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

// hidden is text in which no word holds the secret.
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

// collect takes the values below a redacted name, at any depth.
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

// add takes a value whole and, because a shell takes it apart, each of its words without quotes.
func (m *mask) add(text string) {
	words := strings.FieldsFunc(
		text,
		func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`'"\`, r) },
	)
	for _, t := range append(words, text) {
		if len(t) >= minSecret {
			m.secrets = append(m.secrets, t)
		}
	}
}

// said is a message without redacted values. Details of messages are cut and their odd characters
// replaced, so the beginning of a value counts too.
func (m mask) said(msg string) string {
	for _, s := range m.secrets {
		msg = hidden(msg, s)
	}
	text, detail, _ := strings.Cut(msg, " (")
	if detail == "" {
		return msg
	}
	for _, s := range m.secrets {
		quoted := fmt.Sprintf("%q", notShown.ReplaceAllString(s, "?"))
		shown := quoted[1 : len(quoted)-1]
		for n := min(len(shown), len(detail)); n >= minSecret; n-- {
			if strings.Contains(detail, shown[:n]) {
				detail = hidden(detail, shown[:n])
				break
			}
		}
	}
	return text + " (" + detail
}

// notShown are the characters that messages replace, in reasons.rego and complaint.rego.
var notShown = regexp.MustCompile(`[^ -~]`)

// journaled is the input for the journal, and whether anything in it was masked. What was made from
// a redacted value is masked with it: a digest gives a short one away to whoever tries all there
// are.
func (m mask) journaled(in any) (doc json.RawMessage, something bool) {
	switch in := in.(type) {
	case *callInput:
		c := *in
		c.Args, c.Commands = m.arguments(c.Args), m.commands(c.Commands)
		doc = inputJSON(&c)
	case *operationInput:
		c := *in
		c.Args, c.Parent.Commands, c.HTTP = m.arguments(c.Args), m.commands(c.Parent.Commands), m.request(c.HTTP)
		if c.Command != nil && len(m.secrets) > 0 && c.Command.Stdin.Bytes > 0 {
			cmd := *c.Command
			cmd.Stdin.SHA256, c.Command = masked, &cmd
		}
		doc = inputJSON(&c)
	default:
		return inputJSON(in), false
	}
	something = !bytes.Equal(doc, inputJSON(in))
	if len(m.secrets) == 0 {
		return doc, something
	}
	without, err := m.document(doc)
	if err != nil {
		// it was encoded just now; Decide answers a panic with a refusal
		panic(fmt.Sprintf("policy: masking the journal's input: %v", err))
	}
	return without, true
}

// named says whether a site redacts what has this name.
func (m mask) named(name string) bool {
	return slices.ContainsFunc(
		m.args,
		func(arg string) bool { return strings.EqualFold(arg, name) },
	)
}

// shown are all arguments of a call without the values that are redacted, at any depth.
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
	}
	return m.hide(v, true)
}

func (m mask) arguments(a args) args {
	scalars := map[string]any{}
	for k, v := range a.Scalars {
		if scalars[k] = v; m.named(k) {
			scalars[k] = nil // encoded as {"redacted":true}
		}
	}
	a.Scalars = scalars
	if len(m.secrets) > 0 || slices.ContainsFunc(slices.Collect(maps.Keys(scalars)), m.named) ||
		slices.ContainsFunc(a.Omitted, m.named) {
		a.Digest = masked
	}
	return a
}

// request hides a query that has a redacted name in it, because where its values end is for the
// server to say, and the digest of a body that may hold a redacted value.
func (m mask) request(r *request) *request {
	if r == nil {
		return nil
	}
	hidden := *r
	if slices.ContainsFunc(
		strings.FieldsFunc(r.Query, func(c rune) bool { return c == '&' || c == '=' || c == ';' }),
		func(word string) bool {
			name, err := url.QueryUnescape(word)
			return err != nil ||
				slices.ContainsFunc(
					strings.FieldsFunc(
						name,
						func(c rune) bool { return strings.ContainsRune("[].:", c) },
					),
					m.named,
				)
		},
	) {
		hidden.Query = masked
	}
	if len(m.secrets) > 0 && r.BodyBytes > 0 {
		hidden.BodySHA256 = masked
	}
	return &hidden
}

func (m mask) commands(cmds []command) []command {
	cmds = slices.Clone(cmds)
	for i, c := range cmds {
		if m.named(c.Arg) {
			cmds[i] = command{
				Form:     c.Form,
				Arg:      c.Arg,
				Guest:    c.Guest,
				Parsed:   c.Parsed,
				Error:    "redacted",
				Features: c.Features,
			}
		}
	}
	return cmds
}

// fromCaller are the members of an input that hold what a caller or a plugin wrote; the others name
// things of the host.
var fromCaller = []string{
	"commands",
	"command",
	"targets",
	"file",
	"http",
	"blob",
	"ask",
	"scalars",
	"stages",
}

// document masks words in the parts of an input that a caller or a plugin can write to.
func (m mask) document(doc json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(m.hide(v, false))
	return bytes.TrimSpace(out.Bytes()), err
}

func (m mask) hide(v any, from bool) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = m.hide(x, from || slices.Contains(fromCaller, k))
		}
	case []any:
		for i, x := range v {
			v[i] = m.hide(x, from)
		}
	case string:
		if from {
			for _, s := range m.secrets {
				v = hidden(v, s)
			}
		}
		return v
	}
	return v
}

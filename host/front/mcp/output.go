package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// output is what an instance wrote as the answer of a tool, a resource or a prompt.
type output struct {
	Content     []part          `json:"content"`
	Structured  json.RawMessage `json:"structured"`
	Error       *outputError    `json:"error"`
	Spent       int64           `json:"spent_usd_micros"`
	Contents    []embedded      `json:"contents"`
	Description string          `json:"description"`
	Messages    []struct {
		Role    string `json:"role"`
		Content part   `json:"content"`
	} `json:"messages"`

	failed       *toolError
	cut          bool // some text was left out
	shown, total int  // characters
}

type outputError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
}

// is reports an output of another kind than the one that was asked for.
func (out *output) is(kind string) error {
	isTool := len(out.Content) > 0 || len(out.Structured) > 0
	isPrompt := len(out.Messages) > 0 || out.Description != ""
	if isTool && kind != "tool" || len(out.Contents) > 0 && kind != "resource" ||
		isPrompt && kind != "prompt" {
		return fmt.Errorf("it is not the output of a %s", kind)
	}
	return nil
}

func badOutput(err error) error {
	return &terms.PluginError{Code: "plugin_protocol",
		Message: "the plugin's output: " + err.Error()}
}

// decode reads an instance's output strictly: anything outside the contract makes the whole output
// a plugin error.
func (s *Server) decode(tool *terms.Tool, raw terms.Output) (*output, error) {
	out := &output{}
	err := strictly(raw.JSON, s.opts.MaxOutput, out)
	if string(out.Structured) == "null" {
		out.Structured = nil
	}
	switch e := out.Error; {
	case err != nil:
	case raw.Code == 0 && e != nil:
		err = errors.New("it holds an error but the tool said that it succeeded")
	case raw.Code != 0 && e == nil:
		err = errors.New("the tool said that it failed, without an error")
	case e != nil && (e.Code == "" || e.Message == ""):
		err = errors.New("error: code and message must not be empty")
	case e != nil:
		out.failed = &toolError{cut(e.Code, 64), cut(e.Message, s.opts.MaxChars),
			cut(e.Suggestion, s.opts.MaxChars)}
		out.Structured = nil
		// the plugins' SDK repeats the message there
		out.Content = slices.DeleteFunc(out.Content, func(p part) bool {
			return p.Text != nil && *p.Text == e.Message
		})
	default:
		if err = out.is(tool.Kind); err == nil {
			err = out.promised(tool, raw.Hits)
		}
	}
	if err != nil {
		return nil, badOutput(err)
	}
	return out, nil
}

// fits holds a decoded value to the tool's output schema.
func fits(tool *terms.Tool, v any) error {
	if tool.ValidateOutput == nil {
		return nil
	}
	data, err := abi.Encode(v)
	if err != nil {
		return err
	}
	var plain any // without json.Number, which a validator takes for text
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	return tool.ValidateOutput(plain)
}

// promised holds what the plugin wrote to the tool's output schema. A value in which something was
// masked is not the plugin's fault.
func (out *output) promised(tool *terms.Tool, hits []terms.Hit) error {
	if tool.ValidateOutput == nil {
		return nil
	}
	if len(out.Structured) == 0 {
		return errors.New("structured is missing, which the tool's output schema promises")
	}
	var v any
	if err := json.Unmarshal(out.Structured, &v); err != nil {
		return fmt.Errorf("structured: %w", err)
	}
	err := tool.ValidateOutput(v)
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(hits, func(h terms.Hit) bool { return h.Action == "mask" }) {
		out.failed, out.Structured = unfit("was masked", err), nil
		return nil
	}
	return fmt.Errorf("structured does not fit the tool's output schema: %w", err)
}

// render writes a tool's output into a result, at most most characters of it in each of its two
// forms.
//
// Some clients show a model only structuredContent when there is any (Claude Code, VS Code), the
// others only the text, so that whatever one of the two lacks is lost to some. The text has all of
// the output: it begins with the structured value (so that an exit code and stderr come before a
// long stdout), without those long strings that the plugin's own text repeats. So it is sent once.
// Where the client was told of an output schema, the whole value is in structuredContent too, as
// MCP demands.
func (out *output) render(tool *terms.Tool, o *Options, res *mcp.CallToolResult) error {
	most := o.MaxChars
	v, err := out.value()
	if err != nil {
		return err
	}
	own := out.ownText()
	t := &truncation{}
	if err := t.walk(v, func(e any) { v = e }, 0); err != nil {
		return badOutput(fmt.Errorf("structured: %w", err))
	}
	if v != nil && own != "" {
		t.dropRepeated(own)
	}
	for i, p := range out.Content {
		if p.Text != nil && v != nil && *p.Text == string(out.Structured) {
			continue // the plugins' SDK writes it for a tool without a text
		}
		c, err := p.convert(t)
		if err != nil {
			return badOutput(fmt.Errorf("content[%d]: %w", i, err))
		}
		res.Content = append(res.Content, c)
	}
	out.total = t.total
	out.cut = t.fit(most)
	out.shown = t.shown
	v = out.shorten(v, most)
	if m, isObject := v.(map[string]any); isObject && out.cut {
		m["truncated"] = true
	}
	if v == nil && out.failed == nil && len(res.Content) == 0 {
		res.Content = []mcp.Content{}
	}
	if v != nil {
		text, err := abi.Encode(v)
		if err != nil {
			return err
		}
		first := &mcp.TextContent{Text: string(text)}
		res.Content = slices.Insert(res.Content, 0, mcp.Content(first))
	}
	if !o.OutputSchemas {
		return nil
	}
	return out.promise(tool, most, res)
}

// promise writes the structured value of a tool with an output schema where that schema is held to.
// A value that was cut, or in which hidden characters were replaced, still fits, or the call ends
// with an error that says what its text is.
func (out *output) promise(tool *terms.Tool, most int, res *mcp.CallToolResult) error {
	if len(tool.OutputSchema) == 0 || len(out.Structured) == 0 || out.failed != nil {
		return nil
	}
	v, err := out.value()
	if err != nil {
		return err
	}
	t := &truncation{}
	if err := t.walk(v, func(e any) { v = e }, 0); err != nil {
		return badOutput(fmt.Errorf("structured: %w", err))
	}
	long := &output{cut: t.fit(most)}
	v = long.shorten(v, most)
	out.cut = out.cut || long.cut
	if m, isObject := v.(map[string]any); isObject && long.cut {
		was, had := m["truncated"]
		if m["truncated"] = true; fits(tool, v) != nil {
			if delete(m, "truncated"); had {
				m["truncated"] = was
			}
		}
	}
	if long.cut || t.cleaned {
		if err := fits(tool, v); err != nil {
			out.failed = unfit("was too long, or had hidden characters", err)
			return nil
		}
	}
	res.StructuredContent = v
	return nil
}

// unfit is the failure of a call whose tool ended well, but whose output could not be handed on in
// the form that its output schema promises.
func unfit(why string, err error) *toolError {
	return &toolError{Code: "result_unfit",
		message: cut(fmt.Sprintf("the tool ended well, and what it did stays done; but its output "+
			"%s, and so it does not fit the tool's output schema: %v", why, err), 1000),
		suggestion: "Do not repeat what changes something. Ask for less at a time, or tell your " +
			"user: the schema of the plugin must admit such results."}
}

// value decodes the structured value; nil for none.
func (out *output) value() (v any, err error) {
	if len(out.Structured) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(out.Structured))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, badOutput(fmt.Errorf("structured: %w", err))
	}
	return v, nil
}

// ownText is the plugin's text, cleaned; "" if it only repeats the structured value.
func (out *output) ownText() string {
	var all []string
	for _, p := range out.Content {
		if p.Text != nil && *p.Text != string(out.Structured) {
			all = append(all, plaintext.Clean(*p.Text))
		}
	}
	return strings.Join(all, "\n")
}

// shorten leaves out the middle of the longest lists until the value takes at most twice as many
// bytes as there may be characters of text: strings that are short each can be long together.
func (out *output) shorten(v any, most int) any {
	for range 40 {
		text, err := abi.Encode(v)
		if err != nil || len(text) <= 2*most {
			return v
		}
		var longest []any
		var set func([]any)
		size := 0
		eachList(v, 8, func(e any) { v = e }, func(l []any, to func([]any)) {
			if data, err := abi.Encode(l); err == nil && len(l) > 2 && len(data) > size {
				// of two lists, one inside the other, the inner one unless it is small
				longest, set, size = l, to, len(data)*9/10
			}
		})
		if set == nil {
			return v
		}
		n := len(longest) / 4
		n = max(n, 1)
		set(slices.Concat(longest[:n], longest[len(longest)-n:]))
		out.cut, out.shown = true, min(out.shown, most)
	}
	return v
}

// eachList visits the lists of a value, down to a depth.
func eachList(v any, depth int, set func(any), visit func([]any, func([]any))) {
	if depth == 0 {
		return
	}
	switch v := v.(type) {
	case []any:
		visit(v, func(l []any) { set(l) })
		for i := range v {
			eachList(v[i], depth-1, func(e any) { v[i] = e }, visit)
		}
	case map[string]any:
		for k := range v {
			eachList(v[k], depth-1, func(e any) { v[k] = e }, visit)
		}
	}
}

// dropRepeated replaces the longest strings if the text has them as well.
func (t *truncation) dropRepeated(text string) {
	slices.SortStableFunc(t.slots, func(a, b slot) int { return b.runes - a.runes })
	looked := 0
	t.slots = slices.DeleteFunc(t.slots, func(sl slot) bool {
		// A few are enough, and looking for thousands would take long.
		looked++
		if looked > 8 || sl.runes <= keptWhole ||
			!strings.Contains(text, strings.TrimRight(sl.text, "\n")) {
			return false
		}
		sl.set(fmt.Sprintf("[%d characters, in the text that follows]", sl.runes))
		t.total -= sl.runes
		return true
	})
}

// strictly decodes exactly one JSON value of valid UTF-8 and of known fields into dst.
func strictly(data []byte, most int, dst any) error {
	switch {
	case len(data) == 0:
		return errors.New("is empty")
	case len(data) > most:
		return fmt.Errorf("%d bytes are over the limit of %d", len(data), most)
	case !utf8.Valid(data):
		return errors.New("is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("has more after its first JSON value")
	}
	return nil
}

// toolError is why a call failed. Only its code is sent as data.
type toolError struct {
	Code       string `json:"code"`
	message    string
	suggestion string
}

func (e *toolError) text() string {
	msg := strings.TrimSuffix(strings.TrimSpace(e.message), ".")
	return strings.TrimSpace(fmt.Sprintf("%s (%s). %s", msg, e.Code, e.suggestion))
}

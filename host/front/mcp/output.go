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

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
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
	hasSchema    bool
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
	return &gate.PluginError{Code: "plugin_protocol",
		Message: "the plugin's output: " + err.Error()}
}

// decode reads an instance's output strictly: anything outside the contract makes the whole output
// a plugin error.
func (s *Server) decode(tool *gate.Tool, raw gate.Output) (*output, error) {
	out := &output{hasSchema: len(tool.OutputSchema) > 0}
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
			err = out.fits(tool)
		}
	}
	if err != nil {
		return nil, badOutput(err)
	}
	return out, nil
}

// fits holds the structured value to the tool's output schema.
func (out *output) fits(tool *gate.Tool) error {
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
	if err := tool.ValidateOutput(v); err != nil {
		return fmt.Errorf("structured does not fit the tool's output schema: %w", err)
	}
	return nil
}

// render writes a tool's output into a result, at most most characters of it.
//
// The output is sent once. Some clients show a model only structuredContent when there is any
// (Claude Code, VS Code), the others only the text, so that whatever one of the two lacks is lost
// to some: a tool without an output schema has all of it in the text, which begins with the
// structured value (so that an exit code and stderr come before a long stdout), without those long
// strings that the plugin's own text repeats. A tool with an output schema has all of it in
// structuredContent, as MCP demands, and
// a short text.
func (out *output) render(most int, res *mcp.CallToolResult) error {
	var v any
	if len(out.Structured) > 0 {
		d := json.NewDecoder(bytes.NewReader(out.Structured))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return badOutput(fmt.Errorf("structured: %w", err))
		}
	}
	own := out.ownText()
	t := &truncation{}
	if err := t.walk(v, func(e any) { v = e }, 0); err != nil {
		return badOutput(fmt.Errorf("structured: %w", err))
	}
	if v != nil && !out.hasSchema && own != "" {
		t.dropRepeated(own)
	}
	short := &truncation{} // of text that only refers to structuredContent
	for i, p := range out.Content {
		to := t
		if out.hasSchema && v != nil {
			to = short
		}
		if p.Text != nil && v != nil && *p.Text == string(out.Structured) {
			continue // the plugins' SDK writes it for a tool without a text
		}
		c, err := p.convert(to)
		if err != nil {
			return badOutput(fmt.Errorf("content[%d]: %w", i, err))
		}
		res.Content = append(res.Content, c)
	}
	out.total = t.total
	out.cut = t.fit(most)
	out.shown = t.shown
	if v != nil {
		v = out.shorten(v, most)
	}
	if out.cut {
		if m, isObject := v.(map[string]any); isObject {
			if _, has := m["truncated"]; has || !out.hasSchema {
				m["truncated"] = true
			}
		}
	}
	short.fit(shortText)
	return out.place(v, res)
}

// shortText is the size in characters of a text that only refers to structuredContent.
const shortText = 1000

// place puts the structured value where the client reads it.
func (out *output) place(v any, res *mcp.CallToolResult) error {
	text, err := abi.Encode(v)
	if err != nil {
		return err
	}
	switch {
	case v == nil && out.failed == nil && len(res.Content) == 0:
		res.Content = []mcp.Content{}
	case v == nil:
	case out.hasSchema:
		res.StructuredContent = v
		if len(text) <= shortText && len(res.Content) == 0 {
			res.Content = []mcp.Content{&mcp.TextContent{Text: string(text)}}
		} else {
			res.Content = append(res.Content, &mcp.TextContent{
				Text: "The whole output is in structuredContent."})
		}
	default:
		first := &mcp.TextContent{Text: string(text)}
		res.Content = slices.Insert(res.Content, 0, mcp.Content(first))
	}
	return nil
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

package result

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// edit returns the text that replaces a text.
type edit func([]byte) []byte

// inValue edits the texts of an operation's response that a node or server wrote. It does not
// change texts of the host, or answers of its user.
func inValue(v any, f edit) any {
	switch v := v.(type) {
	case abi.ExecResponse:
		v.Stdout, v.StdoutB64 = text(v.Stdout, f), encoded(v.StdoutB64, f)
		v.Stderr, v.StderrB64 = text(v.Stderr, f), encoded(v.StderrB64, f)
		return v
	case abi.ReadResponse:
		v.Text, v.B64 = text(v.Text, f), encoded(v.B64, f)
		return v
	case abi.HTTPResponse:
		v.Text, v.B64 = text(v.Text, f), encoded(v.B64, f)
		v.Headers = slices.Clone(v.Headers)
		for i := range v.Headers {
			v.Headers[i][1] = text(v.Headers[i][1], f)
		}
		return v
	}
	return v
}

func text(s string, f edit) string { return string(f([]byte(s))) }

// encoded edits the decoded form of a text in base64, and the text itself, which may only look like
// base64. A secret that appears in both counts twice.
func encoded(s string, f edit) string {
	if b, err := base64.StdEncoding.DecodeString(s); err == nil && s != "" {
		if e := f(b); !bytes.Equal(e, b) {
			s = base64.StdEncoding.EncodeToString(e)
		}
	}
	return text(s, f)
}

// inOutput edits all strings of a plugin's output. If the raw text already shows that no string
// changes, the output stays the same. Otherwise it is encoded again from the examined value, so
// that only examined values are returned; for example, the first of two members with one name is
// lost. An output that is not one JSON value is edited as text.
func inOutput(s *Set, raw []byte, f edit) []byte {
	if s.readsRaw(raw) {
		if e := f(raw); bytes.Equal(e, raw) {
			return raw
		}
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil || len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		return f(raw)
	}
	v = inJSON(v, "", f)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return f(raw)
	}
	return bytes.TrimSpace(out.Bytes())
}

// readsRaw reports whether the detectors find in the text of JSON all that they find in its
// strings. They know what line breaks, quotes and slashes look like there.
func (s *Set) readsRaw(raw []byte) bool {
	for _, key := range encodedKeys {
		if bytes.Contains(raw, []byte(key+`"`)) {
			return false
		}
	}
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 == len(raw) {
			return true
		}
		if s.patterns || bytes.IndexByte([]byte(`nrt"/`), raw[i+1]) < 0 {
			return false
		}
		raw = raw[i+2:]
	}
}

// encodedKeys end the names of members that hold base64.
var encodedKeys = []string{"_b64", "blob", "data"}

// inJSON edits all strings of a value, and the names of members. A list of strings is edited as
// their lines, so that a secret of several lines is found.
func inJSON(v any, name string, f edit) any {
	switch v := v.(type) {
	case string:
		if slices.ContainsFunc(encodedKeys, func(k string) bool {
			return strings.HasSuffix(name, k)
		}) {
			return encoded(v, f)
		}
		return text(v, f)
	case []any:
		if lines, ok := linesOf(v); ok {
			before := strings.Join(lines, "\n")
			if after := text(before, f); after != before {
				v = nil
				for line := range strings.SplitSeq(after, "\n") {
					v = append(v, line)
				}
			}
			return v
		}
		for i := range v {
			v[i] = inJSON(v[i], name, f)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			edited := inJSON(v[k], k, f)
			delete(v, k)
			v[text(k, f)] = edited
		}
	}
	return v
}

func linesOf(all []any) (lines []string, ok bool) {
	for _, x := range all {
		s, isText := x.(string)
		if !isText {
			return nil, false
		}
		lines = append(lines, s)
	}
	return lines, len(lines) > 1
}

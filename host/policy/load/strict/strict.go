// Package strict reads YAML that can be read in one way only.
package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Map reads a document that is a map, as JSON has it, with its node, which knows the lines. Numbers
// are json.Number. The errors begin with the name of the file and the line.
func Map(name string, data []byte) (map[string]any, *yaml.Node, error) {
	if at := bytes.IndexAny(data, "\u0085\u2028\u2029"); at >= 0 {
		r, _ := utf8.DecodeRune(data[at:])
		return nil, nil, fmt.Errorf("%s:%d: %U ends a line in YAML 1.1 and is text in YAML 1.2: "+
			"write it as \\N, \\L or \\P, in double quotes", name,
			1+bytes.Count(data[:at], []byte("\n")), r)
	}
	var node, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&node); err == io.EOF {
		return nil, nil, fmt.Errorf("%s: is empty", name)
	} else if err != nil {
		return nil, nil, fmt.Errorf("%s: %w%s", name, err, tabs(data, err))
	}
	if err := d.Decode(&second); err != io.EOF {
		return nil, nil, fmt.Errorf("%s:%d: a second YAML document begins here: keep one in each "+
			"file", name, second.Line)
	}
	v, err := plain(name, &node)
	if err != nil {
		return nil, nil, err
	}
	top, isMap := v.(map[string]any)
	if !isMap {
		return nil, nil, fmt.Errorf("%s: is not a map", name)
	}
	return top, node.Content[0], nil
}

// tabs explains YAML's message about a tab, which does not say that it is one.
func tabs(data []byte, err error) string {
	if strings.Contains(err.Error(), "cannot start any token") && bytes.Contains(data,
		[]byte("\t")) {
		return " (a tab? YAML is indented by spaces)"
	}
	return ""
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// plain returns what a YAML node says when it can be read in one way only: as text, whole decimal
// numbers, true, false, null, lists and maps. Keys are text or plain decimals.
func plain(name string, n *yaml.Node) (any, error) {
	wrong := func(at *yaml.Node, format string, args ...any) error {
		return fmt.Errorf("%s:%d: %s", name, at.Line, fmt.Sprintf(format, args...))
	}
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return nil, wrong(n, "anchors and aliases are not read: write the value out")
	}
	if n.Style&yaml.TaggedStyle != 0 {
		return nil, wrong(n, "the tag %s is not read: write the value without it", n.Tag)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return plain(name, n.Content[0])
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, x := range n.Content {
			var err error
			if list[i], err = plain(name, x); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return mapping(name, n)
	}
	switch tag := n.ShortTag(); {
	case tag == "!!str":
		return n.Value, nil
	case tag == "!!null":
		return nil, nil
	case tag == "!!bool":
		return strings.EqualFold(n.Value, "true"), nil
	case tag == "!!int" && decimal.MatchString(n.Value):
		return json.Number(n.Value), nil
	case tag == "!!int":
		return nil, wrong(n, "%s is not a plain decimal number: write it in decimal, or in "+
			"quotes if it is text", n.Value)
	}
	return nil, wrong(n, "%s is neither text, a whole number, true, false, a list nor a map: "+
		"write text in quotes", n.Value)
}

func mapping(name string, n *yaml.Node) (any, error) {
	m, lines := map[string]any{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		v, err := plain(name, n.Content[i+1])
		switch tag := k.ShortTag(); {
		case err != nil:
			return nil, err
		case k.Kind != yaml.ScalarNode || k.Anchor != "" || k.Style&yaml.TaggedStyle != 0,
			tag != "!!str" && (tag != "!!int" || !decimal.MatchString(k.Value)):
			return nil, fmt.Errorf("%s:%d: the key %s is neither text nor a plain decimal number: "+
				"write it in quotes", name, k.Line, k.Value)
		case lines[k.Value] != 0:
			return nil, fmt.Errorf("%s:%d: the key %q is already defined in line %d", name, k.Line,
				k.Value, lines[k.Value])
		}
		m[k.Value], lines[k.Value] = v, k.Line
	}
	return m, nil
}

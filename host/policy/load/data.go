package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseData adds the data of a YAML or JSON file below its folder's path, as plain opa does.
func (c *Candidate) parseData(name string, data []byte) error {
	var node, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&node); err == io.EOF {
		return fmt.Errorf("%s: is empty", name)
	} else if err != nil {
		return fmt.Errorf("%s: %w%s", name, err, tabs(data, err))
	}
	if err := d.Decode(&second); err != io.EOF {
		return fmt.Errorf("%s:%d: a second YAML document begins here: keep one in each file", name,
			second.Line)
	}
	v, err := plain(name, &node)
	if err != nil {
		return err
	}
	top, isMap := v.(map[string]any)
	if !isMap {
		return fmt.Errorf("%s: is not a map", name)
	}
	if owned(name) {
		c.places[name] = &node
	}
	at := c.data
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		next, _ := at[part].(map[string]any)
		if next == nil {
			next = map[string]any{}
			at[part] = next
		}
		at = next
	}
	return merge(at, top, name)
}

// tabs explains YAML's message about a tab, which does not say that it is one.
func tabs(data []byte, err error) string {
	if strings.Contains(err.Error(), "cannot start any token") && bytes.Contains(data,
		[]byte("\t")) {
		return " (a tab? YAML is indented by spaces)"
	}
	return ""
}

func merge(into, from map[string]any, name string) error {
	for k, v := range from {
		a, isMap := into[k].(map[string]any)
		b, isMapToo := v.(map[string]any)
		switch _, there := into[k]; {
		case !there:
			into[k] = v
		case isMap && isMapToo:
			if err := merge(a, b, name); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: %s is set in another file too", name, k)
		}
	}
	return nil
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
			"quotes if it "+
			"is text", n.Value)
	}
	return nil, wrong(n, "%s is neither text, a whole number, true, false, a list nor a map: "+
		"write text "+
		"in quotes", n.Value)
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

// place returns file and line of a key of the site's data, as far down as it can be found.
func (c *Candidate) place(field string) string {
	field = strings.TrimPrefix(strings.TrimPrefix(field, "(root)"), ".")
	best, where, depth := field, "site", -1
	for name, doc := range c.places {
		if at, line := locate(doc, field, 0, 1); at > depth || at == depth && name < where {
			depth, where = at, fmt.Sprintf("%s:%d", name, line)
		}
	}
	if best == "" {
		return where
	}
	return where + ": " + best
}

// locate follows a path whose keys can hold its separators, "." and "/". It returns how much of the
// path it found, and the line.
func locate(n *yaml.Node, rest string, depth, line int) (int, int) {
	best, at := depth, line
	switch n.Kind {
	case yaml.DocumentNode:
		return locate(n.Content[0], rest, depth, line)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			tail, ok := below(rest, n.Content[i].Value)
			if !ok {
				continue
			}
			key := n.Content[i]
			if d, l := locate(n.Content[i+1], tail, depth+len(key.Value)+1, key.Line); d > best {
				best, at = d, l
			}
		}
	case yaml.SequenceNode:
		for i, x := range n.Content {
			tail, ok := below(rest, fmt.Sprint(i))
			if !ok {
				tail, ok = below(rest, x.Value)
			}
			if ok && x.Line > 0 {
				if d, l := locate(x, tail, depth+1, x.Line); d > best {
					best, at = d, l
				}
			}
		}
	}
	return best, at
}

// below returns what follows key in a path.
func below(rest, key string) (tail string, ok bool) {
	tail, ok = strings.CutPrefix(rest, key)
	if key == "" || !ok || tail == "" {
		return "", ok && key != ""
	}
	return tail[1:], strings.ContainsAny(tail[:1], "./")
}

var errNoData = errors.New("there is no data.yaml in the site's folder, so nothing is granted")

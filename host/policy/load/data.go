package load

import (
	"bytes"
	"cmp"
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
		c.places[""] = cmp.Or(c.places[""], name+":1")
		c.note(name, "", node.Content[0])
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

// note keeps the line of each key and element below a path of the site's data.
func (c *Candidate) note(name, path string, n *yaml.Node) {
	keep := func(key string, at, below *yaml.Node) {
		key = path + "/" + slashed.Replace(key)
		c.places[key] = fmt.Sprintf("%s:%d", name, at.Line)
		c.note(name, key, below)
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			keep(n.Content[i].Value, n.Content[i], n.Content[i+1])
		}
	case yaml.SequenceNode: // an element is known by its number and, if it is text, by that
		for i, x := range n.Content {
			keep(fmt.Sprint(i), x, x)
			if x.Value != "" {
				keep(x.Value, x, x)
			}
		}
	}
}

// slashed gives the two ways in which mistakes name a path, a.b and a/b, one form. Keys can hold
// both characters.
var slashed = strings.NewReplacer(".", "/")

// place returns file and line of a key of the site's data, as far down as it can be found.
func (c *Candidate) place(field string) string {
	field = strings.TrimPrefix(strings.TrimPrefix(field, "(root)"), ".")
	key, where := slashed.Replace("/"+field), c.places[""]
	for key != "" && c.places[key] == "" {
		key = key[:strings.LastIndex(key, "/")]
	}
	if key != "" {
		where = c.places[key]
	}
	if field == "" {
		return where
	}
	return where + ": " + field
}

// Place returns file and line of a path of the site's data, such as roles/operator/tools, as far
// down as it stands there, and behind a colon the path.
func (c *Candidate) Place(path string) string { return c.place(path) }

var errNoData = errors.New("there is no data.yaml in the site's folder, so nothing is granted")

package load

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/load/strict"
	"go.yaml.in/yaml/v3"
)

// parseData adds the data of a YAML or JSON file below its folder's path, as plain opa does.
func (c *Candidate) parseData(name string, data []byte) error {
	top, node, err := strict.Map(name, data)
	if err != nil {
		return err
	}
	if owned(name) {
		c.places[""] = cmp.Or(c.places[""], name+":1")
		c.note(name, "", node)
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

// Place returns file and line of a path of the site's data such as roles/operator/tools, as far down
// as it stands there, and behind a colon the path.
func (c *Candidate) Place(path string) string { return c.place(path) }

var errNoData = errors.New("there is no data.yaml in the site's folder, so nothing is granted")

package offline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// MaxAnswers is the size of the largest file of answers that is read, in bytes.
const MaxAnswers = 16 << 20

// Parse reads answers, which are YAML or JSON. An unknown key, a second answer to the same
// operation, and a value of another type are errors, with the line in the file of this name.
func Parse(name string, data []byte) (*Answers, error) {
	if len(data) > MaxAnswers {
		return nil, fmt.Errorf("%s: over the limit of %d bytes", name, MaxAnswers)
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&doc); err == io.EOF {
		return nil, fmt.Errorf("%s: is empty", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := d.Decode(&second); err != io.EOF {
		return nil, fmt.Errorf("%s: has more than one document", name)
	}
	r, a := &reader{name: name, seen: map[string]int{}}, &Answers{Local: map[string][]byte{}}
	err := r.fields(doc.Content[0], map[string]read{
		"nodes":    r.texts(&a.Nodes),
		"commands": r.each(func(n *yaml.Node) error { return r.command(n, a) }),
		"files":    r.each(func(n *yaml.Node) error { return r.file(n, a) }),
		"requests": r.each(func(n *yaml.Node) error { return r.request(n, a) }),
		"asks":     r.each(func(n *yaml.Node) error { return r.ask(n, a) }),
		"local":    r.each(func(n *yaml.Node) error { return r.local(n, a) }),
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// reader reads one file.
type reader struct {
	name string
	seen map[string]int // lines of the answers, by what they answer
}

// read reads a node into what it was made for.
type read func(n *yaml.Node) error

func (r *reader) wrong(n *yaml.Node, format string, a ...any) error {
	return fmt.Errorf("%s:%d: %s", r.name, n.Line, fmt.Sprintf(format, a...))
}

// fields reads a map whose keys are all known.
func (r *reader) fields(n *yaml.Node, known map[string]read) error {
	if err := r.plain(n); err != nil {
		return err
	}
	if n.Kind != yaml.MappingNode {
		return r.wrong(n, "want a map with the keys %v", names(known))
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		into := known[key.Value]
		switch first := lines[key.Value]; {
		case into == nil || r.plain(key) != nil:
			return r.wrong(key, "the key %q is not known; want %v", key.Value, names(known))
		case first != 0:
			return r.wrong(key, "the key %q is already in line %d", key.Value, first)
		}
		lines[key.Value] = key.Line
		if err := r.plain(value); err != nil {
			return err
		}
		if err := into(value); err != nil {
			return fmt.Errorf("%w (%s)", err, key.Value)
		}
	}
	return nil
}

func names(known map[string]read) []string { return slices.Sorted(maps.Keys(known)) }

// plain refuses what could be read in two ways.
func (r *reader) plain(n *yaml.Node) error {
	switch {
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		return r.wrong(n, "anchors and aliases are not read: write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		return r.wrong(n, "the tag %s is not read: write the value without it", n.Tag)
	}
	return nil
}

// once refuses a second answer to the same.
func (r *reader) once(n *yaml.Node, what, key string) error {
	if line := r.seen[what+key]; line != 0 {
		return r.wrong(n, "the answer to this %s is already in line %d", what, line)
	}
	r.seen[what+key] = n.Line
	return nil
}

func (r *reader) each(do read) read {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.SequenceNode {
			return r.wrong(n, "want a list")
		}
		for _, x := range n.Content {
			if err := r.plain(x); err != nil {
				return err
			}
			if err := do(x); err != nil {
				return err
			}
		}
		return nil
	}
}

func (r *reader) scalar(n *yaml.Node, tag, want string) error {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == tag:
		return nil
	case n.Kind == yaml.ScalarNode && tag == "!!str":
		return r.wrong(n, "%s is not text: write it in quotes, %q", n.Value, n.Value)
	}
	return r.wrong(n, "want %s", want)
}

func (r *reader) text(into *string) read {
	return func(n *yaml.Node) error {
		*into = n.Value
		return r.scalar(n, "!!str", "text")
	}
}

func (r *reader) texts(into *[]string) read {
	return r.each(func(n *yaml.Node) error {
		*into = append(*into, n.Value)
		return r.scalar(n, "!!str", "text")
	})
}

func (r *reader) number(into *int, min, max int) read {
	return func(n *yaml.Node) (err error) {
		if err := r.scalar(n, "!!int", "a whole number"); err != nil {
			return err
		}
		if *into, err = strconv.Atoi(n.Value); err != nil || *into < min || *into > max {
			return r.wrong(n, "%s: want a whole number from %d to %d", n.Value, min, max)
		}
		return nil
	}
}

// bytes reads text, and b64 the same in base64.
func (r *reader) bytes(into *[]byte) read {
	return func(n *yaml.Node) error {
		if *into != nil {
			return r.wrong(n, "set the text or its base64, not both")
		}
		*into = []byte(n.Value)
		return r.scalar(n, "!!str", "text")
	}
}

func (r *reader) b64(into *[]byte) read {
	return func(n *yaml.Node) error {
		if *into != nil {
			return r.wrong(n, "set the text or its base64, not both")
		}
		data, err := base64.StdEncoding.Strict().DecodeString(n.Value)
		if err != nil {
			return r.wrong(n, "want base64: %v", err)
		}
		*into = append([]byte{}, data...)
		return r.scalar(n, "!!str", "text")
	}
}

func (r *reader) result(into *Result) map[string]read {
	return map[string]read{"exit": r.number(&into.Exit, -1, 255),
		"stdout": r.bytes(&into.Stdout), "stdout_b64": r.b64(&into.Stdout),
		"stderr": r.bytes(&into.Stderr), "stderr_b64": r.b64(&into.Stderr)}
}

func (r *reader) command(n *yaml.Node, a *Answers) error {
	c, first, then := Command{}, Result{}, []Result{}
	keys := r.result(&first)
	keys["node"], keys["argv"] = r.text(&c.Node), r.texts(&c.Argv)
	keys["script"] = r.text(&c.Script)
	keys["then"] = r.each(func(n *yaml.Node) error {
		var next Result
		err := r.fields(n, r.result(&next))
		then = append(then, next)
		return err
	})
	if err := r.fields(n, keys); err != nil {
		return err
	}
	if (len(c.Argv) == 0) == (c.Script == "") {
		return r.wrong(n, "a command needs argv, its words, or script, its text")
	}
	c.Results = append([]Result{first}, then...)
	a.Commands = append(a.Commands, c)
	return r.once(n, "command", c.key())
}

func (r *reader) file(n *yaml.Node, a *Answers) error {
	f, mode := File{Type: "file"}, "0644"
	err := r.fields(n, map[string]read{"node": r.text(&f.Node), "path": r.text(&f.Path),
		"type": r.text(&f.Type), "mode": r.text(&mode), "text": r.bytes(&f.Bytes),
		"b64": r.b64(&f.Bytes)})
	if err != nil {
		return err
	}
	bits, err := strconv.ParseUint(mode, 8, 12)
	switch {
	case !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path:
		return r.wrong(n, "path %q: want an absolute path without . and ..", f.Path)
	case !slices.Contains([]string{"file", "dir", "missing"}, f.Type):
		return r.wrong(n, "type %q: want file, dir or missing", f.Type)
	case f.Type != "file" && f.Bytes != nil:
		return r.wrong(n, "a %s path holds no text", f.Type)
	case err != nil:
		return r.wrong(n, "mode %q: want octal permissions in quotes, such as \"0644\"", mode)
	}
	f.Mode = uint32(bits)
	a.Files = append(a.Files, f)
	return r.once(n, "file", f.key())
}

func (r *reader) request(n *yaml.Node, a *Answers) error {
	q, headers := Request{Method: "GET", Status: 200, Headers: [][2]string{}}, []string{}
	err := r.fields(n, map[string]read{"method": r.text(&q.Method), "url": r.text(&q.URL),
		"status": r.number(&q.Status, 100, 599), "text": r.bytes(&q.Body), "b64": r.b64(&q.Body),
		"headers": r.each(func(n *yaml.Node) error {
			headers = headers[:0]
			if err := r.texts(&headers)(n); err != nil {
				return err
			}
			if len(headers) != 2 {
				return r.wrong(n, "a header is a list of its name and its value")
			}
			q.Headers = append(q.Headers, [2]string(headers))
			return nil
		})})
	if err != nil {
		return err
	}
	if q.URL == "" {
		return r.wrong(n, "a request needs its url")
	}
	a.Requests = append(a.Requests, q)
	return r.once(n, "request", q.key())
}

func (r *reader) ask(n *yaml.Node, a *Answers) error {
	x := Ask{Action: "accept"}
	err := r.fields(n, map[string]read{"key": r.text(&x.Key), "action": r.text(&x.Action),
		"content": func(n *yaml.Node) error {
			var v map[string]any
			if err := n.Decode(&v); err != nil {
				return r.wrong(n, "want a map of answers: %v", err)
			}
			var err error
			x.Content, err = json.Marshal(v)
			return err
		}})
	switch {
	case err != nil:
		return err
	case x.Key == "":
		return r.wrong(n, "an ask needs its key")
	case !slices.Contains([]string{"accept", "decline", "cancel"}, x.Action):
		return r.wrong(n, "action %q: want accept, decline or cancel", x.Action)
	}
	if x.Action == "accept" && x.Content == nil {
		x.Content = []byte("{}")
	}
	a.Asks = append(a.Asks, x)
	return r.once(n, "ask", x.Key)
}

func (r *reader) local(n *yaml.Node, a *Answers) error {
	name, data := "", []byte(nil)
	err := r.fields(n, map[string]read{"path": r.text(&name), "text": r.bytes(&data),
		"b64": r.b64(&data)})
	if err == nil && name == "" {
		err = errors.New("needs its path")
	}
	if err != nil {
		return err
	}
	a.Local[name] = data
	return r.once(n, "local file", name)
}

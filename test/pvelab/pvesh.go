package pvelab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

var pveshVerbs = []string{"create", "delete", "get", "help", "ls", "set", "usage"}

// formatParams are the options that pvesh itself takes, wherever they stand.
var formatParams = []param{
	opt("output-format", "string").enum("text json json-pretty yaml"),
	opt("human-readable",
		"boolean"), opt("noborder", "boolean"), opt("noheader", "boolean"), opt("quiet", "boolean"),
}

// pveshCall is one parsed command line of pvesh.
type pveshCall struct {
	verb, path string
	args       []string // what is left for the method
	format     map[string]string
	noproxy    bool
}

func (x *pveshCall) usage() string {
	return "pvesh " + x.verb + " <api_path> [OPTIONS] [FORMAT_OPTIONS]"
}

// parsePvesh takes the verb (any unique prefix), the path and the format options out of the words.
func parsePvesh(args []string) (x *pveshCall, why string, err error) {
	x = &pveshCall{format: map[string]string{"output-format": "text"}}
	if len(args) > 0 && args[0] == "--noproxy" {
		x.noproxy, args = true, args[1:]
	}
	if len(args) == 0 {
		return x, "no command specified", nil
	}
	var hits []string
	for _, v := range pveshVerbs {
		if v == args[0] {
			hits = []string{v}
			break
		}
		if strings.HasPrefix(v, args[0]) {
			hits = append(hits, v)
		}
	}
	if len(hits) != 1 {
		word := "unknown"
		if len(hits) > 1 {
			word = "incomplete"
		}
		return x, word + " command 'pvesh " + args[0] + "'", nil
	}
	x.verb, args = hits[0], args[1:]
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		if a == "--" {
			x.args = append(x.args, args...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			if x.path == "" {
				x.path = a
			} else {
				x.args = append(x.args, a)
			}
			continue
		}
		name, _, has := strings.Cut(strings.TrimPrefix(a[1:], "-"), "=")
		p, miss := matchOption(strings.ToLower(name), formatParams)
		if miss != "" || len(name) < 3 {
			// the method's; its value too, so that it is not taken for the path
			x.args = append(x.args, a)
			if !has && len(args) > 0 && (args[0] == "" || args[0][0] != '-') && x.path != "" {
				x.args, args = append(x.args, args[0]), args[1:]
			}
			continue
		}
		words := []string{a}
		if !has && len(args) > 0 && (p.Type != "boolean" || args[0] == "0" || args[0] == "1") {
			words, args = append(words, args[0]), args[1:]
		}
		opts, _, err := getopt(words, formatParams)
		if err != nil {
			return x, "", err
		}
		x.format[p.Name] = opts[p.Name][0]
	}
	if x.path == "" && x.verb != "help" {
		return x, "", &badRequest{msg: "not enough arguments"}
	}
	if bad := formatParams[0].check(x.format["output-format"]); bad != "" {
		return x, "", verification(map[string]string{"output-format": bad})
	}
	return x, "", nil
}

func pathParts(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

func runPvesh(ctx context.Context, p *proc) int {
	x, why, err := parsePvesh(p.args[1:])
	if why != "" {
		fmt.Fprintf(p.err, "ERROR: %s\nUSAGE: pvesh <COMMAND> [ARGS] [OPTIONS]\n\n", why)
		for _, v := range pveshVerbs {
			y := pveshCall{verb: v}
			fmt.Fprintf(p.err, "       %s\n", y.usage())
		}
		return 255
	}
	if err == nil {
		err = x.run(ctx, p)
	}
	if err == nil {
		return 0
	}
	return report(p.err, err, x.usage())
}

func (x *pveshCall) run(ctx context.Context, p *proc) error {
	parts := pathParts(x.path)
	switch x.verb {
	case "help":
		return nil
	case "ls":
		return x.ls(p, parts)
	case "usage":
		return x.explain(p, parts)
	}
	r, vals := match(p.lab.api(), parts)
	if r == nil || r.methods[x.verb] == nil {
		return die(1, "No '%s' handler defined for '/%s'", x.verb, strings.TrimPrefix(x.path, "/"))
	}
	m := r.methods[x.verb]
	if node := vals["node"]; m.Proxy && !x.noproxy && node != "" && node != p.node &&
		node != "localhost" {
		v, err := x.proxy(ctx, p, node)
		if err != nil {
			return err
		}
		return x.print(p, m, v)
	}
	c, err := x.bind(p, m, vals)
	if err != nil {
		return err
	}
	if m.Run == nil {
		return die(255, "pvelab does not simulate '%s %s'", x.verb, x.path)
	}
	v, err := m.Run(ctx, c)
	var t *taskFailed
	if errors.As(err, &t) { // a failed task is no failure of pvesh (facts 1.3)
		fmt.Fprintln(p.err, t.msg)
		v, err = t.upid, nil
	}
	if err != nil {
		return err
	}
	return x.print(p, m, v)
}

func (x *pveshCall) bind(p *proc, m *method, pathVals map[string]string) (*call, error) {
	vals, _, err := bind(x.args, m.Params, nil, pathVals)
	if err != nil {
		return nil, err
	}
	if bad := validate(m.Params, vals); len(bad) > 0 {
		return nil, verification(bad)
	}
	c := &call{lab: p.lab, p: p, node: p.node, vals: vals}
	if vals["node"] != "" && m.Proxy {
		c.node = strings.TrimSuffix(vals["node"], "\n")
		if c.node == "localhost" {
			c.node = p.node
		}
	}
	return c, nil
}

// proxy runs the same call on another node by ssh. The name is looked up wherever it leads, and the
// path reaches the other node's shell as it is: only the options are quoted (facts 1.7 and 1.8).
func (x *pveshCall) proxy(ctx context.Context, p *proc, node string) (any, error) {
	var target *Node
	foreign, known := "", false
	err := p.lab.db.view(func(s *State) {
		if n := s.node(node); n != nil {
			cp := *n
			target = &cp
		}
		foreign, known = s.Foreign[node]
	})
	if err != nil {
		return nil, err
	}
	if target == nil && !known {
		if !nodeRE.MatchString(strings.ReplaceAll(node, "_", "")) {
			return nil, die(
				255,
				"hostname lookup '%s' failed - failed to get address info for: %s: Name or "+
					"service not known",
				node,
				node,
			)
		}
		return nil, die(
			11,
			"hostname lookup '%s' failed - failed to get address info for: %s: Temporary failure "+
				"in name resolution",
			node,
			node,
		)
	}
	text := "--noproxy " + x.verb + " " + x.path + " --output-format json"
	for _, a := range x.args {
		text += " " + shellQuote(a)
	}
	if target == nil {
		p.lab.effects.add(
			Effect{Node: p.node, Kind: "egress", Op: "ssh", Target: node, Text: "pvesh " + text},
		)
		return []any{foreign, text}, nil
	}
	var out bytes.Buffer
	errs := &proxyErrors{to: p.err}
	code := 255
	if target.Down {
		fmt.Fprintf(errs, "ssh: connect to host %s port 22: No route to host\n", target.IP)
	} else if t := p.lab.nodeTree(target.Name); t != nil {
		q := *p
		q.node, q.tree, q.dir, q.in, q.top = target.Name, t, "/root", nil, true
		q.env = loginEnv(nil)
		q.sess = &session{text: "pvesh " + text, via: p.node}
		q.out, q.err = &out, errs
		code = q.shell(ctx, "bash", "pvesh "+text, nil)
		p.lab.finish(q.sess)
	}
	if code != 0 {
		if code == 255 && strings.Contains(x.path, "$(") {
			code = 2 // recorded so; errno is what Perl left in it
		}
		return nil, die(code, "proxy handler failed: %s", errs.last)
	}
	if errs.last != "" {
		fmt.Fprintln(p.err, errs.last)
	}
	// lines are joined, so a worker's words stick to the UPID
	text = strings.ReplaceAll(out.String(), "\n", "")
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text, nil
	}
	if text == "" {
		return nil, nil
	}
	return v, nil
}

// proxyErrors passes lines on one behind, so that the last becomes the error; empty lines are lost,
// as in the real one.
type proxyErrors struct {
	to   io.Writer
	part []byte
	last string
}

func (e *proxyErrors) Write(b []byte) (int, error) {
	e.part = append(e.part, b...)
	for {
		i := bytes.IndexByte(e.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		if line := string(e.part[:i]); line != "" {
			if e.last != "" {
				fmt.Fprintln(e.to, e.last)
			}
			e.last = line
		}
		e.part = e.part[i+1:]
	}
}

// shellQuote is String::ShellQuote: bare where that is safe.
func shellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("!%+,-./:@^_=", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func encode(v any, indent string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return b.String()
}

func (x *pveshCall) print(p *proc, m *method, v any) error {
	if v == nil || x.format["quiet"] == "1" {
		return nil
	}
	var err error
	switch x.format["output-format"] {
	case "json":
		_, err = io.WriteString(p.out, encode(v, ""))
	case "json-pretty":
		_, err = io.WriteString(p.out, encode(v, "   "))
	case "yaml":
		_, err = io.WriteString(p.out, yaml(v, ""))
	default:
		_, err = io.WriteString(p.out, textOf(m, v))
	}
	return err
}

// api is the API tree, built once for each lab.
func (l *Lab) api() []route { return l.routes }

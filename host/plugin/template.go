package plugin

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

var (
	variable = regexp.MustCompile(`\{[a-z][a-z0-9_]{0,31}\}`)
	// what is written the same in every URI
	valueForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,128}$`)
)

// template is the URI of a resource that has arguments, such as docs://{section}/{page}. Texts has
// one entry more than names.
type template struct{ texts, names []string }

// parseTemplate makes sure that a URI can be read in one way only: between two arguments stands
// what neither can hold.
func parseTemplate(uri string) (t template, err error) {
	if !strings.ContainsAny(uri, "{}") {
		return template{texts: []string{uri}}, nil
	}
	at := 0
	for _, m := range variable.FindAllStringIndex(uri, -1) {
		t.texts, t.names = append(t.texts, uri[at:m[0]]), append(t.names, uri[m[0]+1:m[1]-1])
		at = m[1]
	}
	t.texts = append(t.texts, uri[at:])
	for i, text := range t.texts {
		switch {
		case strings.ContainsAny(text, "{}%"):
			return t, fmt.Errorf(
				"uri %q: an argument is written {name}, of a-z 0-9 _, and nothing is escaped", uri)
		case i == 0 && !strings.Contains(text, "://"):
			return t, fmt.Errorf("uri %q: its scheme can be no argument", uri)
		case i > 0 && (i < len(t.names) || text != "") && (text == "" ||
			valueForm.MatchString(text[:1])):
			return t, fmt.Errorf(
				"uri %q: what follows {%s} must begin with a character such as / or a colon", uri,
				t.names[i-1])
		}
	}
	if len(sorted(t.names)) != len(t.names) {
		return t, fmt.Errorf("uri %q: an argument is there twice", uri)
	}
	return t, nil
}

// match gives the arguments of a URI, in the only way in which it can be read; ok is false for one
// that another template must have made.
func (t template) match(uri string) (args map[string]string, ok bool) {
	args = map[string]string{}
	rest, ok := strings.CutPrefix(uri, t.texts[0])
	for i, name := range t.names {
		n := strings.IndexFunc(rest, func(r rune) bool { return !valueForm.MatchString(string(r)) })
		if n < 0 {
			n = len(rest)
		}
		args[name], rest = rest[:n], rest[n:]
		if !ok || !valueForm.MatchString(args[name]) || strings.Trim(args[name], ".") == "" {
			return nil, false
		}
		rest, ok = strings.CutPrefix(rest, t.texts[i+1])
	}
	return args, ok && rest == ""
}

// expand writes the URI of arguments that match gave.
func (t template) expand(args map[string]any) string {
	var b strings.Builder
	for i, text := range t.texts {
		b.WriteString(text)
		if i < len(t.names) {
			fmt.Fprint(&b, args[t.names[i]])
		}
	}
	return b.String()
}

// fillTexts is for prompts and resources, whose arguments come as text: they can be strings and
// integers.
func fillTexts(t *terms.Tool) error {
	numbers := map[string]bool{}
	for _, p := range t.Params {
		if p.Type != "string" && p.Type != "integer" {
			return fmt.Errorf("argument %s of a %s must have the type string or integer", p.Name,
				t.Kind)
		}
		numbers[p.Name] = p.Type == "integer"
	}
	t.Texts = func(given map[string]string) map[string]any {
		args := make(map[string]any, len(given))
		for k, v := range given {
			args[k] = v
			n, err := strconv.ParseInt(v, 10, 64)
			if numbers[k] && err == nil && strconv.FormatInt(n, 10) == v {
				args[k] = n
			}
		}
		return args
	}
	return nil
}

// fillTemplate is for resources: the arguments in their URI are those of their schema, all of them,
// and each is required.
func fillTemplate(t *terms.Tool) error {
	form, err := parseTemplate(t.URI)
	if err != nil {
		return err
	}
	for _, name := range form.names {
		required := func(p terms.Param) bool { return p.Name == name && p.Required }
		if !slices.ContainsFunc(t.Params, required) {
			return fmt.Errorf("uri %q: {%s} is not among the required properties of input_schema",
				t.URI,
				name)
		}
	}
	if len(t.Params) != len(form.names) {
		return errors.New("input_schema: a resource has the arguments of its uri and no others")
	}
	if len(form.names) > 0 {
		t.Match, t.Expand = form.match, form.expand
	}
	return nil
}

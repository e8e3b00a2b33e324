package load

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

// forms say in words what the patterns of schemas/site.schema want.
var forms = map[string]string{
	`^[a-z0-9][a-z0-9:_.@-]{0,199}$`: `the name of a unit in lower case, without .service`,
	`^[1-9][0-9]{2,8}$`: `one guest's number as text, such as "105": every guest has an entry of ` +
		`its own`,
	`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`:      `the name of a node: letters, digits, -`,
	`^(\*|[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)$`: `the name of a node, or "*" for all`,
	`^(\*|((resource|prompt):)?[^:*]+)$`: `the name of a tool as it is, without tool: before it, ` +
		`resource:NAME, prompt:NAME, or "*" for all`,
	`^([1-9][0-9]{2,8})$`: `a guest's number as text, such as "105": roles know guests by number ` +
		`alone, since whoever can write a tag or a name would gain power by it`,
	`^([a-z0-9][a-z0-9:_.@-]{0,199})$`: `the name of a unit in lower case, such as nginx.service`,
	`^([01][0-9]|2[0-3]):[0-5][0-9]$`:  `a time of the day in UTC, such as "09:00"`,
	`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`: `a time of the day in UTC, such as "17:00", or ` +
		`"24:00"`,
	`^[^*?]*$`: `a folder or a file: names with * or ? are taken as they stand`,
	`^[^*?]+$`: `the whole name of an argument: * and ? are taken as they stand`,
}

// keysOf say what the keys below a path of the site's data are.
var keysOf = map[string]string{
	"tiers":           `a key here is kind:name, such as "tool:list_nodes": green`,
	"protected.vmids": `a key here is one guest's number, such as "103": {reason: keep it}`,
	"hours":           "hours are days, from and to, in UTC all year",
	"protected.nodes": `a key here is the name of a node, such as pve1: {reason: keep it}`,
}

// kinds say how a value of a type of JSON is written.
var kinds = map[string]string{"array": `a list, such as [a, b]`,
	"object": `a map, such as {key: value}`, "integer": "a whole number, without quotes",
	"boolean": "true or false, without quotes", "string": "text, in quotes"}

var (
	mistyped = regexp.MustCompile(`^Invalid type\. Expected: (\w+), given: (\w+)$`)
	noChoice = regexp.MustCompile(`must be one of the following: (.*)$`)
	noForm   = regexp.MustCompile(`^Does not match pattern '(.*)'$`)
	tooShort = regexp.MustCompile(`^String length must be greater than or equal to (\d+)$`)
	tooFew   = regexp.MustCompile(`^Array must have at least (\d+) items$`)
	noKey    = regexp.MustCompile(`^(\w+) is required$`)
)

// plainly says in words what the schema's library says about a value, and what to write instead.
// meant suggests a name that is nearly one of some.
func plainly(value any, desc string, meant func(string, []string) string) string {
	if m := mistyped.FindStringSubmatch(desc); m != nil && kinds[m[1]] != "" {
		return fmt.Sprintf("this is %s: write %s", strings.SplitN(kinds[m[2]]+m[2], ",", 2)[0],
			kinds[m[1]])
	}
	if m := noChoice.FindStringSubmatch(desc); m != nil {
		all := strings.Split(strings.ReplaceAll(m[1], `"`, ""), ", ")
		text, _ := value.(string)
		return fmt.Sprintf("%v is none of %s%s", value, strings.Join(all, ", "),
			meant(text, append(all, strings.ToLower(text))))
	}
	if m := noForm.FindStringSubmatch(desc); m != nil && forms[m[1]] != "" {
		return fmt.Sprintf("%q is not %s", value, forms[m[1]])
	}
	if m := tooShort.FindStringSubmatch(desc); m != nil {
		return fmt.Sprintf("%q is too short: write at least %s characters", value, m[1])
	}
	if m := tooFew.FindStringSubmatch(desc); m != nil {
		return "the list is empty: write at least " + m[1]
	}
	if m := noKey.FindStringSubmatch(desc); m != nil {
		return fmt.Sprintf("the key %q is missing: add \"%s: …\"", m[1], m[1])
	}
	return desc
}

// unknownKey says which keys there are in place of one that the schema does not have.
func unknownKey(field, name string, tools []*terms.Tool) string {
	text := fmt.Sprintf("there is no key %q here", name)
	if field == "tiers" {
		plain := name[strings.Index(name, ":")+1:]
		for _, kind := range []string{"tool", "resource", "prompt"} {
			for _, t := range tools {
				if t.Kind == kind && t.Name == plain {
					return text + fmt.Sprintf("; did you mean %q?", kind+":"+plain)
				}
			}
		}
	}
	if strings.HasPrefix(field, "roles.") && strings.HasSuffix(field, ".hours") {
		field = "hours"
	}
	if says := keysOf[field]; says != "" {
		text += ": " + says
	}
	return text
}

// valueAt returns what stands at a path as the schema's library writes it, nil where that cannot be
// told: keys can hold the dots that part them.
func valueAt(v any, field string) any {
	for field != "" {
		switch at := v.(type) {
		case map[string]any:
			name := ""
			for key := range at {
				if (field == key || strings.HasPrefix(field, key+".")) && len(key) > len(name) {
					name = key
				}
			}
			v, field = at[name], strings.TrimPrefix(strings.TrimPrefix(field, name), ".")
			if name == "" {
				return nil
			}
		case []any:
			number, rest, _ := strings.Cut(field, ".")
			i := 0
			if _, err := fmt.Sscan(number, &i); err != nil || i < 0 || i >= len(at) {
				return nil
			}
			v, field = at[i], rest
		default:
			return nil
		}
	}
	return v
}

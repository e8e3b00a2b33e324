package pvelab

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// param is one parameter of an API method or command, as the real JSON schema describes it.
type param struct {
	Name     string
	Type     string // string, integer, boolean, number, array
	Format   string // key of formats, or a typetext for usage only
	Optional bool
	Enum     []string
	Min, Max string // integers, as the error text shows them; empty for none
	MaxLen   int
	Default  string
	Desc     string
}

// badRequest is a refusal by the option parser or the schema: exit 255 with a usage line.
type badRequest struct {
	warn   []string // lines that come before
	msg    string
	fields map[string]string
	code   int // exit code
}

func (e *badRequest) Error() string {
	s := strings.Join(append(slices.Clone(e.warn), "400 "+e.msg), "\n") + "\n"
	for _, k := range slices.Sorted(maps.Keys(e.fields)) {
		s += k + ": " + e.fields[k] + "\n"
	}
	return s
}

func verification(fields map[string]string) error {
	code := 255
	for _, why := range fields {
		if strings.HasPrefix(why, "invalid format - format error") {
			code = 2 // left behind by the parser of property strings
		}
	}
	return &badRequest{msg: "Parameter verification failed.", fields: fields, code: code}
}

// getopt reads options as Perl's Getopt::Long does with the prefixes "--" and "-": options may
// stand anywhere, any unique prefix and any letter case names one, "--" ends them, a boolean's
// value is optional and a string takes the next word.
func getopt(args []string, ps []param) (opts map[string][]string, rest []string, err error) {
	opts = map[string][]string{}
	var warn []string
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		if a == "--" {
			rest = append(rest, args...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(a[1:], "-"), "=")
		name = strings.ToLower(name)
		p, why := matchOption(name, ps)
		if why != "" {
			warn = append(warn, why)
			continue
		}
		boolean := p.Type == "boolean"
		switch {
		case hasValue && value != "", hasValue && boolean:
		case boolean && (len(args) == 0 || (len(args[0]) > 1 && args[0][0] == '-')):
			value = ""
		case len(args) == 0 || hasValue:
			warn = append(warn, fmt.Sprintf("Option %s requires an argument", name))
			continue
		default:
			value, args = args[0], args[1:]
		}
		opts[p.Name] = append(opts[p.Name], value)
	}
	if warn != nil {
		return nil, nil, &badRequest{warn: warn, msg: "unable to parse option"}
	}
	return opts, rest, nil
}

func matchOption(name string, ps []param) (p param, why string) {
	var hits []string
	for _, q := range ps {
		low := strings.ToLower(q.Name)
		if low == name {
			return q, ""
		}
		if strings.HasPrefix(low, name) {
			hits = append(hits, low)
			p = q
		}
	}
	switch slices.Sort(hits); len(hits) {
	case 0:
		return param{}, "Unknown option: " + name
	case 1:
		return p, ""
	}
	return param{}, fmt.Sprintf("Option %s is ambiguous (%s)", name, strings.Join(hits, ", "))
}

// bind gives the words of a command line to the parameters: options by name, then the rest to
// argNames in order. Parameters in fixed are no options. "extra-args" as the last name takes all
// that is left.
func bind(args []string, ps []param, argNames []string,
	fixed map[string]string) (vals map[string]string, extra []string, err error) {
	var open []param
	byName := map[string]param{}
	for _, p := range ps {
		byName[p.Name] = p
		if _, ok := fixed[p.Name]; !ok {
			open = append(open, p)
		}
	}
	opts, rest, err := getopt(args, open)
	if err != nil {
		return nil, nil, err
	}
	vals = maps.Clone(fixed)
	if vals == nil {
		vals = map[string]string{}
	}
	for k, vs := range opts {
		if vals[k] = vs[len(vs)-1]; byName[k].Type == "array" ||
			strings.HasSuffix(byName[k].Format, "-list") {
			vals[k] = strings.Join(vs, ",")
		}
	}
	for _, name := range argNames {
		if name == "extra-args" {
			extra, rest = rest, nil
			break
		}
		if len(rest) == 0 {
			if !byName[name].Optional {
				return nil, nil, &badRequest{msg: "not enough arguments"}
			}
			continue
		}
		vals[name], rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		return nil, nil, &badRequest{msg: "too many arguments"}
	}
	for k, v := range vals {
		if byName[k].Type != "boolean" {
			continue
		}
		switch strings.ToLower(v) {
		case "", "1", "on", "yes", "true":
			vals[k] = "1"
		case "0", "off", "no", "false":
			vals[k] = "0"
		default:
			return nil, nil, &badRequest{msg: "unable to parse boolean option"}
		}
	}
	return vals, extra, nil
}

// Perl's $ also matches before a last newline: a trap that the lab keeps.
var (
	integerRE   = regexp.MustCompile(`^[+-]?\d+\n?$`)
	numberRE    = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\n?$`)
	vmidRE      = regexp.MustCompile(`^[1-9][0-9]{2,8}\n?$`)
	nodeRE      = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\n?$`)
	configIDRE  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]+\n?$`)
	storageIDRE = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]\n?$`)
	tagRE       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_+.-]*\n?$`)
	macRE       = regexp.MustCompile(
		`^[a-fA-F0-9][02468aceACE][:](?:[a-fA-F0-9]{2}:){4}[a-fA-F0-9]{2}\n?$`,
	)
	upidRE = regexp.MustCompile(
		`^UPID:([a-zA-Z0-9-]+):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8,9}):([0-9A-Fa-f]{8}):` +
			`([^:\s]+):([^:\s]*):([^:\s]+):\n?$`,
	)
)

// formats answers what is wrong with a value; the empty string means nothing.
var formats = map[string]func(string) string{
	"pve-vmid": func(v string) string {
		if !vmidRE.MatchString(v) {
			return "value does not look like a valid VM ID\n"
		}
		return ""
	},
	"pve-node": func(v string) string {
		if !nodeRE.MatchString(v) {
			return "value does not look like a valid node name\n"
		}
		return ""
	},
	"pve-configid": func(v string) string {
		if !configIDRE.MatchString(v) {
			return "invalid configuration ID '" + v + "'\n"
		}
		return ""
	},
	"pve-storage-id": func(v string) string {
		switch {
		case len(v) < 2:
			return "storage ID '" + v + "' cannot be shorter than 2 characters\n"
		case !storageIDRE.MatchString(v):
			return "storage ID '" + v + "' contains illegal characters\n"
		}
		return ""
	},
	"pve-tag-list": func(v string) string {
		for _, t := range splitList(v) {
			if !tagRE.MatchString(t) {
				return "invalid characters in tag\n"
			}
		}
		return ""
	},
	"pve-node-wakeonlan": func(v string) string {
		mac := strings.TrimPrefix(v, "mac=")
		if !macRE.MatchString(mac) {
			return "format error\nwakeonlan.mac: invalid format - value does not look like a " +
				"valid unicast MAC address\n\n"
		}
		return ""
	},
}

func splitList(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(";, \t\x00", r) })
}

// validate checks values against the schema and answers one error text for each bad field.
func validate(ps []param, vals map[string]string) map[string]string {
	bad := map[string]string{}
	for _, p := range ps {
		v, ok := vals[p.Name]
		if !ok {
			if !p.Optional {
				bad[p.Name] = "property is missing and it is not optional"
			}
			continue
		}
		if why := p.check(v); why != "" {
			bad[p.Name] = why
		}
	}
	return bad
}

func (p param) check(v string) string {
	switch {
	case p.Type == "integer" && !integerRE.MatchString(v),
		p.Type == "number" && !numberRE.MatchString(v):
		return fmt.Sprintf("type check ('%s') failed - got '%s'", p.Type, v)
	case p.Enum != nil:
		if !slices.Contains(p.Enum, v) {
			return fmt.Sprintf("value '%s' does not have a value in the enumeration '%s'", v,
				strings.Join(p.Enum, ", "))
		}
	case p.MaxLen > 0 && len(v) > p.MaxLen:
		return fmt.Sprintf("value may only be %d characters long", p.MaxLen)
	}
	if f := formats[p.Format]; f != nil {
		if why := f(v); why != "" {
			return "invalid format - " + why
		}
	}
	if p.Type == "integer" || p.Type == "number" {
		n, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if lim, err := strconv.ParseFloat(p.Min, 64); err == nil && n < lim {
			return "value must have a minimum value of " + p.Min
		}
		if lim, err := strconv.ParseFloat(p.Max, 64); err == nil && n > lim {
			return "value must have a maximum value of " + p.Max
		}
	}
	return ""
}

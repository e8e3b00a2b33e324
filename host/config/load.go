package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/pelletier/go-toml/v2"
)

// loader decodes one configuration file.
type loader struct {
	file    string
	lines   map[string]int // of keys, by their path: remote.nodes[0].host
	tables  map[string]bool
	secrets []string
	// variables are the names of those that the values of keys are from
	variables map[string]string
}

// read decodes the TOML in data, with the CAPONIER_ variables of environ over it, into dst, which
// is a struct of koanf tags. Errors name the file, the line and the key, or the variable.
func (l *loader) read(data []byte, environ []string, dst reflect.Value) error {
	raw := map[string]any{}
	if err := toml.Unmarshal(data, &raw); err != nil {
		if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
			row, column := at.Position()
			return &Error{l.file, row, true, fmt.Errorf("column %d: %w", column, err)}
		}
		return &Error{File: l.file, Err: err}
	}
	l.lines, l.tables = linesOf(data)
	l.variables = map[string]string{}
	if err := l.environment(environ, dst.Type(), raw); err != nil {
		return err
	}
	return l.decode(dst, raw, "", "")
}

// place returns the line of a key, or of the table that it is in, and the key of that line.
func (l *loader) place(key string) (of string, line int) {
	for of = key; of != ""; of = of[:max(strings.LastIndexAny(of, ".["), 0)] {
		if line := l.lines[of]; line > 0 {
			return of, line
		}
	}
	return "", 0
}

// errorf is an error about a key.
func (l *loader) errorf(key, format string, args ...any) error {
	of, line := l.place(key)
	return &Error{l.file, line, of == key && !l.tables[of], fmt.Errorf(format, args...)}
}

// decode sets dst to the value v of the key at. The tag is that of dst's field; with single:"true",
// a text is a list of one.
func (l *loader) decode(dst reflect.Value, v any, at string, tag reflect.StructTag) error {
	wrong := func(want string) error {
		return l.errorf(at, "%s: want %s, got %s", at, want, typeOf(v))
	}
	if dst.Type() == reflect.TypeFor[time.Duration]() {
		return l.duration(dst, v, at)
	}
	switch dst.Kind() {
	case reflect.Struct:
		table, ok := v.(map[string]any)
		if !ok {
			return wrong("a table")
		}
		return l.table(dst, table, at)
	case reflect.Slice:
		list, ok := v.([]any)
		if one, text := v.(string); text && tag.Get("single") == "true" {
			list, ok = []any{one}, true
		}
		if !ok {
			return wrong("a list")
		}
		dst.Set(reflect.MakeSlice(dst.Type(), len(list), len(list)))
		for i, e := range list {
			if err := l.decode(dst.Index(i), e, fmt.Sprintf("%s[%d]", at, i), tag); err != nil {
				return err
			}
		}
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return wrong("a text")
		}
		return l.text(dst, s, at, tag)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			return wrong("true or false")
		}
		dst.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, ok := v.(int64)
		if !ok || dst.OverflowInt(n) {
			return wrong("an integer")
		}
		dst.SetInt(n)
	default:
		return fmt.Errorf("%s: a key of type %s cannot be decoded", at, dst.Type())
	}
	return nil
}

// table decodes the keys of a table, of which each must be a field of dst.
func (l *loader) table(dst reflect.Value, table map[string]any, at string) error {
	for _, k := range slices.Sorted(maps.Keys(table)) {
		key := strings.TrimPrefix(at+"."+k, ".")
		f, found := field(dst.Type(), k)
		why := gone[index.ReplaceAllString(key, "")]
		if !found && why != "" && l.lines[key] == 0 { // inside an inline table
			return l.errorf(key, "%s is a key of an older version (%s): change it by hand", key,
				why)
		} else if !found && why != "" {
			return l.errorf(key, "%s is a key of an older version (%s): caponier config migrate "+
				"shows what to change", key, why)
		} else if !found {
			return l.errorf(key, "unknown key %s (known here: %s)", key,
				strings.Join(keys(dst.Type()), ", "))
		}
		if err := l.decode(dst.FieldByIndex(f.Index), table[k], key, f.Tag); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) duration(dst reflect.Value, v any, at string) error {
	switch n := v.(type) {
	case string:
		d, err := time.ParseDuration(n)
		if err == nil {
			dst.SetInt(int64(d))
			return nil
		}
	case int64, float64:
		return l.errorf(at, `%s: %v has no unit: write "%vs" for seconds`, at, n, n)
	}
	return l.errorf(at, `%s: want a duration such as "30s", "5m" or "1h", got %s`, at, typeOf(v))
}

var reference = regexp.MustCompile(`^\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}$`)

// text sets a string. It replaces ${VAR} and ${file:PATH} in a field that is tagged secret:"true"
// and refuses them elsewhere, and makes the value of one that is tagged path:"true" absolute.
func (l *loader) text(dst reflect.Value, s, at string, tag reflect.StructTag) error {
	secret, dir := tag.Get("secret") == "true", filepath.Dir(l.file)
	m := reference.FindStringSubmatch(s)
	switch {
	case strings.Contains(s, "${") && !secret:
		return l.errorf(at, "%s: ${…} is only for secrets; write the value", at)
	case strings.Contains(s, "${") && m == nil:
		return l.errorf(at, "%s: a reference must be the whole value, ${VAR} or ${file:PATH}", at)
	case m != nil && m[1] != "":
		data, err := trusted.Read(absolute(dir, m[1]), maxFile)
		if err != nil {
			return l.errorf(at, "%s: %w", at, err)
		}
		s = strings.TrimRight(string(data), "\r\n")
	case m != nil:
		if s = os.Getenv(m[2]); s == "" {
			return l.errorf(at, "%s: environment variable %s is not set", at, m[2])
		}
	}
	if secret && s != "" {
		l.secrets = append(l.secrets, s)
	}
	if tag.Get("path") == "true" && s != "" {
		s = absolute(dir, s)
	}
	dst.SetString(s)
	return nil
}

func absolute(dir, p string) string {
	if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(p, "~/") {
		p = filepath.Join(home, p[2:])
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(dir, p)
	}
	return p
}

// environment sets the keys that CAPONIER_ variables name: CAPONIER_REMOTE_WORKSPACE is
// remote.workspace. Lists and tables cannot be set this way.
func (l *loader) environment(environ []string, t reflect.Type, raw map[string]any) error {
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, "CAPONIER_")
		if name == "I_ACCEPT_RISKS" && value != "" {
			raw["accept_risks"] = value == "true"
		}
		if !ok || rest == "CONFIG" || rest == "PROFILE" {
			continue
		}
		path := strings.SplitN(strings.ToLower(rest), "_", 2)
		if _, top := field(t, strings.ToLower(rest)); top {
			path = []string{strings.ToLower(rest)}
		}
		at, into := t, raw
		for i, part := range path {
			f, found := field(at, part)
			if !found {
				return fmt.Errorf("environment variable %s: the configuration has no key %s", name,
					strings.Join(path, "."))
			}
			if at = f.Type; i < len(path)-1 {
				table, _ := into[part].(map[string]any)
				if table == nil {
					table = map[string]any{}
				}
				into[part], into = table, table
			}
		}
		v, err := scalar(at, value)
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
		into[path[len(path)-1]] = v
		l.variables[strings.Join(path, ".")] = name
	}
	return nil
}

func scalar(t reflect.Type, value string) (any, error) {
	switch t.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("want true or false, got %q", value)
		}
		return b, nil
	case reflect.Int, reflect.Int64:
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return n, nil
		}
		return value, nil // a duration, or an error of decode
	case reflect.String:
		return value, nil
	}
	return nil, errors.New("it is a list or a table; set it in the file")
}

// field returns the field of the struct t with this key. The keys of an embedded struct stand in
// the table of the struct around it.
func field(t reflect.Type, key string) (reflect.StructField, bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	for _, f := range reflect.VisibleFields(t) {
		if keyOf(f) == key && key != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func keys(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if k := keyOf(f); k != "" {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	return names
}

func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("koanf"), ",")
	return strings.TrimPrefix(name, "-")
}

func typeOf(v any) string {
	switch v := v.(type) {
	case string:
		return cmp.Or(strconv.Quote(v), "a text")
	case map[string]any:
		return "a table"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

// Error is an error in the configuration. It is about a line of the file when Line is not 0, and
// then Own reports whether that line is the key's own, not that of the table around it.
type Error struct {
	File string
	Line int
	Own  bool
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("configuration %s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("configuration %s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// maxFile bounds a configuration file, and a file that a secret is read from, in bytes.
const maxFile = 1 << 20

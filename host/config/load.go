package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// load reads the TOML file at path and CAPONIER_ variables over it into dst, a pointer to a struct
// of koanf tags. Every error names the file, or the variable, and the key.
func load(path string, environ []string, dst any) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	if othersWrite(info) {
		return fmt.Errorf(
			"configuration %s can be written by other users (mode %04o): chmod go-w %s",
			path,
			info.Mode().Perm(),
			path,
		)
	}
	if info.Size() > maxFile {
		return fmt.Errorf("configuration %s has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), toml.Parser()); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	fromEnv, err := environment(environ, reflect.TypeOf(dst).Elem())
	if err != nil {
		return err
	}
	if err := k.Load(confmap.Provider(fromEnv, "."), nil); err != nil {
		return fmt.Errorf("configuration from the environment: %w", err)
	}
	raw := k.Raw()
	if err := known(path, "", raw, reflect.TypeOf(dst).Elem()); err != nil {
		return err
	}
	hooks := mapstructure.ComposeDecodeHookFunc(
		mapstructure.StringToTimeDurationHookFunc(),
		mapstructure.TextUnmarshallerHookFunc(),
	)
	dec, err := mapstructure.NewDecoder(
		&mapstructure.DecoderConfig{
			Result:      dst,
			TagName:     "koanf",
			ErrorUnused: true,
			DecodeHook:  hooks,
			MatchName:   func(key, field string) bool { return key == field },
		},
	)
	if err != nil {
		return err
	}
	if err := dec.Decode(raw); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := secrets(path, reflect.ValueOf(dst).Elem(), ""); err != nil {
		return err
	}
	paths(filepath.Dir(path), reflect.ValueOf(dst).Elem(), "")
	return nil
}

// othersWrite reports whether somebody else than the owner may change the file. A user's own group,
// as umask 002 leaves it, is nobody else.
func othersWrite(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok && mode&0o020 != 0 &&
		int(st.Gid) == os.Getgid() &&
		int(st.Uid) == os.Getuid() {
		mode &^= 0o020
	}
	return mode&0o022 != 0
}

// environment turns CAPONIER_REMOTE_WORKSPACE into remote.workspace. Only single values can be set
// this way, and only known ones.
func environment(environ []string, t reflect.Type) (map[string]any, error) {
	out := map[string]any{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, "CAPONIER_")
		if !ok || rest == "CONFIG" || rest == "PROFILE" {
			if name == "I_ACCEPT_RISKS" && value != "" {
				out["accept_risks"] = value == "true"
			}
			continue
		}
		key := strings.ToLower(rest)
		if field(t, key) == nil {
			key = strings.Replace(key, "_", ".", 1)
		}
		at := t
		for _, part := range strings.Split(key, ".") {
			if at = field(at, part); at == nil {
				return nil, fmt.Errorf(
					"environment variable %s: the configuration has no key %s",
					name,
					key,
				)
			}
		}
		switch at.Kind() {
		case reflect.Bool:
			b, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf(
					"environment variable %s: want true or false, got %q",
					name,
					value,
				)
			}
			out[key] = b
		case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				out[key] = n
			} else {
				out[key] = value // a duration, or an error that decoding explains
			}
		case reflect.String:
			out[key] = value
		default:
			return nil, fmt.Errorf(
				"environment variable %s: %s is a list or a table; set it in the file",
				name,
				key,
			)
		}
	}
	return out, nil
}

// field is the type of the field of struct t whose koanf tag is key, or nil.
func field(t reflect.Type, key string) reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if squashed(f) {
			if inner := field(f.Type, key); inner != nil {
				return inner
			}
		} else if name := tag(f); name != "" && name == key {
			return f.Type
		}
	}
	return nil
}

// squashed says that an embedded struct's keys stand in the table of the struct around it.
func squashed(f reflect.StructField) bool { return f.Tag.Get("koanf") == ",squash" }

func tag(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("koanf"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// known refuses keys that no Options has, and says which ones it could have been.
func known(path, at string, v any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return nil // a free map, or a type error that decoding explains
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			ft := field(t, k)
			if ft == nil {
				return fmt.Errorf("configuration %s: unknown key %s (known here: %s)", path, strings.TrimPrefix(at+"."+k, "."), strings.Join(tags(t), ", "))
			}
			if err := known(path, at+"."+k, v[k], ft); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if t.Kind() != reflect.Slice {
				return nil
			}
			if err := known(path, fmt.Sprintf("%s[%d]", at, i), e, t.Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

func tags(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if f := t.Field(i); squashed(f) {
			names = append(names, tags(f.Type)...)
		} else if n := tag(f); n != "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

var reference = regexp.MustCompile(`^\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}$`)

// secrets replaces ${VAR} and ${file:PATH} in fields that are tagged secret:"true", and refuses
// them anywhere else: a reference that is not replaced would be used as it stands.
func secrets(path string, v reflect.Value, at string) error {
	return eachString(v, at, false, func(s reflect.Value, at string, secret bool) error {
		m := reference.FindStringSubmatch(s.String())
		switch {
		case m == nil && !strings.Contains(s.String(), "${"):
			return nil
		case m == nil:
			return fmt.Errorf(
				"configuration %s: %s: a reference must be the whole value, ${VAR} or ${file:PATH}",
				path,
				at,
			)
		case !secret:
			return fmt.Errorf(
				"configuration %s: %s: ${…} is only for secrets; write the value",
				path,
				at,
			)
		case m[1] != "":
			data, err := os.ReadFile(absolute(filepath.Dir(path), m[1]))
			if err != nil {
				return fmt.Errorf("configuration %s: %s: %w", path, at, err)
			}
			s.SetString(strings.TrimRight(string(data), "\r\n"))
		default:
			value, set := os.LookupEnv(m[2])
			if !set || value == "" {
				return fmt.Errorf(
					"configuration %s: %s: environment variable %s is not set",
					path,
					at,
					m[2],
				)
			}
			s.SetString(value)
		}
		return nil
	})
}

// Secrets are the values in a configuration that must not be shown.
func Secrets(c *Config) (values []string) {
	_ = eachString(
		reflect.ValueOf(c).Elem(),
		"",
		false,
		func(s reflect.Value, _ string, secret bool) error {
			if secret && s.String() != "" {
				values = append(values, s.String())
			}
			return nil
		},
	)
	return values
}

// paths makes the values of keys that name files absolute, as seen from the configuration file.
func paths(dir string, v reflect.Value, at string) {
	_ = eachString(v, at, false, func(s reflect.Value, at string, _ bool) error {
		key := at[strings.LastIndex(at, ".")+1:]
		key, _, _ = strings.Cut(key, "[")
		if s.String() != "" &&
			(strings.HasSuffix(key, "_file") || strings.HasSuffix(key, "_dir") || slices.Contains([]string{"dir", "site", "lock", "workspace", "known_hosts", "tls_cert", "tls_key", "tokens"}, key)) {
			s.SetString(absolute(dir, s.String()))
		}
		return nil
	})
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

// eachString visits every settable string of a struct of koanf tags.
func eachString(
	v reflect.Value,
	at string,
	secret bool,
	visit func(s reflect.Value, at string, secret bool) error,
) error {
	switch v.Kind() {
	case reflect.String:
		return visit(v, at, secret)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			inner := strings.TrimPrefix(at+"."+tag(f), ".")
			if squashed(f) {
				inner = at
			} else if tag(f) == "" {
				continue
			}
			if err := eachString(v.Field(i), inner, f.Tag.Get("secret") == "true", visit); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := eachString(v.Index(i), fmt.Sprintf("%s[%d]", at, i), secret, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

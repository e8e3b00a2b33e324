package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// keysOf lists the paths of all keys and tables of a struct, without indexes.
func keysOf(t reflect.Type, at string) (paths []string) {
	for _, f := range reflect.VisibleFields(t) {
		if keyOf(f) == "" {
			continue
		}
		key := strings.TrimPrefix(at+"."+keyOf(f), ".")
		paths = append(paths, key)
		inner := f.Type
		for inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			paths = append(paths, keysOf(inner, key)...)
		}
	}
	return paths
}

// commented is a line of config.toml that is a key or a table behind "# ".
var indexes = regexp.MustCompile(`\[[0-9]+\]`)

var commented = regexp.MustCompile(`(?m)^# (\[+[a-z_.]+\]+$|[a-z_]+ = .+$)`)

// The shipped file decodes with every comment that is a key made a key, and then has all keys. What
// it sets is what it would be without it.
func TestConfigTOMLHasEveryKey(t *testing.T) {
	data, err := os.ReadFile("../../config.toml")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPENAI_API_KEY", "sk-0123456789")
	whole := commented.ReplaceAllString(string(data), "$1")
	for _, file := range []string{"approval-webhook", "approval-oidc", "siem", "matrix",
		"mail", "store"} {
		whole = strings.Replace(whole, "${file:secrets/"+file+"}", "${OPENAI_API_KEY}", 1)
	}
	l := &loader{file: "config.toml"}
	if err := l.read([]byte(whole), nil, reflect.ValueOf(&Config{}).Elem()); err != nil {
		t.Fatal(err)
	}
	var have []string
	for key := range l.lines {
		have = append(have, indexes.ReplaceAllString(key, ""))
	}
	for _, key := range keysOf(reflect.TypeFor[Config](), "") {
		if strings.HasPrefix(key, "remote.nodes.jump.") && key != "remote.nodes.jump.host" {
			continue // the keys of a node
		}
		if !slices.Contains(have, key) {
			t.Errorf("config.toml does not have %s", key)
		}
	}
}

// Every key has a type that the loader decodes, and one that holds a path says so: it would be
// taken as relative to where the program is started.
func TestKeysAreOfKnownTypes(t *testing.T) {
	var paths []string
	var walk func(reflect.Type, string)
	walk = func(s reflect.Type, at string) {
		for _, f := range reflect.VisibleFields(s) {
			if keyOf(f) == "" {
				continue
			}
			key, typ := strings.TrimPrefix(at+"."+keyOf(f), "."), f.Type
			if f.Tag.Get("path") == "true" {
				paths = append(paths, key)
			}
			if typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			switch typ.Kind() {
			case reflect.Struct:
				walk(typ, key)
			case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
			default:
				t.Errorf("%s is a %s", key, typ)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	for _, key := range strings.Fields(`policy.site plugin.lock plugin.dir sandbox.cache_dir ` +
		`audit.dir
		store.dir blob.dir egress.ca_file identity.tokens front.tls_cert front.tls_key
		remote.workspace remote.known_hosts remote.nodes.identity_file
		remote.nodes.certificate_file`) {
		if !slices.Contains(paths, key) {
			t.Errorf("%s has no tag path:\"true\"", key)
		}
	}
}

// Every duration refuses a number, in the file and in the environment.
func TestDurationsNeedAUnit(t *testing.T) {
	seen := 0
	for i := range reflect.TypeFor[Config]().NumField() {
		table := reflect.TypeFor[Config]().Field(i)
		if table.Type.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(table.Type) {
			if keyOf(f) == "" || f.Type != reflect.TypeFor[time.Duration]() {
				continue
			}
			seen++
			text := fmt.Sprintf("[%s]\n%s = 60", keyOf(table), keyOf(f))
			variable := "CAPONIER_" + strings.ToUpper(keyOf(table)+"_"+keyOf(f)) + "=60"
			_, inFile := Load(write(t, text), nil)
			_, inVariable := Load(write(t, ""), []string{variable})
			for where, err := range map[string]error{text: inFile, variable: inVariable} {
				if err == nil || !strings.Contains(err.Error(), `write "60s"`) {
					t.Errorf("%s: %v", where, err)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("looked at %d durations", seen)
	}
}

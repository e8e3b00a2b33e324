package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const inputSchema = `{"type":"object","additionalProperties":false,"required":["vmid"],` +
	`"properties":{
	"vmid":{"type":"integer","description":"Container ` +
	`ID","minimum":100,"maximum":999999999,"x-caponier-target":"vmid"},
	"command":{"type":"string","maxLength":20,"x-caponier-target":"guest_command"},
	"format":{"type":"string","enum":["json","text"],"default":"json"},
	"mode":{"type":"string","pattern":"^[0-7]{3,4}$"},
	"paths":{"type":"array","maxItems":2,"items":{"type":"string",` +
	`"x-caponier-target":"guest_path"}},
	"limits":{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer",` +
	`"multipleOf":2}}},
	"ratio":{"type":"number"},
	"list":{"type":"array","items":{"$ref":"#/$defs/point"}},
	"confirmed":{"type":"boolean","x-caponier-confirm":true}},
	"$defs":{"point":{"type":"object","additionalProperties":false,"required":["x"],` +
	`"properties":{"x":{"type":"integer"}}}}}`

// describing returns what a plugin with one tool describes. Each pair replaces a text of it.
func describing(replace ...string) string {
	d := `{"abi":1,"name":"containers","version":"1.0.0","tools":[{"name":"exec","title":"Run",` +
		`"description":"Runs a command in a container.",
	"input_schema":` + inputSchema + `,"output_schema":{"type":"object",` +
		`"properties":{"exit":{"type":"integer"}},"required":["exit"]},
	"hints":{"read_only":false,"destructive":true,"idempotent":false,"open_world":true},` +
		`"imports":["ssh_exec"],"commands":["pct exec"],"budget_ms":30000,"runs":"pct exec VMID ` +
		`-- sh -c COMMAND"}],
	"resources":[],"prompts":[]}`
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(d, replace[i]) {
			panic("no " + replace[i])
		}
		d = strings.Replace(d, replace[i], replace[i+1], 1)
	}
	return d
}

func entry(t testing.TB, replace ...string) Entry {
	t.Helper()
	e, err := NewEntry("build/plugins/containers.wasm", []byte("\x00asm"),
		[]string{"ssh_exec", "sftp_get"}, []byte(describing(replace...)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestLockRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plugins.lock")
	a, b := entry(t), entry(t, `"containers"`, `"a"`, `"exec"`, `"other"`)
	b.File = "a.wasm"
	if err := write(path, []Entry{a, b}); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(path)
	if err := write(path, []Entry{b, a}); err != nil {
		t.Fatal(err)
	}
	second, _ := os.ReadFile(path)
	if !bytes.Equal(first, second) {
		t.Error("the lock depends on the order of the entries")
	}
	l, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Plugins()) != 2 || l.Plugins()[0].Name != "a" || len(l.Tools()) != 2 ||
		l.Tools()[1].Name != "exec" {
		t.Errorf("loaded %v", l.Plugins())
	}
	tool := l.Tools()[1]
	if tool.Kind != "tool" || tool.Confirm != "confirmed" ||
		strings.Join(tool.TargetKinds, " ") != "commands guest_paths vmids" ||
		tool.Budget.Seconds() != 30 || !tool.Hints.Destructive {
		t.Errorf("tool is %+v", tool)
	}
	if l.Checksum() != digest(first) {
		t.Errorf("checksum %s is not over the whole lock", l.Checksum())
	}
	if !l.Unchanged(path) {
		t.Error("the file that it was read from counts as changed")
	}
	for what, text := range map[string][]byte{"longer": append(bytes.Clone(second), '\n'),
		"of another plugin": bytes.Replace(second, []byte(`"a"`), []byte(`"b"`), 1), "empty": nil} {
		if err := Write(path, text); err != nil || l.Unchanged(path) {
			t.Errorf("a file that is %s counts as unchanged (%v)", what, err)
		}
	}
	if l.Unchanged(path + ".away") {
		t.Error("a file that is away counts as unchanged")
	}
}

func TestLockRefuses(t *testing.T) {
	good, err := marshal([]Entry{entry(t)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, why string }{
		"an unknown field": {`"schema":`, `"signed": true, "schema":`,
			`unknown field "signed"`},
		"another schema": {"lock/1", "lock/2", `schema is "caponier.lock/2"`},
		"an unknown field of a plugin": {`"file":`, `"trusted": true, "file":`,
			`unknown field "trusted"`},
		"a field that differs in case":      {`"file":`, `"File":`, `File: unknown field`},
		"the outer list under another case": {`"plugins":`, `"Plugins":`, "not in the form"},
		"a repeated outer key": {`"schema": "caponier.lock/1",`,
			`"schema": "caponier.lock/1", "schema": "caponier.lock/1",`, "not in the form"},
		"a repeated key of a tool": {`"budget_ms": 30000`,
			`"budget_ms": 30000, "budget_ms": 30000`, `repeats "budget_ms"`},
		"a name that describe does not have": {`"name": "containers",` + "\n      \"version\"",
			`"name": "guests",` + "\n      \"version\"", "describe says containers"},
		"an edited schema with a hole": {`"additionalProperties": false`,
			`"additionalProperties": true`, `needs "additionalProperties":false`},
		"an import that is no operation": {`"sftp_get",`, `"root_shell",`, `imports "root_shell"`},
		"an import of the host's own":    {`"sftp_get",`, `"discard",`, `imports "discard"`},
		"imports out of order":           {`"sftp_get",`, `"stage",`, "not sorted"},
		"a short digest":                 {`"sha256:`, `"sha256:00`, "64 hex digits"},
		"a file elsewhere": {`"file": "containers.wasm"`,
			`"file": "../containers.wasm"`, "plain file name"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(string(good), c.from, c.to, 1)
			if bad == string(good) {
				t.Fatal("nothing was replaced")
			}
			if _, err := parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
	if _, err := parse(append(good, good...)); err == nil {
		t.Error("a second value after the lock was accepted")
	}
	if _, err := parse(bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n"))); err != nil {
		t.Errorf("other line ends: %v", err)
	}
}

func TestCommandsAreDeclaredByWhatCanRunThem(t *testing.T) {
	const list, imports = `"commands":["pct exec"]`, `"imports":["ssh_exec"]`
	of := func(commands ...string) []string {
		return []string{list, `"commands":` + string(must(json.Marshal(commands)))}
	}
	text := []string{`"guest_command"`, `"command"`}
	var many []string
	for i := range maxRuns + 1 {
		many = append(many, fmt.Sprint("pct x", i))
	}
	for name, c := range map[string]struct {
		change []string
		why    string
	}{
		"none":          {[]string{list + ",", ""}, "declares no command"},
		"an empty list": {of(), "declares no command"},
		"none, of what can run none": {[]string{imports + "," + list,
			`"imports":["sftp_get"]`}, ""},
		"one, of what can run none": {[]string{imports, `"imports":["sftp_get"]`},
			"imports neither ssh_exec nor ssh_script"},
		"several, in the author's order": {of("qm stop", "pct stop",
			"pvesh create /nodes/{node}/lxc/{vmid}/status/stop", "ip -br addr"), ""},
		"one twice":                   {of("pct stop", "pct stop"), "commands repeat"},
		"too many to be read":         {of(many...), "33 are more than the 32"},
		"a word too many between":     {of("pct  stop"), `command "pct  stop"`},
		"a blank at the end":          {of("pct stop "), `command "pct stop "`},
		"an empty one":                {of(""), `command ""`},
		"one of two lines":            {of("pct\nstop"), `command "pct\nstop"`},
		"one that looks like another": {of("pсt stop"), "words of ASCII"},
		"a list of something else": {[]string{list, `"commands":[1]`},
			"cannot unmarshal number"},
		"the caller's text, and no argument": {of("*"),
			"no argument is marked as a command for a node"},
		"an argument, and not the text":     {text, `its commands must hold "*"`},
		"an argument and the text":          {append(of("*"), text...), ""},
		"an argument, the text and another": {append(of("pct exec", "*"), text...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewEntry("containers.wasm", []byte("\x00asm"),
				[]string{"sftp_get", "ssh_exec"}, []byte(describing(c.change...)))
			if c.why == "" && err != nil ||
				c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
	good := must(marshal([]Entry{entry(t)}))
	old := regexp.MustCompile(`\s*"commands": \[\s*"pct exec"\s*\],`).ReplaceAll(good, nil)
	if l, err := parse(old); err != nil || bytes.Equal(good, old) || l.Tools()[0].Commands != nil {
		t.Errorf("a lock from before is not taken, or declares something: %v", err)
	}
	tools, err := entry(t, of("qm stop", "pct stop")...).Tools()
	if err != nil || strings.Join(tools[0].Commands, ",") != "qm stop,pct stop" {
		t.Errorf("%v, %v", tools, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestNamesMustNotCollide(t *testing.T) {
	a := entry(t)
	for name, c := range map[string]struct {
		change []string
		file   string
		why    string
	}{
		"one tool in two plugins": {[]string{`"containers"`, `"other"`}, "other.wasm",
			"both have the tool exec"},
		"names alike but for case": {[]string{`"containers"`, `"other"`, `"exec"`, `"Exec"`},
			"other.wasm",
			"both have the tool Exec"},
		"one file for two": {[]string{`"containers"`, `"other"`, `"exec"`, `"run"`},
			"containers.wasm", "both have the file containers.wasm"},
		"the same plugin repeated": {[]string{`"exec"`, `"run"`}, "other.wasm",
			"both have the name containers"},
	} {
		t.Run(name, func(t *testing.T) {
			b := entry(t, c.change...)
			b.File = c.file
			if err := write(filepath.Join(t.TempDir(), "l"), []Entry{a, b}); err == nil ||
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}

func TestOpenChecksTheDigest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plugins.lock")
	if err := write(path, []Entry{entry(t)}); err != nil {
		t.Fatal(err)
	}
	l, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	wasm := filepath.Join(dir, "containers.wasm")
	for name, c := range map[string]struct{ plugin, bytes, why string }{
		"an unknown plugin":   {"guests", "\x00asm", "is not in the lock"},
		"no file":             {"containers", "", "plugin build"},
		"other bytes":         {"containers", "\x00asm!", "but the lock says sha256:"},
		"a module over limit": {"containers", strings.Repeat("x", maxModule+1), "has more than"},
		"the locked bytes":    {"containers", "\x00asm", ""}} {
		t.Run(name, func(t *testing.T) {
			os.Remove(wasm)
			if c.bytes != "" {
				if err := os.WriteFile(wasm, []byte(c.bytes), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := l.Open(dir, c.plugin)
			if c.why == "" && (err != nil || string(got) != c.bytes) ||
				c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("got %q, %v, want %q", got, err, c.why)
			}
		})
	}
	if err := errors.Join(os.WriteFile(wasm, []byte("\x00asm"), 0o600),
		os.Chmod(wasm, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(dir, "containers"); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a module that others can write: %v", err)
	}
	os.Remove(wasm)
	if err := syscall.Mkfifo(wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(dir, "containers"); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a FIFO as module: %v", err)
	}
	if _, err := Load(wasm); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a FIFO as lock: %v", err)
	}
	os.Remove(wasm)
	if err := os.Symlink("/etc/passwd", wasm); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(dir, "containers"); err == nil ||
		!strings.Contains(err.Error(), "escapes") {
		t.Errorf("a link out of the folder: %v", err)
	}
}

func TestOtherKinds(t *testing.T) {
	e := entry(t, `"resources":[]`,
		`"resources":[{"name":"api","uri":"curl://docs/api","description":"How the API is to be used.","imports":[],"budget_ms":1000,"runs":"nothing on any node"}]`,
		`"prompts":[]`,
		`"prompts":[{"name":"api-test","description":"Tests an API step by `+
			`step.","budget_ms":1000,"runs":"nothing on any `+
			`node","input_schema":{"type":"object","additionalProperties":false,`+
			`"properties":{"url":{"type":"string"}}}}]`)
	l, err := newLock([]Entry{e})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, tool := range l.Tools() {
		kinds = append(kinds, tool.Kind+" "+tool.Name+" "+tool.URI)
		if tool.Validate == nil || tool.Derive == nil || tool.InputSchema == nil {
			t.Errorf("%s is not usable", tool.Name)
		}
	}
	if got := strings.Join(kinds, ","); got != "prompt api-test ,resource api curl://docs/api,tool exec " {
		t.Error(got)
	}
	if err := l.Tools()[1].Validate(map[string]any{"a": "b"}); err == nil ||
		!strings.Contains(err.Error(), `unknown field "a"`) {
		t.Errorf("a resource takes arguments: %v", err)
	}
}

func FuzzLock(f *testing.F) {
	good, err := marshal([]Entry{entry(f)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"schema":"caponier.lock/1","plugins":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parse(data)
		if err != nil {
			return
		}
		again, err := marshal(l.Plugins())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(compact(again), compact(data)) {
			t.Errorf("read\n%s\nwrote\n%s", data, again)
		}
		if second, err := parse(again); err != nil || second.Checksum() != l.Checksum() {
			t.Errorf("what was written is read differently: %v", err)
		}
	})
}

func FuzzDescribe(f *testing.F) {
	f.Add([]byte(describing()))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := NewEntry("p.wasm", nil, abi.Operations(), data)
		if err != nil {
			return
		}
		written, err := marshal([]Entry{e})
		if err != nil {
			t.Fatal(err)
		}
		l, err := parse(written)
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		var got, want any
		if json.Unmarshal(l.entries[0].Describe, &got) != nil ||
			json.Unmarshal(data, &want) != nil || !equal(got, want) {
			t.Errorf("described\n%s\nlocked\n%s", data, l.entries[0].Describe)
		}
	})
}

func write(path string, entries []Entry) error {
	text, err := Encode(entries)
	if err != nil {
		return err
	}
	return Write(path, text)
}

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/abi/success"
	"github.com/caponier-mcp/caponier/test/needs"
)

// behaving returns the modules that must behave the same, by language.
func behaving(t *testing.T) map[string][]byte {
	all := map[string][]byte{"go": goModule(t, "behave")}
	for _, language := range []string{"c", "as", "rust"} {
		b, err := os.ReadFile(filepath.Join("../../build/modules", "behave-"+language+".wasm"))
		switch {
		case err == nil:
			all[language] = b
		case os.Getenv("CI") != "" || !errors.Is(err, os.ErrNotExist):
			t.Fatal(err)
		default:
			t.Logf("the module in %s is not built (make others)", language)
		}
	}
	return all
}

// TestModulesOfFourLanguagesBehaveTheSame holds the modules of every toolchain to one table of
// behaviour.
func TestModulesOfFourLanguagesBehaveTheSame(t *testing.T) {
	const odd = "quotes \" \\ / \n\t\r\b\f\x01\x1f <&> ünïcödé 日本 🙂 \u2028 end"
	answer := func(v map[string]any, err error) func(terms.Question) (terms.Result, error) {
		return func(terms.Question) (terms.Result, error) { return terms.Result{Value: v}, err }
	}
	deny := func(q terms.Question) terms.Decision {
		if q.Kind == terms.KindCall {
			return terms.Decision{Allow: true, Tier: terms.Green, Revision: "test"}
		}
		return terms.Decision{
			Tier:     terms.Green,
			Denied:   []terms.Reason{{ID: "test.no", Msg: "not that: " + odd}},
			Revision: "test",
		}
	}
	for name, c := range map[string]struct {
		args     object
		decide   func(terms.Question) terms.Decision
		execute  func(terms.Question) (terms.Result, error)
		executed []string // operations
		broken   string   // codes with which the call may break
		code     int
		gives    object // the structured output
		fails    [2]string
		notes    terms.Notes
	}{
		"text comes back as it went in": {
			args: object{"do": "echo", "text": odd}, gives: object{"text": odd},
		},
		"no text is no text": {args: object{"do": "echo", "text": ""}, gives: object{"text": ""}},
		"64 KiB come back": {
			args:  object{"do": "echo", "text": strings.Repeat("0123456789abcdeß", 4096)},
			gives: object{"text": strings.Repeat("0123456789abcdeß", 4096)},
		},
		"a mebibyte is given": {
			args:  object{"do": "big", "n": 1 << 20},
			gives: object{"text": strings.Repeat("x", 1<<20)},
		},
		"an operation is done": {
			args: object{"do": "exec", "text": odd},
			execute: answer(object{"exit": -3, "stdout": odd, "stderr": "", "truncated": false},
				nil),
			executed: []string{"ssh_exec"}, gives: object{"exit": -3.0, "stdout": odd},
		},
		"an operation is only planned": {
			args: object{"do": "exec"},
			execute: func(terms.Question) (terms.Result, error) {
				return terms.Result{Plan: true, Value: success.Of(abi.SSHExec{}, 1)}, nil
			},
			executed: []string{"ssh_exec"},
			gives:    object{"exit": 0.0, "stdout": "", "planned": true},
		},
		"an operation is refused": {
			args: object{"do": "exec"}, decide: deny, code: 1,
			fails: [2]string{"refused", "not that: " + odd},
		},
		"an operation fails": {
			args: object{"do": "exec"},
			execute: answer(nil,
				&terms.OpError{Code: "unreachable", Message: odd, Outcome: terms.Failed}),
			executed: []string{"ssh_exec"}, code: 1, fails: [2]string{"unreachable", odd},
		},
		"an operation's outcome is unknown": {
			args: object{"do": "exec"},
			execute: answer(nil,
				&terms.OpError{Code: "lost", Message: "gone", Outcome: terms.Unknown}),
			executed: []string{"ssh_exec"}, code: 1, fails: [2]string{"lost", "gone"},
		},
		"a node that is not there": {
			args: object{"do": "elsewhere"}, code: 1, fails: [2]string{"bad_request", "inventory"},
		},
		"a question waits": {
			args: object{"do": "ask"}, execute: answer(nil, terms.ErrPending),
			executed: []string{"ask"}, code: 1, fails: [2]string{"pending", "waiting"},
		},
		"a question is answered": {
			args:     object{"do": "ask"},
			execute:  answer(object{"action": "accept", "content": object{}}, nil),
			executed: []string{"ask"}, gives: object{"action": "accept"},
		},
		"a tool fails in its own words": {
			args: object{"do": "fail", "text": odd}, code: 1, fails: [2]string{"teapot", odd},
		},
		"arguments that make no sense": {
			args: object{"do": 5}, code: 2, fails: [2]string{"bad_input", ""},
		},
		"notes are counted": {
			args: object{"do": "notes"}, gives: object{}, notes: terms.Notes{Logs: 1, Progress: 1},
		},
		"nothing is left from the call before": {
			args: object{"do": "count"}, gives: object{"n": 42.0},
		},
		"a trap breaks the call":        {args: object{"do": "trap"}, broken: "plugin_trap"},
		"a loop without end is stopped": {args: object{"do": "spin"}, broken: "budget"},
		"memory has an end":             {args: object{"do": "grow"}, broken: "plugin_memory"},
		"recursion has an end": {
			args: object{"do": "deep"}, broken: "plugin_trap plugin_memory budget",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for language, wasm := range behaving(t) {
				h := newHost(t, Options{CacheDir: compileCache})
				h.decide, h.execute = c.decide, c.execute
				tool := h.add(wasm)
				tool.Name = "behave"
				for range 2 { // the second finds nothing of the first
					if tool.Budget = 20 * time.Second; strings.HasSuffix(c.broken, "budget") {
						tool.Budget = 500 * time.Millisecond
					}
					h.executed = nil
					a := h.call(tool, c.args)
					if broken := ended(a); broken != "" || c.broken != "" {
						if !slices.Contains(strings.Fields(c.broken), broken) {
							t.Errorf("%s: the call ended with %q (%v), want %q", language, broken,
								a.Err, c.broken)
						}
						continue
					}
					var got struct {
						Structured object
						Error      struct{ Code, Message string }
					}
					if err := json.Unmarshal(a.Output.JSON, &got); err != nil {
						t.Fatalf("%s: %v in %.200s", language, err, a.Output.JSON)
					}
					if a.Output.Code != c.code || !slices.Equal(h.executed, c.executed) ||
						got.Error.Code != c.fails[0] ||
						!strings.Contains(got.Error.Message, c.fails[1]) {
						t.Errorf("%s: code %d after %v with error %q, want %d after %v with %q",
							language, a.Output.Code, h.executed, got.Error, c.code, c.executed,
							c.fails)
					}
					for key := range maps.Keys(c.gives) {
						if !reflect.DeepEqual(got.Structured[key], c.gives[key]) {
							t.Errorf("%s: %s is %.200q, want %.200q", language, key,
								got.Structured[key], c.gives[key])
						}
					}
					if n := a.Output.Notes; n.Logs != c.notes.Logs ||
						n.Progress != c.notes.Progress ||
						n.Dropped != 0 {
						t.Errorf("%s: notes %+v, want %+v", language, n, c.notes)
					}
				}
			}
		})
	}
}

func TestModulesOfFourLanguagesDescribeThemselves(t *testing.T) {
	for language, wasm := range behaving(t) {
		d, imports, err := describeModule(t.Context(), wasm, "")
		minor := 2 // of the sources that spell their description out
		if language == "go" {
			minor = abi.Minor
		}
		head := fmt.Sprintf(`{"abi":1,"minor":%d,"name":"behave","version":"1.0.0"`, minor)
		if err != nil || !slices.Equal(imports, []string{"ask", "ssh_exec"}) ||
			!strings.HasPrefix(string(d), head) {
			t.Errorf("%s: %.200s with %v, %v", language, d, imports, err)
		}
	}
}

// example returns the code block of a language in docs/abi.md, and the command that builds it
// there.
func example(t *testing.T, language, command string) (code, build string) {
	page, err := os.ReadFile("../../docs/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(page), "```"+language+"\n")
	code, _, _ = strings.Cut(code, "```")
	_, build, ok2 := strings.Cut(string(page), "Built with `"+command)
	build, _, _ = strings.Cut(build, "`")
	if !ok || !ok2 {
		t.Fatalf("docs/abi.md has no example in %s that is built with %s", language, command)
	}
	return code, command + build
}

// TestTheExamplesOfTheABIPageWork builds the examples of docs/abi.md as the page says, and calls
// them.
func TestTheExamplesOfTheABIPageWork(t *testing.T) {
	behaving(t) // says what is missing
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string]string{"ts": "npx asc", "c": "clang"} {
		t.Run(language, func(t *testing.T) {
			tool := map[string]string{
				"ts": filepath.Join(root, "build/asc/node_modules/.bin/asc"), "c": "clang",
			}[language]
			needs.Program(t, tool)
			code, build := example(t, language, command)
			dir := t.TempDir()
			sdk, err := os.ReadFile(filepath.Join(root, "sdk/assemblyscript/caponier.ts"))
			if err == nil {
				err = errors.Join(os.WriteFile(filepath.Join(dir, "caponier.ts"), sdk, 0o600),
					os.WriteFile(filepath.Join(dir, "uptime."+language), []byte(code), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Fields(
				strings.ReplaceAll(strings.TrimPrefix(build, command), "sdk/c",
					filepath.Join(root, "sdk/c")),
			)
			cmd := exec.Command(tool, args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", build, err, out)
			}
			wasm, err := os.ReadFile(filepath.Join(dir, "uptime.wasm"))
			if err != nil {
				t.Fatal(err)
			}
			h := newHost(t, Options{})
			h.execute = func(terms.Question) (terms.Result, error) {
				return terms.Result{
					Value: object{
						"exit": 0, "stdout": "up 3 \"weeks\"\n", "stderr": "", "truncated": false,
					},
				}, nil
			}
			if _, imports, err := describeModule(t.Context(), wasm, ""); err != nil ||
				!slices.Equal(imports, []string{"ssh_exec"}) {
				t.Errorf("described with imports %v, %v", imports, err)
			}
			a := h.call(h.add(wasm), object{})
			want(t, a, "")
			var got struct{ Structured struct{ Uptime string } }
			if err := json.Unmarshal(a.Output.JSON, &got); err != nil ||
				got.Structured.Uptime != "up 3 \"weeks\"\n" {
				t.Errorf("gave %s, %v", a.Output.JSON, err)
			}
			t.Logf("%d bytes", len(wasm))
		})
	}
}

// TestTheCHeaderReadsLenientJSON parses output of nodes, which may be cut short or made to mislead.
func TestTheCHeaderReadsLenientJSON(t *testing.T) {
	needs.Program(t, "clang")
	dir := t.TempDir()
	source, out := filepath.Join(dir, "probe.c"), filepath.Join(dir, "probe.wasm")
	header, err := os.ReadFile("../../sdk/c/caponier.h")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "caponier.h"), header, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, []byte(`#include "caponier.h"
CAPONIER_DESCRIBE { return 0; }
CAPONIER_CALL {
  cap_str args = cap_get(cap_input(), "args"), json = cap_text(cap_get(args, "json"));
  cap_str got = cap_get(json, "a");
  cap_buf b = {0};
  cap_put(&b, "{\"inside\":");
  cap_put(&b, !got.p || got.p >= json.p && got.n <= json.n && got.p + got.n <= json.p + json.n
    ? "true" : "false");
  cap_put(&b, ",\"a\":"), cap_quote(&b, got.n <= json.n ? got : (cap_str){0, 0});
  cap_put(&b, ",\"text\":"), cap_quote(&b, cap_text(json)), cap_put(&b, "}");
  cap_output(b);
  return 0;
}`), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("clang", "--target=wasm32", "-O2", "-nostdlib", "-ffreestanding",
		"-mbulk-memory", "-Wl,--no-entry", "-Wl,--strip-all", "-o", out, source)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, Options{})
	tool := h.add(wasm)
	for name, c := range map[string]struct{ json, a, text string }{
		"the value of a key": {
			json: `{"b":{"a":1},"a":[2,"}"]}`, a: `[2,"}"]`,
		},
		"a key that is cut short has no value":  {json: `{"ab`},
		"nor has one without its colon":         {json: `{"a"`},
		"nor one that ends there":               {json: `{"a":`},
		"nor one that is followed by another":   {json: `{"a","b":1}`},
		"nor what comes after a broken escape":  {json: `{"b\`},
		"a value that is cut short ends there":  {json: `{"a":[1,"x`, a: `[1,"x`},
		"a pair of surrogates is one character": {json: `"\ud83d\ude42!"`, text: "🙂!"},
		"half a pair is U+FFFD":                 {json: `"\ud83d"`, text: "\uFFFD"},
		"the second half alone too":             {json: `"x\ude42y"`, text: "x\uFFFDy"},
		"no half takes a letter with it":        {json: `"\ud83d\u0041"`, text: "\uFFFDA"},
		"nor plain text":                        {json: `"\ud83d123456"`, text: "\uFFFD123456"},
		"nor another first half, which finds its": {
			json: `"\ud83d\ud83d\ude42"`, text: "\uFFFD🙂",
		},
		"an escape that is cut short is U+FFFD too": {json: `"x\u00"`, text: "x\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(tool, object{"json": c.json})
			var got struct {
				Inside  bool
				A, Text string
			}
			if err := json.Unmarshal(a.Output.JSON, &got); err != nil || a.Err != nil ||
				!got.Inside ||
				got.A != c.a ||
				got.Text != c.text {
				t.Errorf("%s: %v, %s (%v)", c.json, a.Err, a.Output.JSON, err)
			}
		})
	}
}

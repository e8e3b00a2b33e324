package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// built reads the modules that `make plugins modules` has built.
func built(t testing.TB, pattern string, least int) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../build/" + pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%d modules are in build/%s, at least %d should be: run `make plugins modules`",
			len(files), pattern, least)
	}
	all := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".wasm")] = b
	}
	return all
}

// said is what a module does with one input: its status, output and stderr.
type said func(function string, input []byte) string

// still is an environment in which nothing differs from one run to the next.
func still() *environment {
	now := time.Unix(1_700_000_000, 0)
	return &environment{
		newCPUScheduler(),
		func() time.Time { now = now.Add(time.Microsecond); return now },
		func(_ context.Context, d time.Duration) { now = now.Add(d) },
		rand.NewChaCha8([32]byte{}),
		nil,
	}
}

func say(ctx context.Context, mod api.Module, env *environment) said {
	return func(function string, input []byte) string {
		c := &call{door: noDoor{}, env: env, input: input, max: 1 << 24}
		var stack [1]uint64
		err := mod.ExportedFunction(function).
			CallWithStack(context.WithValue(ctx, callKey{}, c), stack[:])
		return fmt.Sprintf("%d %v %s %s", uint32(stack[0]), err, c.output.bytes(), c.stderr)
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// TestPluginsSayTheSameRewritten compares each shipped plugin in plain wazero with its rewritten
// form that starts from the template: its description, and a call of each tool. Operations are
// refused; time and randomness are the same.
func TestPluginsSayTheSameRewritten(t *testing.T) {
	ctx := t.Context()
	rt := wazero.NewRuntimeWithConfig(ctx,
		wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features))
	defer rt.Close(context.Background())
	if err := register(ctx, rt, hostFuncs()); err != nil {
		t.Fatal(err)
	}
	for name, wasm := range built(t, "plugins/*.wasm", 7) {
		t.Run(name, func(t *testing.T) {
			env := still()
			raw, err := rt.InstantiateWithConfig(
				context.WithValue(ctx, callKey{}, &call{door: noDoor{}, env: env}), wasm,
				wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close(ctx)
			before := say(ctx, raw, env)
			m, rewritten, err := load(wasm, abi.Operations(), 64<<20)
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := rt.CompileModule(ctx, rewritten)
			if err != nil {
				t.Fatal(err)
			}
			env = still()
			tmpl, _, err := newTemplate(ctx, rt, &source{m, compiled}, env, 64<<20, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer tmpl.image.Close()
			in, err := tmpl.instantiate(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer in.close()
			after := say(ctx, in.mod, env)

			described := before("caponier_v1_describe", nil)
			if got := after("caponier_v1_describe", nil); got != described {
				t.Fatalf("described as\n%s\nand rewritten as\n%s", described, got)
			}
			text, _ := strings.CutPrefix(described, "0 <nil> ")
			var offers struct{ Tools []struct{ Name string } }
			if err := json.NewDecoder(strings.NewReader(text)).Decode(&offers); err != nil ||
				len(offers.Tools) == 0 {
				t.Fatalf("%v: %.200s", err, described)
			}
			answered := 0
			for _, tool := range offers.Tools {
				for _, args := range []string{
					`{"vmid":105,"node":"pve1","container_id":"105","command":"uptime",` +
						`"query":".a",` +
						`"input":"{\"a\":[1,2]}","data":{"a":1},"prompt":"hi",` +
						`"provider":"openai",` +
						`"model":"m"}`,
					`{}`,
				} {
					input := fmt.Appendf(nil,
						`{"abi":1,"kind":"tool","name":%q,"args":%s,"call":{"id":"x",`+
							`"deadline_ms":1700000010000,"round":1},`+
							`"nodes":[{"name":"pve1","cluster":"lab","default":true}]}`,
						tool.Name, args)
					want, got := before("caponier_v1_call", input), after("caponier_v1_call", input)
					// arguments that the schema refuses; what the module does then is not
					if strings.Contains(want, "wasm error") {
						if a, b := firstLine(want), firstLine(got); a != b {
							t.Errorf("%s with %s ends with %q, rewritten with %q", tool.Name, args,
								a, b)
						}
						return
					}
					if answered++; got != want {
						t.Errorf("%s with %s gives\n%s\nand rewritten\n%s", tool.Name, args, want,
							got)
					}
				}
			}
			t.Logf("%d answers compared", answered)
		})
	}
}

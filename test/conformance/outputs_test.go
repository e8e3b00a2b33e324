//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
)

// labConfig starts a simulated cluster and returns the configuration of a host for it, which lists
// aliases too.
func labConfig(t *testing.T) (config string) {
	t.Helper()
	dir := t.TempDir()
	site := filepath.Join(dir, "site")
	if err := os.CopyFS(site, os.DirFS("../../examples/lab/site")); err != nil {
		t.Fatal(err)
	}
	config = filepath.Join(dir, "config.toml")
	lab, err := pvelab.Start(t.Context(), pvelab.Options{State: filepath.Join(dir, "lab"),
		Listen: "127.0.0.1:0", Config: config, Site: site, Lock: absolute(t,
			"../../build/conformance/shipped.lock"), Plugins: absolute(t, "../../build/plugins")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	data, err := os.ReadFile(config)
	if err == nil {
		const all = "\n[tools]\naliases = true\noutput_schemas = true\n"
		err = os.WriteFile(config, append(data, all...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestTypeScriptClientsAcceptEveryResult calls every shipped tool on the simulated cluster with
// both TypeScript clients, which throw for a result that does not fit its output schema.
func TestTypeScriptClientsAcceptEveryResult(t *testing.T) {
	for _, client := range []string{"v1", "v2"} {
		cmd := exec.CommandContext(t.Context(), node, "outputs.mjs", client,
			"../../build/caponier", "--config", labConfig(t), "serve")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v\n%s", client, err, &stderr)
			continue
		}
		var seen [][]any
		if err := json.Unmarshal(out, &seen); err != nil {
			t.Fatal(err)
		}
		good := 0
		for _, s := range seen {
			if isError, has := s[1].(bool), s[2].(bool); isError == has {
				t.Errorf("%s: %v: isError %v, structured content %v", client, s[0], isError, has)
			} else if has {
				good++
			}
		}
		if len(seen) < 38 || good < 30 {
			t.Errorf("%s: %d tools, of which %d succeeded: %s", client, len(seen), good, out)
		}
		t.Logf("%s: %d tools, of which %d succeeded", client, len(seen), good)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

package settings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var server = Server{Command: "/usr/bin/caponier",
	Args: []string{"--config", "/etc/cap onier/config.toml", "serve"}}

// file writes a client's file into a directory of its own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(clients[name].file))
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAddToKeepsWhatIsThere(t *testing.T) {
	entry := `"caponier": {
      "args": [
        "--config",
        "/etc/cap onier/config.toml",
        "serve"
      ],
      "command": "/usr/bin/caponier"
    }`
	args := `["--config","/etc/cap onier/config.toml","serve"]`
	goose := "  caponier:\n    type: stdio\n    name: caponier\n    cmd: \"/usr/bin/caponier\"\n" +
		"    args: " + args + "\n    enabled: true\n    timeout: 900\n"
	codex := "[mcp_servers.caponier]\ncommand = \"/usr/bin/caponier\"\nargs = " + args +
		"\nstartup_timeout_sec = 60\ntool_timeout_sec = 900\n"
	for _, c := range []struct{ client, old, want string }{
		{"cursor", `{}`, "{\n  \"mcpServers\": {\n    " + entry + "\n  }}"},
		{"cursor", "{\n  \"z\": 1.50,\n  \"a\": {\"mcpServers\": {}}\n}\n",
			"{\n  \"mcpServers\": {\n    " + entry + "\n  },\n  \"z\": 1.50,\n  \"a\": {\"mcpServers\": {}}\n}\n"},
		{"zed", `{"theme":"x","context_servers":{"b":{"command":"c"}},"n":1e3}`,
			`{"theme":"x","context_servers":{` + "\n    " + entry + `,"b":{"command":"c"}},"n":1e3}`},
		{"claude-desktop", `{"mcpServers":{ }}`, `{"mcpServers":{` + "\n    " + entry + ` }}`},
		{"codex", "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n\n\n",
			"# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n\n" + codex},
		{"goose", "# mine\nextensions:\n  other:\n    cmd: y\nA: 1\n",
			"# mine\nextensions:\n" + goose + "  other:\n    cmd: y\nA: 1\n"},
		{"goose", "A: 1\n", "A: 1\nextensions:\n" + goose},
	} {
		path := file(t, c.client, c.old)
		if _, err := AddTo(c.client, path, server); err != nil {
			t.Errorf("%s %q: %v", c.client, c.old, err)
			continue
		}
		if got := content(t, path); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.client, got, c.want)
		}
		backup, _ := filepath.Glob(path + ".before-caponier-*")
		if len(backup) != 1 || content(t, backup[0]) != c.old {
			t.Errorf("%s: the old file: %q", c.client, backup)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: %v %v", c.client, info.Mode(), err)
		}
		done, err := AddTo(c.client, path, server)
		if err != nil || !strings.Contains(done, "nothing was changed") ||
			content(t, path) != c.want {
			t.Errorf("%s: a second time: %q %v", c.client, done, err)
		}
	}
}

func TestAddToRefusesWhatItCannotKeep(t *testing.T) {
	for _, c := range []struct{ claim, client, old, want string }{
		{"no JSON", "cursor", "// mine\n{}", "cannot be read as .json"},
		{"an empty file", "cursor", "", "cannot be read as .json"},
		{"another type", "cursor", `{"mcpServers":[]}`, "mcpServers is no table"},
		{"another entry", "cursor", `{"mcpServers":{"caponier":{"command":"x"}}}`, "another entry"},
		{"the same key twice", "cursor", `{"mcpServers":{},"mcpServers":{"a":{}}}`, "safely"},
		{"no TOML", "codex", "a = ", "cannot be read as .toml"},
		{"a table in one line", "codex", "mcp_servers = {}\n", "safely"},
		{"no YAML", "goose", "\ta: b", "cannot be read as .yaml"},
		{"a map in one line", "goose", "extensions: {a: {cmd: b}}\n", "safely"},
	} {
		path := file(t, c.client, c.old)
		_, err := AddTo(c.client, path, server)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("%s: %v", c.claim, err)
		}
		left, _ := os.ReadDir(filepath.Dir(path))
		if content(t, path) != c.old || len(left) != 1 {
			t.Errorf("%s: left %v", c.claim, left)
		}
	}
	path := file(t, "cursor", "{}")
	link := filepath.Join(filepath.Dir(path), "100%safe.json")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := AddTo("cursor", link, server); err == nil ||
		!strings.Contains(err.Error(), link+" is not a regular file") || content(t, path) != "{}" {
		t.Errorf("a link: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "none", "mcp.json")
	if _, err := AddTo("cursor", missing, server); err == nil ||
		!strings.Contains(err.Error(), "is Cursor installed?") {
		t.Errorf("no client: %v", err)
	}
}

// A file that is not there yet is the snippet that the examples show.
func TestSnippetsAreThoseOfTheExamples(t *testing.T) {
	s := Server{Command: "/usr/local/bin/caponier",
		Args: []string{"--config", "/etc/caponier/config.toml", "serve"}}
	for client, example := range map[string]string{
		"claude-desktop": "claude_desktop_config.json", "claude-code": "claude-code.json",
		"vscode": "vscode-mcp.json", "cursor": "cursor-mcp.json", "codex": "codex-config.toml",
		"gemini": "gemini-settings.json", "goose": "goose-config.yaml", "zed": "zed-settings.json",
	} {
		path := filepath.Join(t.TempDir(), filepath.Base(clients[client].file))
		if _, err := AddTo(client, path, s); err != nil {
			t.Errorf("%s: %v", client, err)
			continue
		}
		have, err := clients[client].read([]byte(content(t, path)))
		if err != nil {
			t.Errorf("%s: %v", client, err)
		}
		want, err := clients[client].read([]byte(content(t, "../../examples/clients/"+example)))
		if err != nil {
			t.Errorf("%s: %v", example, err)
		}
		a, _ := json.Marshal(have)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s writes\n%s\n%s has\n%s", client, a, example, b)
		}
	}
	if len(Clients()) != 8 {
		t.Errorf("clients: %q", Clients())
	}
}

// What AddTo wrote, RemoveFrom takes away to the byte; anything else stays.
func TestRemoveFromGivesTheOldFileBack(t *testing.T) {
	for _, c := range []struct{ client, old, want string }{
		{"cursor", `{}`, "{\n  \"mcpServers\": {\n  }}"},
		{"cursor", "", ""},
		{"zed", `{"theme":"x","context_servers":{"b":{"command":"c"}},"n":1e3}`, "same"},
		{"claude-desktop", `{"mcpServers":{ }}`, "same"},
		{"codex", "# mine\nmodel = \"x\"\n", "same"},
		{"goose", "# mine\nextensions:\n  other:\n    cmd: y\nA: 1\n", "same"},
	} {
		path := file(t, c.client, c.old)
		if c.old == "" { // a file that AddTo made goes with its entry
			_ = os.Remove(path)
		}
		if _, err := AddTo(c.client, path, server); err != nil {
			t.Fatal(err)
		}
		if _, err := RemoveFrom(c.client, path, server); err != nil {
			t.Errorf("%s %q: %v", c.client, c.old, err)
			continue
		}
		if c.want == "same" {
			c.want = c.old
		}
		if _, err := os.Stat(path); c.old == "" {
			if err == nil {
				t.Errorf("%s is left", path)
			}
		} else if got := content(t, path); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.client, got, c.want)
		}
		done, err := RemoveFrom(c.client, path, server)
		if err != nil || !strings.Contains(done, "nothing was changed") {
			t.Errorf("%s: a second time: %q %v", c.client, done, err)
		}
	}
}

func TestRemoveFromRefusesWhatItDidNotWrite(t *testing.T) {
	for _, c := range []struct{ claim, client, old, want string }{
		{"no JSON", "cursor", "// mine\n{}", "cannot be read as .json"},
		{"another entry", "cursor", `{"mcpServers":{"caponier":{"command":"x"}}}`, "in another form"},
		{"another entry in TOML", "codex", "[mcp_servers.caponier]\ncommand = \"x\"\n", "in another form"},
		{"another entry in YAML", "goose", "extensions:\n  caponier: {cmd: x}\n", "in another form"},
	} {
		path := file(t, c.client, c.old)
		_, err := RemoveFrom(c.client, path, server)
		left, _ := os.ReadDir(filepath.Dir(path))
		if err == nil || !strings.Contains(err.Error(), c.want) || content(t, path) != c.old ||
			len(left) != 1 {
			t.Errorf("%s: %v, left %v", c.claim, err, left)
		}
	}
	path := file(t, "cursor", "{}")
	link := filepath.Join(filepath.Dir(path), "link.json")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveFrom("cursor", link, server); err == nil ||
		!strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a link: %v", err)
	}
}

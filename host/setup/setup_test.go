package setup

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
)

// plan is an installation in a new directory, from the files of this repository.
func plan(t *testing.T) Plan {
	t.Helper()
	shipped, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new", "caponier")
	return Plan{Dir: dir, State: filepath.Join(dir, "state"), Shipped: shipped,
		Nodes: []Node{{Name: "pve1", Host: "192.0.2.10", User: "root", Port: 22,
			HostKey: "SHA256:" + strings.Repeat("A", 43)}}}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestWriteMakesFilesOfThisUserAlone(t *testing.T) {
	p := plan(t)
	public, err := p.Write()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, p.Dir),
		" "); got != "config.toml installed.json secrets site state" {
		t.Errorf("made %s", got)
	}
	for name, want := range map[string]os.FileMode{"config.toml": 0o600, "site/data.yaml": 0o600,
		"secrets/id_ed25519": 0o600, "secrets": os.ModeDir | 0o700, "state": os.ModeDir | 0o700} {
		info, err := os.Stat(filepath.Join(p.Dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if !strings.HasPrefix(content(t, filepath.Join(p.Dir, "secrets/id_ed25519.pub")), public) {
		t.Error("the public key is another")
	}
	site := content(t, filepath.Join(p.Dir, "site/data.yaml"))
	if !strings.Contains(
		site,
		"\nprincipals:\n  local: {auth: [config, token], roles: [viewer]}\n\n#",
	) ||
		strings.Contains(site, "agent-a") {
		t.Errorf("the site grants more:\n%.900s", site)
	}
	config := content(t, p.Config())
	for _, want := range []string{"\naccept_risks = false\n", "\nread_only = true\n",
		"\n[export]\ndir = \"" + p.State + "/export\"\n", "\nhost_key = \"SHA256:A"} {
		if !strings.Contains(config, want) {
			t.Errorf("config.toml lacks %s", want)
		}
	}
}

func TestWriteOverwritesNothingAndLeavesNothing(t *testing.T) {
	for _, there := range []string{"config.toml", "site/x", "secrets/x"} {
		p := plan(t)
		path := filepath.Join(p.Dir, there)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write(); err == nil ||
			!strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("%s: %v", there, err)
		}
		if got := names(t, p.Dir); len(got) != 1 || content(t, path) != "mine" {
			t.Errorf("%s: left %q", there, got)
		}
	}
	for _, c := range []struct {
		claim string
		spoil func(*Plan)
	}{
		{"an account that is not there", func(p *Plan) { p.Account = "no-such-account" }},
		{"an archive that is not there", func(p *Plan) { p.Shipped = "/nonexistent" }},
		{"a state directory that cannot be", func(p *Plan) { p.State = "/dev/null/state" }},
	} {
		p := plan(t)
		c.spoil(&p)
		if _, err := p.Write(); err == nil {
			t.Errorf("%s: no error", c.claim)
		}
		if _, err := os.Stat(filepath.Dir(p.Dir)); err == nil {
			t.Errorf("%s: left %q in %q", c.claim, names(t, p.Dir), names(t, filepath.Dir(p.Dir)))
		}
	}
}

func TestWriteGivesTheAccountWhatItNeeds(t *testing.T) {
	if os.Getuid() != 0 {
		needs.Skip(t, "only root gives files away")
	}
	u, err := user.Lookup("daemon")
	if err != nil {
		t.Fatal(err)
	}
	p := plan(t)
	p.Account = u.Username
	if _, err := p.Write(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"config.toml": "0:1 -rw-r-----",
		"secrets/id_ed25519": "1:1 -rw-------", "site": "0:1 drwxr-x---", "state": "1:1 drwx------",
		".": "0:1 drwxr-x---"} {
		if got := owned(t, filepath.Join(p.Dir, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestParseNode(t *testing.T) {
	for text, want := range map[string]Node{
		"pve1=192.0.2.10":               {"pve1", "192.0.2.10", "root", 22, ""},
		"pve-2=pve.example:2222":        {"pve-2", "pve.example", "root", 2222, ""},
		"p=2001:db8::1":                 {"p", "2001:db8::1", "root", 22, ""},
		"p=[2001:db8::1]:22":            {"p", "2001:db8::1", "root", 22, ""},
		"192.0.2.10":                    {},
		"p=":                            {},
		"p=-oProxyCommand=x":            {},
		"p=a b":                         {},
		"p='$(x)'":                      {},
		"p q=a":                         {},
		"p=a:0":                         {},
		"p=a:ssh":                       {},
		"p=a;reboot":                    {},
		"pve1=root@192.0.2.10":          {},
		"p=" + strings.Repeat("a", 300): {},
	} {
		n, err := ParseNode(text, Gate)
		if n != want || (err == nil) != (want != Node{}) {
			t.Errorf("%q: %+v, %v", text, n, err)
		}
	}
	if n, err := ParseNode("p=a", Sudo); err != nil || n.User != "caponier" {
		t.Errorf("%+v %v", n, err)
	}
}

// Nothing but the node goes, however the file is written.
func TestWithoutNodeTakesNothingElse(t *testing.T) {
	const node = "[remote]\ntimeout = \"9s\"\n[[remote.nodes]]\nname = \"a\"\n"
	for _, c := range []struct{ below, left string }{
		{"  [export]\n  x = 1\n\n\t[approval]\ny = 2\n",
			"  [export]\n  x = 1\n\n\t[approval]\ny = 2\n"},
		{"  [[remote.nodes.jump]]\n  host = \"j\"\n\n  # mine\n  [export]\n",
			"  # mine\n  [export]\n"},
		{"[[remote.nodes]]\nname = \"b\"\n", "[[remote.nodes]]\nname = \"b\"\n"},
		{"[ remote.more ]\nx = 1\n", "[ remote.more ]\nx = 1\n"},
		{"", ""},
		{"x = [\n[1],\n]\n", "!"}, // no table, but a list
		{"[[ remote.nodes.jump ]]\nhost = \"j\"\n", "!"}, // it would be another node's
		{"[[remote.nodes.jump]]\n[\"export\"]\n", "[\"export\"]\n"},
		{"text = \"\"\"\n[x]\n\"\"\"\n", "!"},
	} {
		file := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(file, []byte(node+c.below), 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := WithoutNode(file, 0, 3)
		if c.left == "!" {
			if err == nil || !strings.Contains(err.Error(), "cannot be told from the rest") {
				t.Errorf("%q: %v\n%s", c.below, err, text)
			}
		} else if want := "[remote]\ntimeout = \"9s\"\n" + c.left; err != nil ||
			string(text) != want {
			t.Errorf("%q: %v\n%s\nwant\n%s", c.below, err, text, want)
		}
	}
}

// A cache that was there before init is not the host's, and goes only when it is named.
func TestUninstallKeepsACacheOfSomebodyElse(t *testing.T) {
	for _, before := range []bool{true, false} {
		p := plan(t)
		theirs := filepath.Join(p.State, "cache", "theirs")
		p.Dir = filepath.Join(t.TempDir(), "caponier")
		if !before {
			if _, err := p.Write(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(theirs, 0o700); err != nil {
			t.Fatal(err)
		}
		if before {
			if _, err := p.Write(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(theirs); (err == nil) != before {
			t.Errorf("there before init: %v; %v", before, err)
		}
	}
}

// What is changed while the question stands open stays.
func TestRemoveLooksAgain(t *testing.T) {
	for claim, change := range map[string]func(file string) error{
		"a file that was edited": func(file string) error {
			return os.WriteFile(file, []byte("mine"), 0o600)
		},
		"a directory in its place": func(file string) error {
			return errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "mine"), 0o700))
		},
	} {
		for _, name := range []string{"config.toml", "secrets/id_ed25519"} {
			p := plan(t)
			if _, err := p.Write(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(p.Dir, name)
			s, err := Open(p.Dir)
			if err == nil {
				err = change(file)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = s.Remove()
			if err == nil || !strings.Contains(err.Error(), file+" was changed meanwhile") {
				t.Errorf("%s, %s: %v", claim, name, err)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", claim, err)
			}
			if content(t, filepath.Join(p.Dir, "installed.json")) == "" {
				t.Error("the record is gone")
			}
		}
	}
}

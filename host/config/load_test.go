package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type probe struct {
	AcceptRisks bool        `koanf:"accept_risks"`
	Remote      remoteTable `koanf:"remote"`
}
type remoteTable struct {
	Workspace string        `koanf:"workspace"`
	Timeout   time.Duration `koanf:"timeout"`
	Sessions  int           `koanf:"sessions"`
	Token     string        `koanf:"token"     secret:"true"`
	Nodes     []nodeTable   `koanf:"nodes"`
	Now       func()        `koanf:"-"`
}
type nodeTable struct {
	Name  string `koanf:"name"`
	Login `       koanf:",squash"`
}

// Login is exported because an embedded struct has to be, to be decoded.
type Login struct {
	IdentityFile string `koanf:"identity_file"`
	Password     string `koanf:"password"      secret:"true"`
}

func write(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLoad(t *testing.T) {
	t.Setenv("SECRET_PW", "hunter2")
	p := write(
		t,
		"accept_risks = true\n[remote]\nworkspace = 'w'\ntimeout = '30s'\nsessions = 5\ntoken='${file:tok}'\n[[remote.nodes]]\nname='a'\nidentity_file='keys/id'\npassword='${SECRET_PW}'\n",
	)
	if err := os.WriteFile(filepath.Join(filepath.Dir(p), "tok"), []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c probe
	if err := load(p, []string{"CAPONIER_REMOTE_SESSIONS=7", "CAPONIER_REMOTE_TIMEOUT=1m", "HOME=/x", "CAPONIER_CONFIG=x"}, &c); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(p)
	if !c.AcceptRisks || c.Remote.Workspace != dir+"/w" || c.Remote.Timeout != time.Minute ||
		c.Remote.Sessions != 7 ||
		c.Remote.Token != "abc" ||
		c.Remote.Nodes[0].IdentityFile != dir+"/keys/id" ||
		c.Remote.Nodes[0].Password != "hunter2" ||
		c.Remote.Nodes[0].Name != "a" {
		t.Errorf("%+v", c)
	}
	if err := load(write(t, ""), []string{"I_ACCEPT_RISKS=true"}, &c); err != nil ||
		!c.AcceptRisks {
		t.Errorf("I_ACCEPT_RISKS: %v", err)
	}
}

func TestLoadRefusesAndSaysWhere(t *testing.T) {
	for name, tt := range map[string]struct {
		text, env, why string
	}{
		"unknown key":            {"[remote]\nworkspce='x'", "", "unknown key remote.workspce (known here: nodes, sessions"},
		"unknown table":          {"[remotes]\n", "", "unknown key remotes"},
		"unknown key in a list":  {"[[remote.nodes]]\nnam='x'", "", "unknown key remote.nodes[0].nam"},
		"key in another case":    {"[remote]\nWorkspace='x'", "", "unknown key remote.Workspace"},
		"wrong type":             {"[remote]\nsessions='five'", "", "sessions"},
		"bad duration":           {"[remote]\ntimeout='soon'", "", "timeout"},
		"broken TOML":            {"[remote\n", "", "config.toml"},
		"unknown variable":       {"", "CAPONIER_REMOTE_WORKSPCE=x", "CAPONIER_REMOTE_WORKSPCE"},
		"variable for a list":    {"", "CAPONIER_REMOTE_NODES=x", "set it in the file"},
		"variable of wrong type": {"", "CAPONIER_ACCEPT_RISKS=perhaps", "want true or false"},
		"reference elsewhere":    {"[remote]\nworkspace='${HOME}'", "", "remote.workspace: ${…} is only for secrets"},
		"unset reference":        {"[remote]\ntoken='${NOT_SET_AT_ALL}'", "", "remote.token: environment variable NOT_SET_AT_ALL is not set"},
		"reference in a value":   {"[remote]\ntoken='x${HOME}'", "", "must be the whole value"},
		"missing file":           {"[remote]\ntoken='${file:nope}'", "", "remote.token: open"},
	} {
		t.Run(name, func(t *testing.T) {
			var env []string
			if tt.env != "" {
				env = []string{tt.env}
			}
			err := load(write(t, tt.text), env, &probe{})
			if err == nil || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want one with %q", err, tt.why)
			}
		})
	}
	p := write(t, "")
	if err := os.Chmod(p, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := load(p, nil, &probe{}); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file that others can write: %v", err)
	}
}

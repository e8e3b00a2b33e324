package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

type probe struct {
	AcceptRisks bool        `koanf:"accept_risks"`
	Remote      remoteTable `koanf:"remote"`
}
type remoteTable struct {
	Workspace string        `koanf:"workspace" path:"true"`
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
	IdentityFile string `koanf:"identity_file" path:"true"`
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

// load reads a file that holds a probe.
func load(path string, environ []string, dst *probe) error {
	l := &loader{file: path}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return l.read(data, environ, reflect.ValueOf(dst).Elem())
}

func TestLoad(t *testing.T) {
	t.Setenv("SECRET_PW", "hunter2")
	p := write(
		t,
		"accept_risks = true\n[remote]\nworkspace = 'w'\ntimeout = '30s'\nsessions = 5\n"+
			"token='${file:tok}'\n[[remote.nodes]]\nname='a'\nidentity_file='keys/id'\n"+
			"password='${SECRET_PW}'\n",
	)
	if err := os.WriteFile(filepath.Join(filepath.Dir(p), "tok"), []byte("abc\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	var c probe
	if err := load(p, []string{"CAPONIER_REMOTE_SESSIONS=7", "CAPONIER_REMOTE_TIMEOUT=1m",
		"HOME=/x", "CAPONIER_CONFIG=x"}, &c); err != nil {
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
		"unknown key": {"[remote]\nworkspce='x'", "",
			"config.toml:2: unknown key remote.workspce (known here: nodes, sessions"},
		"unknown table": {"\n[remotes]\n", "", "config.toml:2: unknown key remotes"},
		"unknown key in a list": {"[[remote.nodes]]\nname='a'\n[[remote.nodes]]\nnam='x'", "",
			"config.toml:4: unknown key remote.nodes[1].nam"},
		"key in another case": {"[remote]\nWorkspace='x'", "", "unknown key remote.Workspace"},
		"wrong type": {"[remote]\nsessions='five'", "",
			`config.toml:2: remote.sessions: want an integer, got "five"`},
		"text for a list": {"[remote]\nnodes='x'", "", `remote.nodes: want a list, got "x"`},
		"bad duration":    {"[remote]\ntimeout='soon'", "", "remote.timeout: want a duration"},
		"number for a duration": {"[remote]\ntimeout=60", "",
			`config.toml:2: remote.timeout: 60 has no unit: write "60s"`},
		"variable without a unit": {"", "CAPONIER_REMOTE_TIMEOUT=60", `write "60s"`},
		"broken TOML":             {"a=1\n[remote\n", "", "config.toml:2: column 8: toml: "},
		"unknown variable":        {"", "CAPONIER_REMOTE_WORKSPCE=x", "CAPONIER_REMOTE_WORKSPCE"},
		"variable for a list":     {"", "CAPONIER_REMOTE_NODES=x", "set it in the file"},
		"variable of wrong type":  {"", "CAPONIER_ACCEPT_RISKS=perhaps", "want true or false"},
		"reference elsewhere": {"[remote]\nworkspace='${HOME}'", "",
			"config.toml:2: remote.workspace: ${…} is only for secrets"},
		"unset reference": {"[remote]\ntoken='${NOT_SET_AT_ALL}'", "",
			"remote.token: environment variable NOT_SET_AT_ALL is not set"},
		"reference in a value": {"[remote]\ntoken='x${HOME}'", "", "must be the whole value"},
		"missing file":         {"[remote]\ntoken='${file:nope}'", "", "remote.token: "},
		"secret in a folder":   {"[remote]\ntoken='${file:/}'", "", "is not a regular file"},
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
}

func TestFilesThatOthersCouldChangeAreRefused(t *testing.T) {
	open := write(t, "")
	fifo := filepath.Join(t.TempDir(), "config.toml")
	if err := errors.Join(os.Chmod(open, 0o666), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{open: "chmod go-w", fifo: "a FIFO"} {
		if _, err := Load(path, nil); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

func TestTablesAreValidatedAndTheirLineIsNamed(t *testing.T) {
	for text, why := range map[string]string{
		"\n[blob]\nmax_bytes = -5":       "config.toml:3: blob.max_bytes: ",
		"[front]\nmetrics = '0.0.0.0:1'": "config.toml:2: front.metrics: ",
		"[identity]\n\nhttp = 'x'":       "config.toml:3: identity.http: ",
		"[tools]\nenable = []":           "config.toml:2: tools.enable: ",
		"[approval]\nwait = '45s'\nexpires = '1d'": "config.toml:3: approval.expires: want a " +
			"duration",
		"[[remote.nodes]]\nname = 'a b'": "config.toml:2: remote.nodes[0].name: ",
		"[identity]\ntokens_in_store = true": "config.toml:2: identity.tokens_in_store: there is " +
			"no store that hosts share",
	} {
		if _, err := Load(write(t, text), nil); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", text, err, why)
		}
	}
}

func TestLinesOfKeys(t *testing.T) {
	lines, _ := linesOf([]byte("a = 1\n[t.u]\n# c\nb = 2\n\"q\\u0041\" = 1\n[[l]]\nx = 1\n[[l]]\n" +
		"x = 2\n[l.sub]\ny = { z = 1 }\n[[l.m]]\nw = 1"))
	for key, want := range map[string]int{"a": 1, "t.u": 2, "t.u.b": 4, "l[0].x": 7, "l[1].x": 9,
		"l[1].sub.y": 11, "l[1].m[0].w": 13, "none": 0} {
		if got := lines[key]; got != want {
			t.Errorf("%s: line %d, want %d", key, got, want)
		}
	}
}

func TestTheCallerInATerminalIsNotTheHostItself(t *testing.T) {
	for _, id := range []string{"", "host"} {
		if p, err := (&Config{CLI: CLI{Principal: id}}).Caller(); err == nil {
			t.Errorf("%q is let in as %+v", id, p)
		}
	}
}

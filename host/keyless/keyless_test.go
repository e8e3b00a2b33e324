package keyless

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a shell script in place of caponier-keyless, and returns options that name it.
func program(t *testing.T, text string) Options {
	t.Helper()
	dir := t.TempDir()
	o := Options{filepath.Join(dir, "program"), filepath.Join(dir, "root.json")}
	for file, data := range map[string]string{o.Program: "#!/bin/sh\n" + text,
		o.TrustedRoot: `{"a":"root"}`} {
		if err := os.WriteFile(file, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestTheProgramGetsTheQuestionAndNothingElse(t *testing.T) {
	t.Setenv("CAPONIER_SECRET", "x")
	dir := t.TempDir()
	o := program(t, fmt.Sprintf(`PATH=/usr/bin:/bin; cat > %s/asked; export -p > %s/environment
echo '{"issuer":"https://i","subject":"s"}'`, dir, dir))
	got, err := o.Identity(t.Context(), []byte("a \"bundle\"\n"), "sha256:00")
	if err != nil || got != (Identity{"https://i", "s"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	var asked map[string]string
	if err := json.Unmarshal(text, &asked); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 3 || asked["trusted_root"] != `{"a":"root"}` ||
		asked["bundle"] != "a \"bundle\"\n" || asked["digest"] != "sha256:00" {
		t.Errorf("asked %q", asked)
	}
	environment, err := os.ReadFile(filepath.Join(dir, "environment"))
	if err != nil || strings.Contains(string(environment), "CAPONIER") {
		t.Errorf("%v: %s", err, environment)
	}
}

func TestMalformedAnswersAreRefused(t *testing.T) {
	for _, c := range []struct{ what, script, want string }{
		{"a refusal", `printf %s '{"error":"no\u001b[31m such\nlog"}'`, "no such log"},
		{"an identity with a refusal", `echo '{"issuer":"i","subject":"s","error":"but"}'`, "but"},
		{"nothing", `true`, "its answer"},
		{"no issuer", `echo '{"subject":"s"}'`, "no identity"},
		{"no subject", `echo '{"issuer":"i","subject":""}'`, "no identity"},
		{"more than is known", `echo '{"issuer":"i","subject":"s","more":1}'`, "its answer"},
		{"a key twice", `echo '{"issuer":"i","subject":"s","subject":"t"}'`, "its answer"},
		{"two answers", `echo '{"issuer":"i","subject":"s"}{}'`, "its answer"},
		{"without end", `yes`, "its answer"},
		{"an answer that failed", `echo '{"issuer":"i","subject":"s"}'; echo why >&2; exit 2`,
			"exit status 2: why"},
		{"a crash", `kill -9 $$`, "killed: it wrote nothing"},
	} {
		script := strings.Replace(c.script, "yes", "PATH=/usr/bin:/bin; yes | head -c 1000000", 1)
		got, err := program(t, script).Identity(t.Context(), nil, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || got != (Identity{}) {
			t.Errorf("%s: %+v, %v; want %q", c.what, got, err, c.want)
		}
	}
}

func TestAProgramThatHangsIsKilledWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	o := program(t, "PATH=/usr/bin:/bin; : > "+dir+"/begun; exec sleep 1000")
	go func() {
		for {
			if _, err := os.Stat(dir + "/begun"); err == nil {
				cancel()
				return
			}
		}
	}()
	if _, err := o.Identity(ctx, nil, ""); err == nil ||
		!strings.Contains(err.Error(), "killed before it answered: context canceled") {
		t.Errorf("%v", err)
	}
}

func TestFilesThatOthersCanChangeAreNotUsed(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Options)
		want   string
	}{
		{"nothing set", func(o *Options) { *o = Options{} }, "set program and trusted_root"},
		{"no program", func(o *Options) { o.Program += "x" }, "no such file"},
		{"a directory", func(o *Options) { o.Program = filepath.Dir(o.Program) },
			"not a regular file"},
		{"a program that others can change", func(o *Options) { os.Chmod(o.Program, 0o777) },
			"the program that verifies"},
		{"a root that others can change", func(o *Options) { os.Chmod(o.TrustedRoot, 0o666) },
			"reading the trusted root"},
		{"no root", func(o *Options) { o.TrustedRoot += "x" }, "reading the trusted root"},
		{"not to be executed", func(o *Options) { os.Chmod(o.Program, 0o600) },
			"permission denied"},
	} {
		o := program(t, `echo '{"issuer":"i","subject":"s"}'`)
		c.change(&o)
		if _, err := o.Identity(t.Context(), nil, ""); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

func TestBothKeysOrNeither(t *testing.T) {
	for o, want := range map[Options]string{{}: "", {"p", "r"}: "", {"p", ""}: "trusted_root is",
		{"", "r"}: "program is"} {
		err := o.Validate()
		if got := fmt.Sprint(err); err == nil != (want == "") || !strings.HasPrefix(got, want) &&
			want != "" {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

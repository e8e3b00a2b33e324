package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// said returns the exit code of a command line, and what it said on the standard error.
func said(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	was := os.Stderr
	os.Stderr = file
	code = execute(t.Context(), args)
	os.Stderr = was
	data, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(data)
}

// TestAWrongCommandLineSaysWhatIsWanted gives each verb one argument more than any takes.
func TestAWrongCommandLineSaysWhatIsWanted(t *testing.T) {
	verbs := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		many := strings.Fields("a b c d e f g h")
		if !c.Runnable() || c.Name() == "help" || c.Args == nil || c.Args(c, many) == nil {
			return
		}
		verbs++
		line := append(strings.Fields(c.CommandPath())[1:], many...)
		if code, text := said(t, line...); code != exitUsage ||
			!strings.Contains(text, "want: "+c.UseLine()) {
			t.Errorf("%s: exit %d, %s", c.CommandPath(), code, text)
		}
	}
	walk(rootCommand())
	if verbs < 20 {
		t.Errorf("only %d verbs were asked", verbs)
	}
	for _, c := range []struct{ line, want string }{
		{"policy suggest", "want: caponier policy suggest --principal ID"},
		{"plugin dev nowhere tool", "caponier plugin new NAME"},
		{"plugin verify x --key usage_test.go", "usage_test.go: "},
		{"plugin verify x --allowed-signers usage_test.go", "usage_test.go: line "},
	} {
		if code, text := said(t, strings.Fields(c.line)...); code != exitUsage ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: exit %d, %q", c.line, code, text)
		}
	}
}

// TestAFreezeOfNobodyIsTold freezes names that may be misspelt, of whoever may come in.
func TestAFreezeOfNobodyIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	write := func(oidc string) {
		text := "[cli]\nprincipal = \"ann\"\n[[identity.principals]]\nid = \"bob\"\n" + oidc
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const provider = "[identity.oidc]\nissuer = \"https://id.example.org\"\n" +
		"audience = \"https://caponier.example.org/mcp\"\n"
	const caller = "[[identity.oidc.callers]]\nclaim = \"0815\"\nprincipal = \"eve\"\n"
	for _, c := range []struct {
		oidc, name string
		told       bool
	}{{"", "ann", false}, {"", "bob", false}, {"", "bop", true}, {provider, "bop", false},
		{provider + caller, "bop", true}, {provider + caller, "eve", false}} {
		write(c.oidc)
		code, text := said(t, "--config", file, "freeze", "--principal", c.name)
		if code != exitDone || strings.Contains(text, "is it spelt so?") != c.told {
			t.Errorf("%+v: exit %d, %s", c, code, text)
		}
	}
}

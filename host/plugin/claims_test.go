package plugin

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

func TestClaimsThatContradictTheGrammarAreErrors(t *testing.T) {
	tiers := map[string]terms.Tier{"pct exec": terms.Yellow, "pct status": terms.Green,
		"pct destroy": terms.Red}
	const used = `"imports":["ssh_exec","sftp_get"]`
	hints := func(readOnly, destructive string) string {
		return `"hints":{"read_only":` + readOnly + `,"destructive":` + destructive
	}
	commands := func(list string) string { return `"commands":[` + list + `]` }
	for name, x := range map[string]struct {
		readOnly, destructive, commands string
		imports                         string
		want                            []string // in the error; none: there is none
	}{
		"destructive with a yellow one":    {"false", "true", `"pct exec"`, used, nil},
		"destructive with a red one":       {"false", "true", `"pct destroy"`, used, nil},
		"read-only with a green one":       {"true", "false", `"pct status"`, used, nil},
		"not destructive, with yellow one": {"false", "false", `"pct exec"`, used, nil},
		"read-only with a yellow one": {"true", "false", `"pct status","pct exec"`, used, []string{
			`plugin containers: tool exec: claims read_only and declares the command "pct exec", ` +
				`which is yellow: write "read_only": false`}},
		"read-only with a red one": {"true", "false", `"pct destroy"`, used, []string{
			`"pct destroy", which is red: write "read_only": false (in Go: ReadOnly: false)`}},
		"not destructive with a red one": {"false", "false", `"pct destroy"`, used, []string{
			`claims not to be destructive and declares the command "pct destroy", which is red: ` +
				`write "destructive": true`}},
		"a command that is not there": {"false", "true", `"pct staus"`, used, []string{
			"declares the command \"pct staus\", which the command grammar does not have",
			"`caponier policy grammar`"}},
		"an import that no tool declares": {"false", "true", `"pct exec"`, `"imports":["ssh_exec"]`,
			[]string{
				`the module imports sftp_get, which none of its tools declares`,
				`write "sftp_get" into "imports"`}},
		"all at once": {"true", "false", `"pct destroy","nothing"`, `"imports":["ssh_exec"]`,
			[]string{
				"read_only", `"nothing"`, "sftp_get"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := entry(t, hints("false", "true"), hints(x.readOnly, x.destructive),
				commands(`"pct exec"`), commands(x.commands), `"imports":["ssh_exec"]`, x.imports)
			err := e.Claims(tiers)
			if (err != nil) != (len(x.want) > 0) {
				t.Fatal(err)
			}
			for _, want := range x.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q", err, want)
				}
			}
		})
	}
	// without the grammar, every command is unknown
	if err := entry(t, `"imports":["ssh_exec"]`, used).Claims(nil); err == nil {
		t.Error("a plugin is held to no grammar")
	}
}

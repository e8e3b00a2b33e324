package reverse

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEveryCommandHasAReverseOrSaysWhyNot(t *testing.T) {
	for text, want := range map[string]string{
		"pct start 105":           "pct shutdown 105",
		"qm stop 201":             "qm start 201",
		"pct snapshot 105 before": "pct delsnapshot 105 before",
		"pct rollback 105 before": "none: what changed since the snapshot is gone",
		"pct destroy 105":         "none: the guest and its disks are gone",
		"pct set 105 --memory 5": "none: the values before are in the guest's " +
			"configuration",
		"systemctl stop -- nginx":           "systemctl start nginx",
		"systemctl enable nginx":            "systemctl disable nginx",
		"systemctl enable --now nginx":      "none: no reverse of this command is known",
		"systemctl stop a b":                "none: no reverse of this command is known",
		"pct stop --overrule-shutdown 1 10": "none: no reverse of this command is known",
		"systemctl restart -- nginx":        "none: the service has restarted",
		"zpool scrub tank":                  "none: no reverse of this command is known",
		"pct snapshot":                      "none: no reverse of this command is known",
		"systemctl daemon-reload":           "none: no reverse of this command is known",
		"pct pull 105 /a /planned/1/":       "not needed",
	} {
		if got := Command(strings.Fields(text), false).String(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := Command([]string{"pct", "set", "105", "--memory", "5"}, true); !got.Config {
		t.Errorf("with the values kept: %+v", got)
	}
}

func TestKeptFilesCanBeRestored(t *testing.T) {
	for _, tt := range []struct {
		action       string
		exists, kept bool
		want         string
	}{
		{"put", false, false, "remove /a"},
		{"put", true, false, "none: what '/a' holds now is replaced"},
		{"put", true, true, "put back what is there, which the host keeps first"},
		{"remove", true, false, "none: the file is gone"},
		{"remove", true, true, "put back what is there, which the host keeps first"},
		{"get", true, true, "not needed"},
	} {
		if got := File(tt.action, "/a", tt.exists, tt.kept).String(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestPreviousValuesAreRestored(t *testing.T) {
	was := map[string]string{"memory": "512", "onboot": "0", "description": "two words"}
	for text, want := range map[string]string{
		"pct set 105 --memory 1024":          "pct set 105 --memory 512",
		"pct set 105 -memory=1024 --cores 2": "pct set 105 --memory 512 --delete cores",
		"pct set 105 --delete onboot,swap":   "pct set 105 --onboot 0 --delete swap",
		"qm set 105 --description x --delete cores ": "qm set 105 --description two words " +
			"--delete cores",
	} {
		got, err := Config(strings.Fields(text), was)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"qm set 105 --cipassword x", "pct set 105",
		"pct set 105 --memory",
		"pct set 105 memory 5", "qm set 105 --delete sshkeys", "pct set 105 --revert memory"} {
		if got, err := Config(strings.Fields(text), was); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestWhatACommandChangesIsNamed(t *testing.T) {
	for text, want := range map[string]string{"pct stop 105": "guest:105",
		"systemctl stop -- nginx": "unit:nginx.service",
		"systemctl stop a.timer":  "unit:a.timer", "pct stop": "", "rm /a b": "",
		"pct stop --x 1 105": ""} {
		if got := About(strings.Fields(text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// The tool that undoes calls declares what the table runs, and no more.
func TestTheToolThatUndoesDeclaresEveryReverse(t *testing.T) {
	text, err := os.ReadFile("../../plugins.lock")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Plugins []struct {
			Describe struct {
				Tools []struct {
					Name     string
					Commands []string
				}
			}
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for _, p := range lock.Plugins {
		for _, tool := range p.Describe.Tools {
			if tool.Name == "undo_call" {
				slices.Sort(tool.Commands)
				if !slices.Equal(tool.Commands, commands()) {
					t.Errorf("declared %q, in the table %q", tool.Commands, commands())
				}
				return
			}
		}
	}
	t.Error("plugins.lock has no tool undo_call")
}

// commands returns every command that takes something back, sorted: what a tool that undoes calls
// has to declare.
func commands() (all []string) {
	for program, table := range programs {
		for _, e := range table {
			if e.command != "" {
				all = append(all, program+" "+e.command)
			}
		}
	}
	all = append(all, "pct rollback", "qm rollback")
	slices.Sort(all)
	return slices.Compact(all)
}

package pve

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
)

type run struct {
	ID     string   `json:"id"`
	Argv   []string `json:"argv"`
	Exit   int      `json:"exit"`
	Stdout string   `json:"stdout"`
	Stderr string   `json:"stderr"`
}

// recorded reads the runs of the real commands, by file and id.
func recorded(t *testing.T) map[string]run {
	t.Helper()
	files, err := filepath.Glob("../../../test/pvelab/testdata/pve/*.jsonl")
	if err != nil || len(files) < 10 {
		t.Fatalf("recorded runs: %d files, %v", len(files), err)
	}
	all := map[string]run{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r run
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[strings.TrimSuffix(filepath.Base(name), ".jsonl")+" "+r.ID] = r
		}
	}
	return all
}

func TestRecordedErrorsHaveTheirCodes(t *testing.T) {
	all := recorded(t)
	for id, code := range map[string]string{
		"01-read pct-status-missing":                 "not_found",
		"01-read node-missing":                       "not_found",
		"01-read path-missing":                       "bad_parameter",
		"01-read pvesm-status-nope":                  "not_found",
		"01-read wol-noconf":                         "not_found",
		"02-argv exec-stopped":                       "not_running",
		"02-argv exec-missing-ct":                    "not_found",
		"02-argv pvesh-extra-param":                  "bad_parameter",
		"02-argv nonroot":                            "permission",
		"03-transfer push-perms-bad":                 "bad_parameter",
		"03-transfer push-user-bad":                  "bad_parameter",
		"03-transfer push-dest-is-dir":               "bad_parameter",
		"03-transfer push-stopped":                   "not_running",
		"03-transfer push-missing-args":              "bad_parameter",
		"03-transfer pull-missing-clobbers":          "not_found",
		"03-transfer pull-bad-destdir":               "not_found",
		"03-transfer pull-stopped":                   "not_running",
		"04-lifecycle ct-on-other-node-start":        "not_found",
		"04-lifecycle pvesh-start-running":           "already_running",
		"04-lifecycle stop-stopped":                  "not_running",
		"04-lifecycle pvesh-reboot-stopped":          "not_running",
		"04-lifecycle start-locked":                  "locked",
		"04-lifecycle config-lock-held":              "locked",
		"04-lifecycle pvesh-shutdown-timeout":        "timeout",
		"04-lifecycle pvesh-start-broken":            "not_found",
		"05-qm start-template":                       "template",
		"05-qm start-running":                        "already_running",
		"05-qm destroy-running":                      "running",
		"05-qm snapshot-dup":                         "exists",
		"05-qm del-missing":                          "not_found",
		"06-snapshot-destroy pvesh-snap-unsupported": "unsupported",
		"06-snapshot-destroy destroy-protected":      "protected",
		"06-snapshot-destroy pvesh-destroy-running":  "running",
		"06-snapshot-destroy snap-locked":            "locked",
		"07-cluster remote-missing":                  "not_found",
		"07-cluster remote-stop-notrunning":          "not_running",
		"07-cluster remote-start-fail":               "failed",
		"07-cluster wol-nomac":                       "bad_parameter",
		"07-cluster wol-unknown":                     "not_found",
		"08-no-quorum pvesh-start":                   "no_quorum",
	} {
		r, ok := all[id]
		if !ok {
			t.Errorf("%s is not among the recorded runs", id)
			continue
		}
		e := Fail("trying",
			sdk.ExecResult{Exit: r.Exit, Stdout: []byte(r.Stdout), Stderr: []byte(r.Stderr)})
		if e.Code != code || e.Suggestion == "" || !strings.HasPrefix(e.Message, "trying: ") ||
			strings.Contains(e.Message, "\n") ||
			strings.Contains(e.Message, "OPTIONS") {
			t.Errorf("%s: %q: %q / %q, want %q", id, e.Code, e.Message, e.Suggestion, code)
		}
	}
}

func TestTextsOfTheSourcesHaveTheirCodes(t *testing.T) {
	for text, code := range map[string]string{
		"VM is locked " +
			"(backup)": "locked",
		"No wake on LAN MAC address defined for " +
			"'pve2'!": "no_mac",
		"unable to open file '/etc/pve/nodes/pve1/lxc/101.conf.tmp.77' - Permission " +
			"denied": "no_quorum",
		"unable to use snapshot name 'current' " +
			"(reserved name)": "bad_parameter",
		"ssh: connect to host 10.0.0.2 port 22: No route " +
			"to host": "unreachable",
		"please run " +
			"as root": "permission",
		"storage 'nope' does " +
			"not exist": "not_found",
		"":               "failed",
		"something else": "failed",
	} {
		if got := Code(text); got != code {
			t.Errorf("%q: %s, want %s", text, got, code)
		}
	}
}

func TestMessagesSayWhatMatters(t *testing.T) {
	for text, want := range map[string]string{
		"proxy handler failed: CT 103 not " +
			"running\n": "CT 103 not running",
		"VM 200 not running\n\nVM 200 not " +
			"running\n": "VM 200 not running",
		"400 Parameter verification failed.\nstorage: No such storage.\npvesm status  " +
			"[OPTIONS]\n": "400 Parameter verification failed.; storage: No such storage.",
		"":                        "it failed without a message",
		strings.Repeat("é", 1000): strings.Repeat("é", 250) + " …",
	} {
		if got := say(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestNumbersAreReadInEveryFormOfProxmoxAndNeverRounded(t *testing.T) {
	var v struct {
		A, B, C, D, E Int
		F, G, H       Float
	}
	if err := json.Unmarshal(
		[]byte(`{"A":512,"B":"2048","C":null,"D":true,"E":2.0,"F":"0.05","G":2,"H":""}`),
		&v); err != nil {
		t.Fatal(err)
	}
	if v.A != 512 || v.B != 2048 || v.C != 0 || v.D != 1 || v.E != 2 || v.F != 0.05 || v.G != 2 ||
		v.H != 0 {
		t.Errorf("%+v", v)
	}
	for _, bad := range []string{`{"A":"x"}`, `{"F":[1]}`, `{"A":{}}`, `{"A":101.7}`,
		`{"A":1e308}`, `{"A":18446744073709551717}`, `{"F":"inf"}`, `{"F":"NaN"}`} {
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestKeyValuesKeepTheirColons(t *testing.T) {
	m := KeyValues(
		"hostname: web01\ndescription: a%3A b\nnet0: name=eth0,hwaddr=AA:BB\n#comment: " +
			"x\nnothing\nrootfs: local:101/x,size=4G\n",
	)
	if m["net0"] != "name=eth0,hwaddr=AA:BB" || m["rootfs"] != "local:101/x,size=4G" ||
		m["hostname"] != "web01" ||
		len(m) != 4 {
		t.Errorf("%v", m)
	}
}

const noLocale = "perl: warning: Setting locale failed.\nperl: warning: Please check that your " +
	"locale settings:\n\tLANGUAGE = (unset),\n\tLC_ALL = (unset),\n\tLANG = \"de_DE.UTF-8\"\n    " +
	"are supported and installed on your system.\nperl: warning: Falling back to the standard " +
	"locale (\"C\").\n"

func TestWarningsOfPerlAreNoComplaint(t *testing.T) {
	for stderr, want := range map[string]string{
		noLocale: "", noLocale + "failed to open /x\n": "failed to open /x\n", "CT is locked " +
			"(backup)\n" + noLocale: "CT is locked (backup)\n",
		"Use of uninitialized value in x\nreal " +
			"reason\n": "real reason\n", "\n \n": "", "\tindented reason\n": "\tindented " +
			"reason\n", "": "",
	} {
		if got := Complaint(sdk.ExecResult{Stderr: []byte(stderr)}); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
	if e := Fail("trying", sdk.ExecResult{Exit: 255, Stderr: []byte(noLocale +
		"CT 101 not running\n")}); e.Message != "trying: CT 101 not running" ||
		e.Code != "not_running" {
		t.Errorf("%+v", e)
	}
}

// A whole number is read the same with and without quotes.
func FuzzInt(f *testing.F) {
	f.Add(int64(2048))
	f.Add(int64(-1 << 62))
	f.Fuzz(func(t *testing.T, n int64) {
		var v struct{ A, B Int }
		b, _ := json.Marshal(map[string]any{"A": n, "B": strconv.FormatInt(n, 10)})
		if err := json.Unmarshal(b, &v); err != nil || int64(v.A) != n || int64(v.B) != n {
			t.Errorf("%s: %+v, %v", b, v, err)
		}
	})
}

// A value that pct config prints is read back unchanged.
func FuzzKeyValues(f *testing.F) {
	f.Add("net0", "name=eth0,hwaddr=AA:BB")
	f.Add("description", "a%3A b")
	f.Fuzz(func(t *testing.T, key, value string) {
		if key == "" || strings.ContainsAny(key, ": \n#") || strings.ContainsAny(value, "\n") ||
			strings.TrimSpace(value) != value {
			return
		}
		if m := KeyValues("a: b\n" + key + ": " + value + "\n"); m[key] != value && key != "a" {
			t.Errorf("%q: %q gave %q", key, value, m)
		}
	})
}

func TestSuggestionsFitWhatWentWrong(t *testing.T) {
	for code, c := range map[string]struct {
		unknown bool
		want    string
	}{
		"connection": {false, "reachable"},
		"host_key":   {false, "Do not try again"},
		"auth":       {false, "does not help"},
		"shell":      {false, "login shell"},
		"timeout":    {false, "may still be running"},
		"lost":       {true, "after the command was sent"},
		"something":  {false, "The message says"},
	} {
		err := Lost(&sdk.OpError{Code: code, Message: "why", Unknown: c.unknown}, "doing")
		e, ok := err.(*sdk.Error)
		if !ok || !strings.Contains(e.Suggestion, c.want) || e.Message != "doing: why" {
			t.Errorf("%s: %+v, want a suggestion with %q", code, err, c.want)
		}
		if ok && code != "connection" && strings.Contains(e.Suggestion, "reachable") {
			t.Errorf("%s: %q is about a node that is reachable", code, e.Suggestion)
		}
	}
	refused := &sdk.Refused{DecisionID: "D"}
	if err := Lost(refused, "doing"); err != refused {
		t.Errorf("a refusal became %v", err)
	}
}

func TestOnlyAnErrorOfTheNodeSuggestsCaponierCheck(t *testing.T) {
	for code, node := range map[string]bool{"connection": true, "lost": true, "auth": true,
		"shell": true, "protocol": true, "shell_output": true, "locale": true, "not_a_file": false,
		"not_a_path": false, "bad_input": false, "not_found": false, "exists": false,
		"too_large": false, "disk_full": false, "internal": false, "permission": false} {
		e := (*sdk.Error)(nil)
		err := Lost(&sdk.OpError{Code: code, Message: "why"}, "doing")
		if !errors.As(err, &e) || e.Suggestion == "" ||
			strings.Contains(e.Suggestion, "caponier check") != node {
			t.Errorf("%s: %q; names caponier check: want %v", code, e.Suggestion, node)
		}
	}
}

func TestTheSuggestionForASnapshotNamesCommands(t *testing.T) {
	e := FailText("x", "snapshot 'a' does not exist")
	for _, command := range []string{"pct listsnapshot", "qm listsnapshot", "execute_ssh"} {
		if e.Code != "not_found" || !strings.Contains(e.Suggestion, command) {
			t.Errorf("%s: %q does not name %s", e.Code, e.Suggestion, command)
		}
	}
}

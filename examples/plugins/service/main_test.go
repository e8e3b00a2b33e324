package main

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

// shown is what systemctl show of systemd 257 prints for these states.
func shown(load, active, result string) sdk.ExecResult {
	return sdk.ExecResult{Stdout: []byte("Result=" + result + "\nNRestarts=2\nLoadState=" + load +
		"\nActiveState=" + active + "\nSubState=x\nActiveEnterTimestamp=\n")}
}

// node answers: the first shows in turn, the last one again and again.
type node struct {
	shows   []sdk.ExecResult
	restart sdk.ExecResult
	log     sdk.ExecResult
	err     map[string]error // by the second word
	ran     []string
}

func (n *node) run(_ string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
	n.ran = append(n.ran, strings.Join(argv, " "))
	if err := n.err[argv[1]]; err != nil && (argv[1] != "show" || len(n.ran) > 1) {
		return sdk.ExecResult{}, err
	}
	switch argv[1] {
	case "restart":
		return n.restart, nil
	case "-u":
		return n.log, nil
	}
	s := n.shows[0]
	if len(n.shows) > 1 {
		n.shows = n.shows[1:]
	}
	return s, nil
}

func TestService(t *testing.T) {
	up, failing := shown("loaded", "active", "success"), shown("loaded", "failed", "exit-code")
	waits := shown("loaded", "activating", "success")
	lines := sdk.ExecResult{Stdout: []byte("2026-11-23T10:00:00+0000 pve1 x[1]: \xffstarted\n")}
	gone := &sdk.OpError{Code: "connection", Message: "gone", Unknown: true}
	type all = []sdk.ExecResult
	for _, c := range []struct {
		claim, tool, args string
		node              node
		text, code        string
	}{
		{"a running one", "service_status", `{"service":"x"}`, node{shows: all{up}, log: lines},
			"x.service on pve1 is active (x), result success, restarted 2 times by systemd.\n" +
				"2026-11-23T10:00:00+0000 pve1 x[1]: \uFFFDstarted", ""},
		{"without its log", "service_status", `{"service":"x.timer","lines":0}`,
			node{shows: all{failing}}, "x.timer on pve1 is failed (x), result exit-code", ""},
		{"one that is not there", "service_status", `{"service":"x"}`,
			node{shows: all{shown("not-found", "inactive", "success")}}, "", "not_found"},
		{"one that is masked", "service_restart", `{"service":"x"}`,
			node{shows: all{shown("masked", "inactive", "success")}}, "", "masked"},
		{"output of something else", "service_status", `{"service":"x"}`,
			node{shows: all{{Stdout: []byte("hello\n")}}}, "", "bad_output"},
		{"no systemd", "service_status", `{"service":"x"}`, node{shows: all{{Exit: 1}}}, "",
			"failed"},
		{"no log", "service_status", `{"service":"x"}`, node{shows: all{up},
			log: sdk.ExecResult{Exit: 1}}, "", "failed"},
		{"a log that is refused", "service_status", `{"service":"x"}`, node{shows: all{up},
			err: map[string]error{"-u": &sdk.Refused{DecisionID: "D1"}}}, "", "refused"},
		{"a restart", "service_restart", `{"service":"x"}`, node{shows: all{up, waits, up}},
			"x.service on pve1 was restarted and is active.", ""},
		{"a plan", "service_restart", `{"service":"x"}`, node{shows: all{failing},
			restart: sdk.ExecResult{Planned: true}}, "x.service on pve1 would be restarted.", ""},
		{"one that does not come up", "service_restart", `{"service":"x"}`,
			node{shows: all{up, failing}}, "", "failed"},
		{"one that never comes up", "service_restart", `{"service":"x"}`,
			node{shows: all{waits}}, "", "failed"},
		{"a restart that fails", "service_restart", `{"service":"x"}`,
			node{shows: all{up}, restart: sdk.ExecResult{Exit: 1}}, "", "failed"},
		{"a node that is lost in it", "service_restart", `{"service":"x"}`, node{shows: all{up},
			err: map[string]error{"restart": gone}}, "", "connection"},
		{"a node that is lost after it", "service_restart", `{"service":"x"}`,
			node{shows: all{up}, err: map[string]error{"show": gone}}, "", "unknown_outcome"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			h := sdktest.New(t)
			h.SSHExec = c.node.run
			out, err := h.Call(c.tool, c.args)
			if err != nil {
				t.Fatal(err)
			}
			code := ""
			if out.Error != nil {
				code = out.Error.Code
			}
			if code != c.code || code == "" && !strings.Contains(out.Text, c.text) {
				t.Errorf("text %q, error %+v; want %q %q", out.Text, out.Error, c.text, c.code)
			}
		})
	}
	if _, err := sdktest.New(t).Call("service_restart", `{"service":"-x"}`); err == nil {
		t.Error("a unit that is an option is accepted")
	}
}

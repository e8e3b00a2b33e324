package policy_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/redact"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// The value of a redacted argument is in nothing that is journaled or said.
func TestRedactedValuesAreMaskedEverywhere(t *testing.T) {
	e := site(t, lab)
	long := strings.Repeat("Str0ng-é", 20)
	tests := []struct{ name, secret, text string }{
		{"word of a command", "hunter2-x", "uptime hunter2-x"},
		{"part of a word", "hunter2-x", "mysql --password=hunter2-x"},
		{"in quotes", "hunter2 x\"y", `mysql -p 'hunter2 x"y'`},
		{"in the program's place", "hunter2-x", "hunter2-x now"},
		{"longer than a message shows", long, "mysql --password=" + long},
		{"in command text that is not understood", "hunter2-x", "echo $(hunter2-x"},
		{"in text within a command", "hunter2-x", "sh -c 'mysql -phunter2-x'"},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			call, op := sshCall(x.text)
			args := map[string]any{
				"auth": map[string]any{"password": x.secret},
				"note": "see " + x.secret,
			}
			call.Call.Args.Value, op.Call.Args.Value = args, args
			call.Call.Args.Scalars = map[string]any{"note": "see " + x.secret}
			op.Call.Args.Scalars = call.Call.Args.Scalars
			for _, q := range []terms.Question{call, op} {
				d := decide(t, e, q)
				said, err := json.Marshal(d.Denied)
				if err != nil || d.Allow || len(d.Denied) == 0 || !json.Valid(d.Input) {
					t.Fatalf("%v: allowed %v, %s", err, d.Allow, d.Input)
				}
				for _, part := range []string{x.secret, strings.ReplaceAll(x.secret, "é", "?"),
					x.secret[:7]} {
					if strings.Contains(string(d.Input), part) ||
						strings.Contains(string(said), part) {
						t.Errorf("%s stands in\n%s\n%s", part, d.Input, said)
					}
				}
				if !strings.Contains(string(d.Input), masked) {
					t.Errorf("nothing is masked in %s", d.Input)
				}
				if !d.Masked {
					t.Error("the record would be replayed although it is not whole")
				}
			}
		})
	}
}

func TestRedactedCommandTextIsMaskedInTheOperationThatRunsIt(t *testing.T) {
	e := site(t, lab)
	call, op := sshCall(`uptime 'hunter2 y' "$x"`)
	call.Call.Commands[0].Arg = "token"
	op.Call.Commands = call.Call.Commands
	cmd := shell.Lowerer{}.Script("uptime 'hunter2 y'")
	op.Cmd = &cmd
	for _, q := range []terms.Question{call, op} {
		d := decide(t, e, q)
		if said, _ := json.Marshal(d.Denied); strings.Contains(
			string(d.Input)+string(said),
			"hunter2",
		) {
			t.Errorf("%s\n%s", d.Input, said)
		}
	}
}

func TestWhatIsNotRedactedStays(t *testing.T) {
	e := site(t, lab)
	call, _ := sshCall("rm hunter2-x")
	call.Call.Args.Value = map[string]any{"note": "hunter2-x", "password": "abc"}
	d := decide(t, e, call)
	if !strings.Contains(string(d.Input), `"hunter2-x"`) ||
		strings.Contains(string(d.Input), masked) {
		t.Errorf("%s", d.Input)
	}
	if d, err := e.Decide(context.Background(), call); err != nil ||
		!strings.Contains(d.Denied[0].Msg, `"rm" is not a command`) {
		t.Errorf("%v %v", err, d.Denied)
	}
}

// A person who is asked sees every argument, and of those that the site redacts no value: not in
// another argument, not in a command, not in a target.
func TestApproversSeeNoRedactedValue(t *testing.T) {
	e := site(t, lab)
	for _, secret := range []string{"hunter2-x", strings.Repeat("long-secret", 40)} {
		c := callOf("delete_guest", []string{"vmids"}, "ssh_exec")
		c.Targets.VMIDs = []string{"102"}
		c.Args.Value = map[string]any{
			"vmid":     int64(102),
			"password": secret,
			"note":     "it is " + secret,
			"list":     []any{map[string]any{"token": "other-" + secret, "as": secret}},
			"yes":      true,
		}
		c.Args.Scalars = map[string]any{"vmid": int64(102), "note": "it is " + secret}
		cmd := shell.Lowerer{}.Script("qm list '" + secret + "'")
		cmd.Arg, cmd.Text = "command", "qm list '"+secret+"'"
		c.Commands = []terms.Command{cmd}
		c.Targets.Paths = []string{"/srv/" + secret}
		d := decide(
			t,
			e,
			terms.Question{
				ID:   "q",
				Kind: terms.KindCall,
				Call: c,
				Facts: terms.Facts{
					Counts: terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1},
				},
			},
		)
		if strings.Contains(string(d.Shown)+string(d.Input), secret) ||
			strings.Contains(string(d.Shown), secret[:8]) {
			t.Errorf("it is in\n%s\n%s", d.Shown, d.Input)
		}
		if !d.NeedsApproval {
			t.Logf("refused for %v", d.Failed)
			c.Commands, c.Targets.Paths = nil, nil
			d = decide(
				t,
				e,
				terms.Question{
					ID:   "q",
					Kind: terms.KindCall,
					Call: c,
					Facts: terms.Facts{
						Counts: terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1},
					},
				},
			)
		}
		want := `{"list":[{"as":"[redacted]","token":{"redacted":true}}],"note":"it is ` +
			`[redacted]","password":{"redacted":true},"vmid":102,"yes":true}`
		if !d.NeedsApproval || string(d.Shown) != want ||
			strings.Join(d.Obligations.Channels, " ") != "cli web" {
			t.Errorf(
				"needs approval %v (%v) on %v, shown %s",
				d.NeedsApproval,
				d.Failed,
				d.Obligations.Channels,
				d.Shown,
			)
		}
		if string(c.Args.Value["password"].(string)) != secret {
			t.Error("showing changed the call")
		}
	}
}

func TestRequestIsDecidedWithItsQueryAndJournaledWithoutItsSecrets(t *testing.T) {
	q := statusCall()
	q.Kind, q.Facts = terms.KindOperation, terms.Facts{}
	for _, x := range []struct{ query, kept string }{
		{"action=list&page=2", "action=list&page=2"},
		{"action=list&token=hunter2", masked},
		{"action=list&Token=hunter2", masked},
		{"t%6Fken=hunter2", masked},
		{"a=1;password=hunter2", masked},
		{"user[password]=hunter2", masked},
		{"bad=%zz&x=hunter2", masked},
	} {
		q.Op = abi.HTTPRequest{
			Method:  "POST",
			URL:     "https://a.example/x?" + x.query,
			Headers: [][2]string{{"X-B", "1"}, {"accept", "2"}, {"x-b", "3"}},
			Data:    abi.Data{Text: "body"},
		}
		r := input.Of(&q, nil).(*input.Operation).HTTP
		if r.Query != x.query || strings.Join(r.Headers, " ") != "accept x-b" ||
			r.BodySHA256 != digest("body") {
			t.Errorf("%s: decided on %+v", x.query, r)
		}
		doc, something := journaled(&q, []string{"toKen", "password"})
		kept := string(doc)
		if strings.Contains(kept, "hunter2") || something != (x.kept == masked) ||
			!strings.Contains(kept, `"query":"`+x.kept+`"`) {
			t.Errorf("%s: journaled %s", x.query, kept)
		}
	}
}

func TestDigestOfARedactedValueIsNotKept(t *testing.T) {
	q := statusCall()
	q.Call.Args.Scalars = map[string]any{"user": "bob", "Password": "4711"}
	q.Call.Args.Digest = "sha256:guessable"
	for _, kind := range []terms.Kind{terms.KindCall, terms.KindOperation} {
		q.Kind = kind
		doc, something := journaled(&q, []string{"password"})
		if strings.Contains(string(doc), "guessable") || strings.Contains(string(doc), "4711") ||
			!something {
			t.Errorf("%s", doc)
		}
	}
	q.Kind, q.Op, q.Call.Args.Scalars = terms.KindOperation, abi.HTTPRequest{
		Method: "POST",
		URL:    "https://a.example/",
		Data:   abi.Data{Text: "pin=4711"},
	}, nil
	q.Call.Args.Value = map[string]any{"auth": map[string]any{"pin": "4711"}}
	doc, _ := journaled(&q, []string{"pin"})
	if strings.Contains(string(doc), digest("pin=4711")) {
		t.Errorf("%s", doc)
	}
	q.Call.Args.Value = map[string]any{"note": "nothing secret"}
	if doc, something := journaled(&q, []string{"pin"}); something ||
		!strings.Contains(string(doc), "guessable") {
		t.Errorf("masked for nothing: %s", doc)
	}
}

const masked = "[redacted]"

func digest(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// journaled returns what the journal holds of a question if a site redacts these arguments.
func journaled(q *terms.Question, args []string) ([]byte, bool) {
	in := input.Of(q, nil)
	return redact.New(q.Call, args).Journaled(in)
}

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// reads matches what reaches a node for green operations, and for the host itself: how the login
// shell reads quotes, what a unit is called.
var reads = regexp.MustCompile(`^(pvesh get |(pct|qm) (status|config|listsnapshot) |printf |` +
	`sha256sum -- |systemctl (is-active|show) |uptime|hostname|date |locale )`)

// made matches the directories that the host makes for one call.
var made = regexp.MustCompile(`/\S*caponier\S*/|/planned/\d+/`)

// planned is what a test reads of a plan.
type plannedCall struct {
	Complete bool   `json:"complete"`
	Ends     string `json:"ends"`
	Steps    []struct {
		Op, Does, Tier string
		Allowed        bool
		Command        *struct {
			Calls []struct{ Argv []string }
		}
	}
}

// commands returns the commands of the plan's steps, with the host's directories as one.
func (p plannedCall) commands() (all []string) {
	for _, s := range p.Steps {
		if s.Command != nil {
			for _, c := range s.Command.Calls {
				all = append(all, made.ReplaceAllString(strings.Join(c.Argv, " "), "/made/"))
			}
		}
	}
	return all
}

// planSite returns a site on which every tool above green waits for the user of the client, who
// approves. The questions to the user are appended to asked.
func planSite(t *testing.T, tiers string, modules ...string) (s *site, session *mcp.ClientSession,
	asked *[]string) {
	t.Helper()
	s = newSite(t, modules...)
	s.rewrite(t,
		"\ntiers:\n", "\ntiers:\n"+tiers,
		"target_calls_per_minute: 60", "target_calls_per_minute: 600",
		"  write: []", "  write: [/opt]",
		"# \"tool:proxmox_", "\"tool:proxmox_",
		": yellow\n", ": red\n",
	)
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	text = regexp.MustCompile(`(?m)^  channels: .*`).ReplaceAll(text,
		[]byte("  channels: [client]"))
	text = regexp.MustCompile(`(?s)\n  tools: \[proxmox_start.*?\]`).ReplaceAll(text,
		[]byte("\n  tools: []"))
	must(t, os.WriteFile(data, text, 0o644))
	work := filepath.Join(s.dir, "lab/workspace/demo")
	must(t, os.MkdirAll(work, 0o700))
	must(t, os.WriteFile(filepath.Join(work, "app.conf"), []byte("port = 1\n"), 0o600))
	must(t, os.MkdirAll(filepath.Join(work, "site", "css"), 0o700))
	must(t, os.WriteFile(filepath.Join(work, "site", "index"), []byte("one\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(work, "site", "css", "a"), []byte("b\n"), 0o600))
	cmd := s.command("serve")
	cmd.Stderr = t.Output()
	asked = new([]string)
	yes := &mcp.ClientOptions{ElicitationHandler: func(_ context.Context,
		r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		*asked = append(*asked, r.Params.Message)
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}, nil
	}}
	session, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, yes).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	t.Cleanup(func() { session.Close() })
	return s, session, asked
}

// plan plans a call.
func plan(t *testing.T, session *mcp.ClientSession, tool string,
	args map[string]any) (p plannedCall, text string) {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args,
		Meta: mcp.Meta{"io.caponier/plan": true}})
	must(t, err)
	keepsItsPromise(t, tool, res)
	for _, c := range res.Content {
		if part, ok := c.(*mcp.TextContent); ok {
			text += part.Text + "\n"
		}
	}
	b, err := json.Marshal(res.Meta["io.caponier/plan"])
	must(t, err)
	must(t, json.Unmarshal(b, &p))
	planFits(t, b)
	return p, text
}

// planFits holds a plan against docs/plan.schema.json.
func planFits(t *testing.T, plan []byte) {
	t.Helper()
	text, err := os.ReadFile("../docs/plan.schema.json")
	must(t, err)
	var schema jsonschema.Schema
	must(t, json.Unmarshal(text, &schema))
	resolved, err := schema.Resolve(nil)
	must(t, err)
	var v any
	must(t, json.Unmarshal(plan, &v))
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, plan)
	}
}

// since returns the commands that reached a node after the first n effects, with the host's
// directories as one, and whether they only read.
func since(s *site, n int) (changes, all []string) {
	for _, e := range s.lab.Effects()[n:] {
		line := e.Kind + " " + e.Op + " " + e.Path
		if e.Kind == "guest" { // within a pct exec
			continue
		}
		if e.Kind == "exec" {
			if e.Via != "" || len(e.Argv) == 0 {
				continue
			}
			line = made.ReplaceAllString(strings.Join(e.Argv, " "), "/made/")
			if !reads.MatchString(line) {
				changes = append(changes, line)
			}
		} else if !isLook(e) {
			changes = append(changes, line)
		}
		all = append(all, line)
	}
	return changes, all
}

func isLook(e pvelab.Effect) bool {
	return slices.Contains([]string{"stat", "lstat", "realpath", "readlink", "read", "list", "open",
		"opendir", "readdir", "fstat", "init", "version"}, e.Op)
}

// Every shipped tool with operations above green makes a complete plan without an effect, and its
// approved call does exactly the steps of the plan.
func TestEveryToolMakesACompletePlanAndKeepsIt(t *testing.T) {
	withSchemas(t)
	s, session, asked := planSite(t, "", filepath.Join(plugins, "guests.wasm"),
		filepath.Join(plugins, "cluster.wasm"), filepath.Join(plugins, "hostops.wasm"))
	type args = map[string]any
	called := map[string]bool{}
	for _, c := range []struct {
		tool        string
		args        args
		would, does string
	}{
		{"proxmox_container_exec_command", args{"vmid": 101, "command": "hostname"}, "would be run",
			"web01"},
		{"proxmox_upload_file_to_container", args{"vmid": 101, "local_path": "app.conf",
			"container_path": "/root/app.conf"}, "would be uploaded", "9 bytes"},
		{"proxmox_download_file_from_container",
			args{"vmid": 101, "container_path": "/root/app.conf", "local_path": "back.conf"},
			"would be downloaded", "9 bytes"},
		{"proxmox_start_container", args{"vmid": 104}, "would be started", "is now running"},
		{"proxmox_stop_container", args{"vmid": 104, "graceful": true, "timeout": 5},
			"would be stopped", "is now stopped"},
		{"start_vm", args{"node": "pve1", "vmid": 200}, "would be started", "is now running"},
		{"restart_vm", args{"node": "pve1", "vmid": 200}, "would be restarted", "is running again"},
		{"stop_vm", args{"node": "pve1", "vmid": 200}, "would be stopped", "is now stopped"},
		{"start_container", args{"node": "pve1", "vmid": 104}, "would be started",
			"is now running"},
		{"restart_container", args{"node": "pve1", "vmid": 104}, "would be restarted",
			"is running again"},
		{"stop_container", args{"node": "pve1", "vmid": 104}, "would be stopped", "is now stopped"},
		{"start_guest", args{"guest_id": 104}, "would be started", "is now running"},
		{"restart_guest", args{"guest_id": 104}, "would be restarted", "is running again"},
		{"stop_guest", args{"guest_id": 104, "timeout": 5}, "would be stopped", "is now stopped"},
		{"create_snapshot", args{"guest_id": 104, "name": "before", "description": "by a test"},
			"would be made", "is made"},
		{"rollback_snapshot", args{"guest_id": 104, "name": "before"}, "would be restored",
			"is restored"},
		{"delete_snapshot", args{"guest_id": 104, "name": "before"}, "would be deleted",
			"is deleted"},
		{"stop_guest", args{"guest_id": 105, "force": true}, "would be stopped", "is now stopped"},
		{"delete_guest", args{"guest_id": 105}, "would be deleted", "is deleted, with its disks"},
		{"execute_ssh", args{"node": "pve1", "command": "systemctl restart cron"}, "would be run",
			"exit code 0"},
		{"restart_service", args{"node": "pve1", "service": "pveproxy"}, "would be restarted",
			"is active"},
		{"wake_node", args{"node": "pve2"}, "would send", "AA:BB:CC:DD:EE:FF"},
		{"proxmox_host_exec_command", args{"command": "systemctl restart cron"}, "would be run",
			"exit code 0"},
		{"proxmox_upload_file_to_host", args{"local_path": "app.conf",
			"host_path": "/opt/app.conf"}, "would be uploaded", "9 bytes"},
		{"proxmox_download_file_from_host", args{"host_path": "/etc/hostname",
			"local_path": "hostname"}, "would be downloaded", "Downloaded /etc/hostname"},
		{"proxmox_download_directory_from_host", args{"host_dir": "/var/log",
			"local_dir": "logs"}, "would download", "Downloaded /var/log"},
		{"proxmox_upload_directory_to_host", args{"local_dir": "site", "host_dir": "/opt/site"},
			"would upload site to /opt/site on pve1: 2 files, 6 bytes",
			"Uploaded site to /opt/site on pve1: 2 files, 6 bytes"},
	} {
		called[c.tool] = true
		t.Run(fmt.Sprint(c.tool, c.args), func(t *testing.T) {
			n := len(s.lab.Effects())
			p, text := plan(t, session, c.tool, c.args)
			if !p.Complete || len(p.Steps) == 0 || !strings.Contains(text, c.would) {
				t.Errorf("the plan is complete: %v (%s), %d steps; want %q:\n%s", p.Complete,
					p.Ends, len(p.Steps), c.would, text)
			}
			if changes, _ := since(s, n); len(changes) > 0 {
				t.Errorf("planning did this on a node: %q", changes)
			}
			n, *asked = len(s.lab.Effects()), nil
			how, _, said := outcome(t, session, c.tool, c.args)
			if how != "succeeded" || !strings.Contains(said, c.does) || len(*asked) != 1 {
				t.Fatalf("the call: %s, asked %q, want %q: %s", how, *asked, c.does, said)
			}
			done, all := since(s, n)
			done = slices.DeleteFunc(done, func(l string) bool {
				return strings.HasPrefix(l, "sftp ")
			})
			if want := p.commands(); !slices.Equal(done, want) {
				t.Errorf("the node saw\n%q\nthe plan says\n%q\nall: %q", done, want, all)
			}
		})
	}
	// planned and approved in undocall_test.go, where there is a call to undo
	called["undo_call"] = true
	for key, want := range promised {
		name := strings.TrimPrefix(key, "tool:")
		if want.tier != "green" && want.tier != "black" && want.plugin != "web" &&
			want.plugin != "llm" && !called[name] {
			t.Errorf("%s is not planned", name)
		}
	}
}

// A tool that plans one thing and does another reaches a node with nothing that was not on the plan
// that a person approved.
func TestADeviatingToolIsHeldToItsPlan(t *testing.T) {
	s, session, asked := planSite(t, "  \"tool:deviant_act\": red\n",
		filepath.Join(guests, "deviant.wasm"))
	other := "the approved plan has another next step: "
	for _, c := range []struct {
		how     string
		asked   int
		done    []string
		outcome string
		said    string
	}{
		{"option", 1, []string{"pct stop 101"}, "succeeded", other +
			"pct shutdown 101 --timeout 60 on pve1"},
		{"order", 1, []string{"pct stop 101", "pct start 101"}, "succeeded", other +
			"pct start 101 on pve1"},
		{"twice", 1, []string{"pct stop 101"}, "succeeded",
			"the plan that was approved has no more steps"},
		{"hides", 1, []string{"pct stop 101"}, "succeeded",
			"the plan that was approved has no more steps"},
		{"error", 0, nil, "refused",
			"the plan is not complete: after step 1, with an error of the tool"},
		{"less", 1, []string{"pct stop 101"}, "succeeded", "done as planned"},
		// The client makes the call again with the answer, and then the plan is another.
		{"clock", 3, nil, "refused", "approval.unsteady"},
	} {
		t.Run(c.how, func(t *testing.T) {
			n := len(s.lab.Effects())
			*asked = nil
			how, _, said := outcome(t, session, "deviant_act",
				map[string]any{"vmid": 101, "how": c.how})
			if how != c.outcome || !strings.Contains(said, c.said) {
				t.Errorf("%s, want %s with %q: %s", how, c.outcome, c.said, said)
			}
			if done, _ := since(s, n); !slices.Equal(done, c.done) {
				t.Errorf("the node saw %q, want %q", done, c.done)
			}
			if len(*asked) != c.asked {
				t.Errorf("a person was asked %q, want %d questions", *asked, c.asked)
			}
		})
	}
	n := len(s.lab.Effects())
	*asked = nil
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "deviant_act",
		Arguments: map[string]any{"vmid": 101, "how": "never"}})
	if done, _ := since(s, n); err == nil || !strings.Contains(err.Error(), "budget of 8s") ||
		strings.Contains(err.Error(), "may be done") || len(done)+len(*asked) > 0 {
		t.Errorf("a plan without end: %v, asked %q, the node saw %q", err, *asked, done)
	}
	s.journaled(t, `"type":"refused".*"tool":"deviant_act".*"failed":\["planned"\]`)
}

package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newCallers returns a site with three principals that have tokens. Alice and bob may do the same.
// Carol reaches only one node, which is pve1 with another login that pve1 refuses.
func newCallers(t *testing.T) *site {
	t.Helper()
	s := newSite(t, filepath.Join(guests, "callers.wasm"))
	s.rewrite(
		t,
		"  demo: {auth: [config, token], roles: [operator]}",
		"  alice: {auth: [token], roles: [operator]}\n  bob: {auth: [token], roles: [operator]}\n"+
			"  carol: {auth: [token], roles: [edge]}",
		"\nroles:\n",
		"\nroles:\n  edge: {tools: [\"*\"], imports: [ssh_exec, blob_read, blob_write], ceiling: "+
			"yellow, nodes: [edge], commands: [\"*\"]}\n",
		"\ntiers:\n",
		"\ntiers:\n  \"prompt:callers_check\": green\n  \"resource:callers_status\": green\n",
		"calls_per_minute: 120",
		"calls_per_minute: 10000",
		"target_calls_per_minute: 60",
		"target_calls_per_minute: 10000",
	)
	config, err := os.ReadFile(s.config)
	must(t, err)
	pve1 := regexp.MustCompile(`(?s)\[\[remote.nodes\]\]\nname = "pve1".*?\ndefault = true`).
		FindString(string(config))
	edge := strings.NewReplacer(`"pve1"`, `"edge"`, `"root"`, `"carol"`, "\ndefault = true", "").
		Replace(pve1)
	must(
		t,
		os.WriteFile(
			s.config,
			fmt.Appendf(
				config,
				"\n%s\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"alice\"\n"+
					"[[identity.principals]]\nid = \"bob\"\n[[identity.principals]]\nid = "+
					"\"carol\"\n[approval]\nwait = \"100ms\"\napprovers = [\"ann\"]\n",
				edge,
				filepath.Join(s.dir, "tokens.json"),
			),
			0o600,
		),
	)
	return s
}

// Alice and bob work at the same time, each in both protocol eras. What one has, the other
// never gets: results, what plugins remember, blobs, workspaces, sessions, approvals.
func TestCallersNeverMeet(t *testing.T) {
	s := newCallers(t)
	url := s.serveHTTP(t)
	type mine struct{ token, blob string }
	had := map[string]*mine{"alice": {}, "bob": {}}
	for name, m := range had {
		token, err := s.command("token", "new", name).Output()
		must(t, err)
		m.token = strings.TrimSpace(string(token))
	}
	connect := func(name, version string) *mcp.ClientSession {
		session, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil).
			Connect(t.Context(),
				&mcp.StreamableClientTransport{
					Endpoint:   url + "/mcp",
					HTTPClient: &http.Client{Transport: bearer(had[name].token)},
				}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		must(t, err)
		t.Cleanup(func() { session.Close() })
		return session
	}
	sessions := map[string]*mcp.ClientSession{}
	for name, m := range had {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			sessions[name+version] = connect(name, version)
		}
		_, _, blob := outcome(
			t,
			sessions[name+"2025-11-25"],
			"callers_keep",
			map[string]any{"word": "blob of " + name},
		)
		if m.blob = strings.TrimSpace(blob); m.blob == "" {
			t.Fatalf("%s has no blob", name)
		}
	}
	other := map[string]string{"alice": "bob", "bob": "alice"}
	var wg sync.WaitGroup
	for name, me := range had {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			session, them := sessions[name+version], had[other[name]]
			wg.Go(func() {
				for i := range 6 {
					word := fmt.Sprintf("%s-%s-%d", name, version, i)
					for tool, args := range map[string]map[string]any{
						"callers_last":                   {"word": word},
						"callers_long":                   {"word": word},
						"callers_show":                   {"blob": me.blob},
						"proxmox_container_exec_command": {"vmid": 101, "command": "echo " + word},
					} {
						how, _, text := outcome(t, session, tool, args)
						if how != "succeeded" || strings.Contains(text, other[name]) ||
							tool == "callers_last" && !strings.Contains(text, `word was ""`) ||
							tool != "callers_last" && !strings.Contains(text, name) {
							t.Errorf("%s got from %s: %s %.200s", word, tool, how, text)
						}
					}
					if how, _, text := outcome(t, session, "callers_show",
						map[string]any{"blob": them.blob}); how != "failed" ||
						!strings.Contains(text, "no such blob") {
						t.Errorf("%s read the blob of %s: %s", name, other[name], text)
					}
				}
			})
		}
	}
	wg.Wait()

	for name := range had { // a session is its user's
		id := sessions[name+"2025-11-25"].ID()
		for method, body := range map[string]string{
			"POST": `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "GET": "", "DELETE": ""} {
			req, err := http.NewRequest(method, url+"/mcp", strings.NewReader(body))
			must(t, err)
			req.Header = http.Header{
				"Content-Type":         {"application/json"},
				"Accept":               {"application/json, text/event-stream"},
				"Mcp-Session-Id":       {id},
				"Mcp-Protocol-Version": {"2025-11-25"},
			}
			res, err := (&http.Client{Transport: bearer(had[other[name]].token)}).Do(req)
			must(t, err)
			answer, err := io.ReadAll(res.Body)
			must(t, err)
			res.Body.Close()
			if res.StatusCode != http.StatusForbidden ||
				strings.Contains(string(answer), "callers_") {
				t.Errorf(
					"%s: %s in the session of %s: %d %s",
					method,
					other[name],
					name,
					res.StatusCode,
					answer,
				)
			}
		}
		if _, err := sessions[name+"2025-11-25"].ListTools(t.Context(), nil); err != nil {
			t.Errorf("the session of %s afterwards: %v", name, err)
		}
	}

	// An approval for alice does not count for bob, who makes the same call at the same time.
	stop := map[string]any{"vmid": 110, "node": "pve2"}
	how, id, _ := outcome(t, sessions["alice2026-07-28"], "proxmox_stop_container", stop)
	_, bobs, _ := outcome(t, sessions["bob2026-07-28"], "proxmox_stop_container", stop)
	if how != "waiting" || id == bobs {
		t.Fatalf("alice waits as %s in %s, bob in %s", how, id, bobs)
	}
	if out, err := s.command("approvals", "approve", "--as", "ann",
		id).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	ended := make(chan string, 10)
	for _, session := range []string{"alice2025-11-25", "alice2026-07-28", "bob2025-11-25",
		"bob2026-07-28"} {
		wg.Go(func() {
			how, _, _ := outcome(t, sessions[session], "proxmox_stop_container", stop)
			ended <- session[:3] + " " + how
		})
	}
	wg.Wait()
	close(ended)
	var all []string
	for e := range ended {
		all = append(all, e)
	}
	if said := strings.Join(all, ", "); strings.Count(said, "ali succeeded") != 1 ||
		strings.Contains(said, "bob succeeded") {
		t.Errorf("after one yes to alice: %s", said)
	}
}

// Carol has a separate login on the machine that the others reach as root. She never uses their
// connection.
func TestALoginIsNotSharedBetweenAccounts(t *testing.T) {
	s := newCallers(t)
	url := s.serveHTTP(t)
	alice, carol := s.agent(t, url, "alice"), s.agent(t, url, "carol")
	for range 3 {
		if how, _, text := outcome(t, alice, "callers_list",
			map[string]any{}); how != "succeeded" ||
			!strings.Contains(text, "VMID") {
			t.Fatalf("alice: %s %s", how, text)
		}
		if how, _, text := outcome(t, carol, "callers_list",
			map[string]any{"node": "edge"}); how != "failed" ||
			strings.Contains(text, "VMID") ||
			!strings.Contains(text, "carol") {
			t.Errorf("carol as carol: %s %s", how, text)
		}
		if how, _, text := outcome(t, carol, "callers_list",
			map[string]any{"node": "pve1"}); how != "refused" ||
			!strings.Contains(text, "node") {
			t.Errorf("carol as root: %s %s", how, text)
		}
	}
	if how, _, text := outcome(t, carol, "callers_last",
		map[string]any{"word": "x"}); how != "succeeded" ||
		!strings.Contains(text, "edge") ||
		strings.Contains(text, "pve") {
		t.Errorf("a plugin is told of nodes that carol may not see: %s %s", how, text)
	}
}

func TestResourcesThroughTheRealDoor(t *testing.T) {
	s := newCallers(t)
	url := s.serveHTTP(t)
	alice, carol := s.agent(t, url, "alice"), s.agent(t, url, "carol")
	r, err := alice.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "lab://pve1/guests/101"})
	if err != nil || !strings.Contains(r.Contents[0].Text, "status: running") ||
		r.Contents[0].URI != "lab://pve1/guests/101" {
		t.Errorf("%v %+v", err, r)
	}
	for uri, why := range map[string]string{
		"lab://pve1/guests/103":    "protected",
		"lab://pve1/guests/0101":   "must be an integer",
		"lab://nowhere/guests/101": "not in the inventory",
		"lab://pve1/guests/101%20": "not found",
	} {
		if _, err := alice.ReadResource(t.Context(),
			&mcp.ReadResourceParams{URI: uri}); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), why) {
			t.Errorf("%s: %v, want %s", uri, err, why)
		}
	}
	if _, err := carol.ReadResource(t.Context(),
		&mcp.ReadResourceParams{URI: "lab://pve1/guests/101"}); err == nil ||
		!strings.Contains(err.Error(), "node") {
		t.Errorf("carol reads from pve1: %v", err)
	}
	p, err := alice.GetPrompt(
		t.Context(),
		&mcp.GetPromptParams{
			Name:      "callers_check",
			Arguments: map[string]string{"vmid": "101", "node": "pve1"},
		},
	)
	if err != nil || p.Messages[0].Content.(*mcp.TextContent).Text != "Look at guest 101 on pve1." {
		t.Errorf("%v %+v", err, p)
	}
	if _, err := alice.GetPrompt(t.Context(),
		&mcp.GetPromptParams{Name: "callers_check",
			Arguments: map[string]string{"vmid": "103", "node": "pve1"}}); err == nil ||
		!strings.Contains(err.Error(), "protected") {
		t.Errorf("a prompt about a protected guest: %v", err)
	}
	s.journaled(t, `"kind":"call".*"tool":"callers_status".*"vmids":\["101"\]`)
}

// A reload notifies clients only of changes: not of a touched file, but of a tool that a role lost.
func TestAReloadReportsOnlyChanges(t *testing.T) {
	s := newSite(t)
	cmd := s.command("serve")
	changed := make(chan struct{}, 10)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"},
		&mcp.ClientOptions{ToolListChangedHandler: func(context.Context,
			*mcp.ToolListChangedRequest) {
			changed <- struct{}{}
		}}).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd},
			&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	must(t, err)
	defer session.Close()
	_, err = session.ListTools(t.Context(), nil) // which waits until the policy is in force
	must(t, err)
	must(t, cmd.Process.Signal(syscall.SIGHUP))
	must(t, os.Chtimes(filepath.Join(s.dir, "site", "data.yaml"), time.Now(), time.Now()))
	select {
	case <-changed:
		t.Error("told of a change where nothing changed")
	case <-time.After(3 * time.Second):
	}
	s.rewrite(t, "  demo: {", "  nobody: {")
	must(t, cmd.Process.Signal(syscall.SIGHUP))
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Error("not told that the policy changed")
	}
	if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 0 {
		t.Errorf("after the principal was taken away: %v %+v", err, list)
	}
}

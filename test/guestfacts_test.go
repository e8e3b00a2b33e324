package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// byTag returns a site with entries for guests by facts of their cluster.
func byTag(t *testing.T, protected, rest string) *site {
	t.Helper()
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	data := s.read(t, "site/data.yaml")
	with := strings.Replace(data, "\n  hosts: {}\n  services: []\n",
		"\n  hosts: {}\n  services: []\n"+protected, 1)
	if with == data && protected != "" {
		t.Fatal("the site's data has another form")
	}
	s.write(t, "site/data.yaml", with+"\n"+rest+"\n")
	return s
}

// fails makes a call that is refused, and returns what the caller reads.
func (s *site) fails(t *testing.T, tool, args string) string {
	t.Helper()
	out, err := s.command("call", tool, args).CombinedOutput()
	if err == nil {
		t.Fatalf("%s %s: %s", tool, args, out)
	}
	return string(out)
}

// reachedBy returns the commands that reached the nodes, without those that read the cluster.
func (s *site) reachedBy() (reads int, others []string) {
	for _, e := range s.lab.Effects() {
		switch line := strings.Join(e.Argv, " "); {
		case strings.HasPrefix(line, "pvesh get /cluster/resources --output"),
			strings.HasPrefix(line, "pvesh get /cluster/status"):
			reads++
		case strings.HasPrefix(line, "printf"): // how does the login shell read words?
		case e.Kind == "exec" && line != "":
			others = append(others, line)
		}
	}
	return reads, others
}

const prod = "  tags: {prod: {reason: customers use it}}\n"

func tag(t *testing.T, s *site, id int, change func(*pvelab.Guest)) {
	t.Helper()
	must(t, s.lab.Edit(func(st *pvelab.State) error {
		for _, g := range st.Guests {
			if g.VMID == id {
				change(g)
				return nil
			}
		}
		t.Fatalf("the lab has no guest %d", id)
		return nil
	}))
}

func TestAGuestWithAProtectedTagIsProtected(t *testing.T) {
	s := byTag(t, prod, "")
	tag(t, s, 104, func(g *pvelab.Guest) { g.Config["tags"] = "web;PROD" })
	said := s.fails(t, "start_guest", `{"guest_id":104}`)
	if !strings.Contains(said, "guest 104 (") ||
		!strings.Contains(said, "protected by its tag: customers use it") ||
		!strings.Contains(said, "protected/tags/prod") {
		t.Errorf("said %s", said)
	}
	if reads, others := s.reachedBy(); reads != 2 || len(others) > 0 {
		t.Errorf("%d reads of the cluster, and %q", reads, others)
	}
	s.journaled(t, `"type":"refused".*"tool":"start_guest".*"guests":\{"104":\{.*"PROD"`)
	s.journaled(t, `"type":"intent".*"op":"ssh_exec".*"principal":"host".*"tool":"read_cluster"`)
	if out, err := s.command("policy", "replay",
		filepath.Join(s.dir, "site")).CombinedOutput(); err != nil {
		t.Errorf("a replay with the same policy: %v %s", err, out)
	}
	if out, err := s.command("call", "start_guest",
		`{"guest_id":105}`).CombinedOutput(); err != nil {
		t.Errorf("a guest without the tag: %v %s", err, out)
	}
}

// A guest that Proxmox itself protects is refused above green, and its configuration is read only
// there.
func TestAGuestThatProxmoxProtectsIsProtected(t *testing.T) {
	s := byTag(t, "  protection: {reason: Proxmox says so}\n", "")
	if out, err := s.command("call", "get_guest_status",
		`{"guest_id":104}`).CombinedOutput(); err != nil {
		t.Fatalf("a read: %v %s", err, out)
	}
	if reads, _ := s.reachedBy(); reads > 0 || s.has(t, `"tool":"look_at"`) {
		t.Errorf("a read asks for protection: %d reads of the cluster", reads)
	}
	tag(t, s, 104, func(g *pvelab.Guest) { g.Config["protection"] = "1" })
	said := s.fails(t, "start_guest", `{"guest_id":104}`)
	if !strings.Contains(said, "protected by its protection in Proxmox: Proxmox says so") {
		t.Errorf("said %s", said)
	}
	s.journaled(t, `"type":"refused".*"tool":"start_guest".*"guests":\{"104":.*"protection":"on"`)
	s.journaled(t, `"type":"intent".*"op":"ssh_exec".*"principal":"host".*"tool":"look_at"`)
	if out, err := s.command("policy", "replay",
		filepath.Join(s.dir, "site")).CombinedOutput(); err != nil {
		t.Errorf("a replay with the same policy: %v %s", err, out)
	}
	if out, err := s.command("call", "start_guest",
		`{"guest_id":105}`).CombinedOutput(); err != nil {
		t.Errorf("a guest without it: %v %s", err, out)
	}
}

// The host runs on: the guest is made, with its tag, between two calls.
func TestAGuestThatIsMadeBetweenTwoCallsIsProtected(t *testing.T) {
	s := byTag(t, prod, "")
	session := s.stdio(t)
	start := func(id int) *mcp.CallToolResult {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "start_guest",
			Arguments: map[string]any{"guest_id": id}})
		must(t, err)
		return res
	}
	if res := start(104); res.IsError {
		t.Fatalf("%+v", res.Content)
	}
	tag(t, s, 105, func(g *pvelab.Guest) {
		g.VMID, g.Config["tags"] = 120, "prod"
	})
	res := start(120)
	if text := res.Content[0].(*mcp.TextContent).Text; !res.IsError ||
		!strings.Contains(text, "guest 120 (") || !strings.Contains(text, "protected by its tag") {
		t.Errorf("the new guest: %s", text)
	}
	if _, others := s.reachedBy(); strings.Contains(strings.Join(others, "\n"), "120") {
		t.Errorf("reached the node: %q", others)
	}
}

func TestARefusedCallConnectsToNoNode(t *testing.T) {
	s := byTag(t, prod, "")
	for what, args := range map[string]string{"a guest protected by its number": `{"guest_id":103}`,
		"a guest of a node that nobody knows": `{"guest_id":104,"node":"pve9"}`} {
		s.fails(t, "start_guest", args)
		if n := len(s.lab.Effects()); n > 0 {
			t.Errorf("%s: %d effects: %+v", what, n, s.lab.Effects())
		}
	}
	if out, err := s.command("freeze", "--reason", "a drill").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.fails(t, "start_guest", `{"guest_id":104}`)
	if n := len(s.lab.Effects()); n > 0 {
		t.Errorf("frozen: %d effects", n)
	}
}

func TestASiteThatAsksForNoFactsReadsNone(t *testing.T) {
	s := byTag(t, "", "")
	if out, err := s.command("call", "start_guest",
		`{"guest_id":104}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if reads, _ := s.reachedBy(); reads > 0 {
		t.Errorf("%d reads", reads)
	}
	s = byTag(t, prod, "")
	if out, err := s.command("call", "list_nodes", `{}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if s.has(t, `"tool":"read_cluster"`) {
		t.Error("a call that names no guest had the cluster read")
	}
}

// A guest without facts is refused, and the refusal names the cause.
func TestGuestsWithoutFactsAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*testing.T, *site)
		why    string
	}{
		"the cluster has no quorum": {func(t *testing.T, s *site) {
			must(t, s.lab.LoseQuorum(true))
		}, "no quorum"},
		"a list that contradicts itself": {func(t *testing.T, s *site) {
			tag(t, s, 105, func(g *pvelab.Guest) { g.VMID = 104 })
		}, "guest 104 twice"},
		"it is on a node that is not listed": {func(t *testing.T, s *site) {
			tag(t, s, 104, func(g *pvelab.Guest) { g.Node = "pve7" })
		}, "their node sends nothing"},
		"a list without anything": {func(t *testing.T, s *site) {
			must(t, s.lab.Edit(func(st *pvelab.State) error { st.Guests = nil; return nil }))
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := byTag(t, prod, "")
			c.change(t, s)
			said := s.fails(t, "start_guest", `{"guest_id":104}`)
			if c.why != "" && (!strings.Contains(said,
				"what the cluster says of guest 104 is not known") ||
				!strings.Contains(said, c.why)) {
				t.Errorf("said %s", said)
			}
			if _, others := s.reachedBy(); c.why != "" && len(others) > 0 {
				t.Errorf("reached the nodes: %q", others)
			}
		})
	}
}

func TestAGuestThatMovedIsFoundWhereItIs(t *testing.T) {
	s := byTag(t, "", "raised:\n  nodes: {pve2: {tier: black}}\n")
	if out, err := s.command("call", "start_guest",
		`{"guest_id":104}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	tag(t, s, 104, func(g *pvelab.Guest) { g.Node = "pve2" })
	if said := s.fails(t, "stop_guest", `{"guest_id":104,"force":true}`); !strings.Contains(said,
		"guest 104 (") ||
		!strings.Contains(said, "raised to black by its node pve2") {
		t.Errorf("said %s", said)
	}
}

func TestATagMakesACallWaitForAPerson(t *testing.T) {
	s := byTag(t, "", "raised:\n  tags: {prod: {tier: red}}\n")
	if out, err := s.command("call", "start_guest",
		`{"guest_id":104}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	tag(t, s, 104, func(g *pvelab.Guest) { g.Config["tags"] = "prod" })
	if a := s.once(t, "call", "stop_guest", `{"guest_id":104,"force":true}`); a.code != 4 ||
		a.Outcome != "waiting" {
		t.Errorf("%d %s", a.code, a.text)
	}
	for _, what := range [][]string{{"approvals", "list"}, {"audit", "tail", "-n", "20"}} {
		shown, err := s.command(what...).CombinedOutput()
		if err != nil || !strings.Contains(string(shown), "104 (") {
			t.Errorf("%q does not name the guest: %v %s", what, err, shown)
		}
	}
}

func TestCanAnswersWithoutANode(t *testing.T) {
	s := byTag(t, prod, "")
	other := strings.Replace(s.read(t, "site/data.yaml"), "prod: {reason", "web: {reason", 1)
	must(t, os.Mkdir(filepath.Join(s.dir, "other"), 0o755))
	s.write(t, "other/data.yaml", other)
	s.add(t, "\n[tools]\ndisable = [\"restart_guest\"]\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"demo", "restart_guest"}, 2, "is not offered by this host"},
		{[]string{"demo", "start_guest", "103"}, 3, "protected: guest 103 is protected"},
		{[]string{"demo", "start_guest", "104"}, 0, "yes"},
		{[]string{"demo", "start_guest", "104", "--guest", "104:tags=prod,name=db"}, 3,
			"guest 104 (db) is protected by its tag"},
		{[]string{"demo", "start_guest", "pve2"}, 0, "on pve2"},
		{[]string{"demo", "start_guest", "pve9"}, 2, "neither the number of a guest nor a node"},
		{[]string{"demo", "start_geust"}, 2, "no tool"},
		{[]string{"nobody"}, 2, "no principal"},
		{nil, 2, "name a principal of demo"},
		{[]string{"demo", "--guest", "105:colour=red"}, 2, "none of tags, name, pool, node"},
		{[]string{"--diff", filepath.Join(s.dir, "site")}, 0, "0 change"},
		{[]string{"--diff", filepath.Join(s.dir, "other")}, 3, "(tag prod)"},
		{[]string{"--diff", filepath.Join(s.dir, "other"), "--guest", "105:tags=web"}, 3,
			"- demo (config): get_guest_status guest 105"},
		{[]string{"--diff", filepath.Join(s.dir, "other"), "--guest", "105:tags=prod"}, 3,
			"+ demo (config): start_guest guest 105"},
	} {
		out, err := s.command(append([]string{"policy", "can"}, c.args...)...).CombinedOutput()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%q: exit %d, want %d and %q: %.2000s", c.args, code, c.code, c.says, out)
		}
	}
	if n := len(s.lab.Effects()); n > 0 {
		t.Errorf("%d effects", n)
	}
}

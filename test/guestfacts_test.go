package test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// byTag returns a site that says something of guests by what their cluster says of them.
func byTag(t *testing.T, protected, rest string) *site {
	t.Helper()
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	data := s.read(t, "site/data.yaml")
	with := strings.Replace(data, "\n  hosts: {}\n  services: []\n", "\n  hosts: {}\n  services: []\n"+protected, 1)
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
	if !strings.Contains(said, "guest 104 (") || !strings.Contains(said, "protected by its tag: customers use it") ||
		!strings.Contains(said, "protected/tags/prod") {
		t.Errorf("said %s", said)
	}
	if reads, others := s.reachedBy(); reads != 2 || len(others) > 0 {
		t.Errorf("%d reads of the cluster, and %q", reads, others)
	}
	s.journaled(t, `"type":"refused".*"tool":"start_guest".*"guests":\{"104":\{.*"PROD"`)
	s.journaled(t, `"type":"intent".*"op":"ssh_exec".*"principal":"host".*"tool":"read_cluster"`)
	if out, err := s.command("policy", "replay", filepath.Join(s.dir, "site")).CombinedOutput(); err != nil {
		t.Errorf("a replay with the same policy: %v %s", err, out)
	}
	if out, err := s.command("call", "start_guest", `{"guest_id":105}`).CombinedOutput(); err != nil {
		t.Errorf("a guest without the tag: %v %s", err, out)
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

func TestWhatIsRefusedAnywayTouchesNoNode(t *testing.T) {
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
	if out, err := s.command("call", "start_guest", `{"guest_id":104}`).CombinedOutput(); err != nil {
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

// What is not known is refused: whatever the cause, and with it.
func TestGuestsOfWhichNothingIsKnownAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*testing.T, *site)
		why    string
	}{
		"the cluster has no quorum": {func(t *testing.T, s *site) { must(t, s.lab.LoseQuorum(true)) }, "no quorum"},
		"a list that contradicts itself": {func(t *testing.T, s *site) {
			tag(t, s, 105, func(g *pvelab.Guest) { g.VMID = 104 })
		}, "guest 104 twice"},
		"a guest on a node that is not listed": {func(t *testing.T, s *site) {
			tag(t, s, 105, func(g *pvelab.Guest) { g.Node = "pve7" })
		}, "which it does not have"},
		"a list without anything": {func(t *testing.T, s *site) {
			must(t, s.lab.Edit(func(st *pvelab.State) error { st.Guests = nil; return nil }))
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := byTag(t, prod, "")
			c.change(t, s)
			said := s.fails(t, "start_guest", `{"guest_id":104}`)
			if c.why != "" && (!strings.Contains(said, "what the cluster says of guest 104 is not known") ||
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
	if out, err := s.command("call", "start_guest", `{"guest_id":104}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	tag(t, s, 104, func(g *pvelab.Guest) { g.Node = "pve2" })
	if said := s.fails(t, "stop_guest", `{"guest_id":104,"force":true}`); !strings.Contains(said, "guest 104 (") ||
		!strings.Contains(said, "raised to black by its node pve2") {
		t.Errorf("said %s", said)
	}
}

func TestATagMakesACallWaitForAPerson(t *testing.T) {
	s := byTag(t, "", "raised:\n  tags: {prod: {tier: red}}\n")
	if out, err := s.command("call", "start_guest", `{"guest_id":104}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	tag(t, s, 104, func(g *pvelab.Guest) { g.Config["tags"] = "prod" })
	out, err := s.command("call", "--json", "stop_guest", `{"guest_id":104,"force":true}`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `"outcome":"waiting"`) {
		t.Errorf("%v %s", err, out)
	}
	if shown, err := s.command("approvals", "list").CombinedOutput(); err != nil || !strings.Contains(string(shown), "104") {
		t.Errorf("%v %s", err, shown)
	}
}

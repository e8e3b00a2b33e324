package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asShipped makes the site the shipped one: all plugins of plugins.lock, policies/site, and its
// principal local.
func (s *site) asShipped(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(s.config)
	must(t, err)
	text := strings.Replace(string(data), `principal = "demo"`, `principal = "local"`, 1)
	for key, path := range map[string]string{"site": "../policies/site", "lock": "../plugins.lock",
		"dir": plugins} {
		path, err := filepath.Abs(path)
		must(t, err)
		at := map[string]string{"site": filepath.Join(s.dir, "site"),
			"lock": filepath.Join(s.dir, "plugins.lock"),
			"dir":  filepath.Join(s.dir, "plugins")}[key]
		text = strings.Replace(
			text,
			fmt.Sprintf("%s = %q", key, at),
			fmt.Sprintf("%s = %q", key, path),
			1,
		)
	}
	must(t, os.WriteFile(s.config, []byte(text), 0o600))
}

// wire speaks JSON-RPC with a process and counts what arrives, byte for byte.
func wire(t *testing.T, cmd *exec.Cmd, messages ...string) (answers [][]byte) {
	t.Helper()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = t.Output()
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	for _, m := range messages {
		_, err := in.Write([]byte(m + "\n"))
		must(t, err)
		for asked := strings.Contains(m, `"id"`); asked; {
			line, err := lines.ReadBytes('\n')
			must(t, err)
			if asked = !strings.Contains(string(line), `"result"`); !asked {
				answers = append(answers, line)
			}
		}
	}
	must(t, in.Close())
	must(t, cmd.Wait())
	return answers
}

var tierSaid = regexp.MustCompile(` Tier (green|yellow|red: a person approves each call)\.$`)

// oneForEachJob returns the tools of the shipped lock that the shipped site gives a tier that is
// not black, without aliases. Each alias must be of a tool that is there.
func (s *site) oneForEachJob(t *testing.T) (names []string) {
	t.Helper()
	out, err := s.command("tools", "--json").Output()
	must(t, err)
	var rows []struct {
		Name    string `json:"name"`
		AliasOf string `json:"alias_of"`
		Visible bool   `json:"visible"`
	}
	must(t, json.Unmarshal(out, &rows))
	is := map[string]string{}
	for _, r := range rows {
		is[r.Name] = r.AliasOf
	}
	for _, r := range rows {
		if of, there := is[r.AliasOf]; r.AliasOf != "" && (!there || of != "") {
			t.Errorf("%s is an alias of %s, which is no tool of its own", r.Name, r.AliasOf)
		}
		if r.Visible && r.AliasOf == "" {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// An agent reads this list before it can ask for anything.
func TestTheDefaultListIsUnder24KB(t *testing.T) {
	s := newSite(t)
	s.asShipped(t)
	for era, messages := range map[string][]string{
		"2025-06-18": {`{"jsonrpc":"2.0","id":1,"method":"initialize",` +
			`"params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x",` +
			`"version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`},
		"2026-07-28": {`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.` +
			`modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/` +
			`clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x",` +
			`"version":"1"}}}}`},
	} {
		all := wire(t, s.command("serve"), messages...)
		line := all[len(all)-1]
		var list struct {
			Result struct {
				Tools []struct{ Name, Description string }
			}
		}
		must(t, json.Unmarshal(line, &list))
		for _, word := range []string{"x-caponier", `"confirmed"`} {
			if strings.Contains(string(line), word) {
				t.Errorf("%s: the list has %s", era, word)
			}
		}
		if bytes.Contains(line, []byte(`"outputSchema"`)) {
			t.Errorf("%s: the list has output schemas, which nobody asked for", era)
		}
		if len(line) >= 24_000 {
			t.Errorf("%s: the list has %d bytes, want less than 24000", era, len(line))
		}
		var names []string
		for _, tool := range list.Result.Tools {
			names = append(names, tool.Name)
			if !tierSaid.MatchString(tool.Description) {
				t.Errorf("%s: %s does not say its tier: %s", era, tool.Name, tool.Description)
			}
		}
		slices.Sort(names)
		if want := s.oneForEachJob(t); !slices.Equal(names, want) {
			t.Errorf("%s:\n%v, want\n%v", era, names, want)
		}
		t.Logf("%s: %d tools, %d bytes", era, len(list.Result.Tools), len(line))
	}
}

func (s *site) listed(t *testing.T, session *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	must(t, err)
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// refusal is what the journal must say about a refused call: the check that failed, and why.
type refusal struct{ check, why string }

// isMissing checks that a call of a tool is answered as one of a tool that does not exist, that the
// journal has it as a refusal for the reason, and that the tool did nothing.
func (s *site) isMissing(t *testing.T, session *mcp.ClientSession, tool string,
	args map[string]any, want refusal) {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams ||
		wire.Message != fmt.Sprintf("unknown tool %q", tool) || wire.Data != nil {
		t.Errorf("%s: %+v, %v; want the error for a tool that does not exist", tool, res, err)
	}
	s.journaled(t, `"type":"refused".*"kind":"call".*"tool":"`+tool+`".*"failed":\["`+want.check+
		`"\].*"deny":.*"id":"`+want.check+`","msg":"[^"]*`+regexp.QuoteMeta(want.why))
	if s.has(t, `"type":"intent".*"tool":"`+tool+`"`) {
		t.Errorf("%s: the journal has an intent of a refused call", tool)
	}
}

func TestWhatIsNotOfferedIsHiddenAndRefused(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "guests.wasm"), filepath.Join(plugins, "jq.wasm"))
	s.rewrite(t, "argument: false", "argument: true") // what a confirmation could do, it may
	s.add(t, "\n[tools]\ndisable = [\"list_nodes\"]\n")
	reads := []string{
		"get_guest_status",
		"get_storage_pools",
		"jq_query",
		"list_guests",
		"list_snapshots",
	}
	for claim, c := range map[string]struct {
		flags []string
		want  []string
		call  string
		args  map[string]any
		why   refusal
	}{
		"read-only hides and refuses what is above green": {[]string{"--read-only"}, reads,
			"proxmox_stop_container", map[string]any{"vmid": 101, "confirmed": true},
			refusal{"readonly", "read-only mode"}},
		"read-only wins over a tool that is asked for": {[]string{"--read-only", "--tools",
			"delete_guest,jq_query"}, []string{"jq_query"}, "delete_guest",
			map[string]any{"guest_id": 104, "confirmed": true},
			refusal{"readonly", "the host is read-only"}},
		"a toolset that is not selected": {[]string{"--toolsets", "jq"},
			[]string{"jq_query"}, "list_guests", nil,
			refusal{"withheld", "--toolsets and --tools"}},
		"a tool that is excluded": {[]string{"--toolsets", "jq,guests",
			"--exclude-tools", "list_guests", "--read-only"},
			[]string{"get_guest_status", "get_storage_pools", "jq_query", "list_snapshots"},
			"list_guests", nil, refusal{"withheld", "--exclude-tools"}},
		"a tool that the table takes away stays away": {[]string{"--tools", "list_nodes",
			"--toolsets", "jq"}, []string{"jq_query"}, "list_nodes", nil,
			refusal{"withheld", "[tools] disable"}},
		"an alias without the tool that it repeats": {[]string{"--read-only", "--exclude-tools",
			"list_guests"}, []string{"get_guest_status", "get_storage_pools", "jq_query",
			"list_snapshots", "proxmox_list_containers"}, "list_guests", nil,
			refusal{"withheld", "--exclude-tools"}},
		"a plugin that is not loaded for want of tools": {[]string{"--exclude-tools", "containers",
			"--read-only"}, reads, "proxmox_container_status", map[string]any{"vmid": 101},
			refusal{"withheld", "--exclude-tools"}},
	} {
		t.Run(claim, func(t *testing.T) {
			session := s.stdio(t, c.flags...)
			if got := s.listed(t, session); !slices.Equal(got, c.want) {
				t.Errorf("lists %v, want %v", got, c.want)
			}
			s.isMissing(t, session, c.call, c.args, c.why)
			must(t, session.Close())
		})
	}
	data, err := os.ReadFile(s.config)
	must(t, err)
	must(t, os.WriteFile(s.config, append([]byte("read_only = true\n"), data...), 0o600))
	if got := s.listed(t, s.stdio(t, "--read-only=false")); !slices.Equal(got, reads) {
		t.Errorf("a flag took read-only mode back: %v", got)
	}
}

func TestUnknownToolNamesEndTheHostAtStart(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		config string
		args   []string
		words  []string
	}{
		{"", []string{"serve", "--toolsets", "container"},
			[]string{`--toolsets: there is no "container"`, "what there is: containers"}},
		{"", []string{"serve", "--tools", "proxmox_stop"},
			[]string{`--tools: there is no "proxmox_stop"`, "proxmox_stop_container"}},
		{"", []string{"tools", "--exclude-tools", "x"},
			[]string{`--exclude-tools: there is no "x"`}},
		{"", []string{"serve", "--toolsets", ""}, []string{"--toolsets is empty"}},
		{"", []string{"tools", "--tools="}, []string{"--tools is empty"}},
		{"", []string{"tools", "--read-only", "--checksum"}, []string{"none of the others can be"}},
		{"\n[tools]\nenable = [\"guests\"]\n", []string{"serve"},
			[]string{`[tools] enable: there is no "guests"`, "config.toml"}},
		{"", []string{"call", "proxmox_list_containers"}, []string{`[tools] enable`}},
		{"", []string{"check", "--offline"}, []string{`FAIL  tools `,
			`[tools] enable: there is no "guests"`}},
	} {
		s.add(t, c.config)
		out, err := s.command(c.args...).CombinedOutput()
		for _, w := range c.words {
			if err == nil || !strings.Contains(string(out), w) {
				t.Errorf("%v: %v\n%s\nwant an error with %q", c.args, err, out, w)
			}
		}
	}
}

// The lock is the golden file of all tools: the sources must build to the reviewed modules.
func TestAChangedToolListFailsUntilTheLockIsReviewed(t *testing.T) {
	s := newSite(t)
	s.asShipped(t)
	dir := filepath.Join(s.dir, "modules")
	must(t, os.CopyFS(dir, os.DirFS(plugins)))
	check := func() (string, error) {
		out, err := s.withEnv("CAPONIER_PLUGIN_DIR="+dir, "check", "--offline").CombinedOutput()
		return string(out), err
	}
	sum := func(lock string) string {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(s.dir, "plugins.lock"), []byte(lock), 0o644))
		out, err := s.withEnv("CAPONIER_PLUGIN_LOCK="+filepath.Join(s.dir, "plugins.lock"), "tools",
			"--checksum", "--json").
			CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out, err := check(); err != nil {
		t.Errorf(
			"the sources do not build to plugins.lock; review the difference, then run make lock "+
				"docs:\n%s",
			out,
		)
	}
	data, err := os.ReadFile("../plugins.lock")
	must(t, err)
	lock := string(data)
	first := sum(lock)
	if again := sum(lock); again != first || !strings.HasPrefix(first, `{"checksum":"sha256:`) {
		t.Errorf("the checksum is %s and then %s", first, again)
	}
	for claim, change := range map[string][2]string{
		"a description": {"List the nodes of the cluster", "List all nodes of the cluster"},
		"a hint":        {`"destructive":true`, `"destructive":false`},
		"a limit":       {`"maximum":999999999`, `"maximum":999999998`},
		"a budget":      {`"budget_ms":180000`, `"budget_ms":180001`},
	} {
		old, new := change[0], change[1]
		if !strings.Contains(lock, old) { // as it stands in an indented file
			old, new = strings.Replace(old, ":", ": ", 1), strings.Replace(new, ":", ": ", 1)
		}
		changed := strings.Replace(lock, old, new, 1)
		if changed == lock || sum(changed) == first {
			t.Errorf("%s can change under the same checksum", claim)
		}
	}
	other, err := os.ReadFile(filepath.Join(guests, "bench.wasm"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "jq.wasm"), other, 0o644))
	if out, err := check(); err == nil || !strings.Contains(out, "FAIL  plugin") ||
		!strings.Contains(out, "but the lock says") {
		t.Errorf("another module passes for jq: %v\n%s", err, out)
	}
}

func (s *site) withEnv(env string, args ...string) *exec.Cmd {
	cmd := s.command(args...)
	cmd.Env = append(cmd.Env, env)
	return cmd
}

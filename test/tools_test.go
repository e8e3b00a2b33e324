package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// promised lists every shipped tool, resource and prompt, with its tier in policies/site and its
// budget in seconds.
var promised = map[string]struct {
	plugin, tier string
	budget       int
}{
	"tool:proxmox_container_exec_command":       {"containers", "yellow", 330},
	"tool:proxmox_list_containers":              {"containers", "green", 30},
	"tool:proxmox_container_status":             {"containers", "green", 45},
	"tool:proxmox_start_container":              {"containers", "red", 180},
	"tool:proxmox_stop_container":               {"containers", "red", 660},
	"tool:proxmox_download_file_from_container": {"containers", "yellow", 300},
	"tool:proxmox_upload_file_to_container":     {"containers", "red", 300},
	"tool:proxmox_host_exec_command":            {"hostops", "red", 310},
	"tool:proxmox_download_file_from_host":      {"hostops", "yellow", 300},
	"tool:proxmox_download_directory_from_host": {"hostops", "yellow", 600},
	"tool:proxmox_upload_file_to_host":          {"hostops", "red", 300},
	"tool:proxmox_upload_directory_to_host":     {"hostops", "red", 600},
	"tool:list_nodes":                           {"guests", "green", 30},
	"tool:list_guests":                          {"guests", "green", 30},
	"tool:get_guest_status":                     {"guests", "green", 30},
	"tool:start_guest":                          {"guests", "red", 60},
	"tool:stop_guest":                           {"guests", "red", 60},
	"tool:restart_guest":                        {"guests", "red", 60},
	"tool:delete_guest":                         {"guests", "red", 180},
	"tool:create_snapshot":                      {"guests", "yellow", 120},
	"tool:delete_snapshot":                      {"guests", "red", 120},
	"tool:rollback_snapshot":                    {"guests", "red", 120},
	"tool:undo_call":                            {"guests", "red", 300},
	"tool:list_snapshots":                       {"guests", "green", 30},
	"tool:get_storage_pools":                    {"guests", "green", 30},
	"tool:get_cluster_status":                   {"cluster", "green", 30},
	"tool:get_node_status":                      {"cluster", "green", 30},
	"tool:get_vms":                              {"cluster", "green", 30},
	"tool:get_containers":                       {"cluster", "green", 30},
	"tool:get_storage":                          {"cluster", "green", 30},
	"tool:get_cluster_resources":                {"cluster", "green", 30},
	"tool:get_node_temperature":                 {"cluster", "green", 30},
	"tool:get_recent_tasks":                     {"cluster", "green", 30},
	"tool:get_backups":                          {"cluster", "green", 30},
	"tool:list_allowed_commands":                {"cluster", "green", 20},
	"tool:start_vm":                             {"cluster", "red", 120},
	"tool:stop_vm":                              {"cluster", "red", 120},
	"tool:restart_vm":                           {"cluster", "red", 120},
	"tool:start_container":                      {"cluster", "red", 120},
	"tool:stop_container":                       {"cluster", "red", 120},
	"tool:restart_container":                    {"cluster", "red", 120},
	"tool:execute_ssh":                          {"cluster", "yellow", 40},
	"tool:restart_service":                      {"cluster", "yellow", 60},
	"tool:wake_node":                            {"cluster", "yellow", 30},
	"tool:reboot_node":                          {"cluster", "black", 30},
	"tool:curl_execute":                         {"web", "yellow", 60},
	"resource:curl-docs":                        {"web", "green", 5},
	"prompt:api-test":                           {"web", "green", 5},
	"prompt:api-discovery":                      {"web", "green", 5},
	"tool:jq_query":                             {"jq", "green", 20},
	"tool:llm_query":                            {"llm", "yellow", 150},
}

// marked is how an argument of this name must be marked, so that policy sees what a call acts on.
var marked = map[string]string{
	"call":           "call",
	"vmid":           "vmid",
	"guest_id":       "vmid",
	"node":           "node",
	"service":        "service",
	"host":           "host",
	"url":            "url",
	"base_url":       "url",
	"host_path":      "remote_path",
	"container_path": "guest_path",
	"local_path":     "local_path",
	"host_dir":       "remote_dir",
	"local_dir":      "local_dir",
	"output_dir":     "local_path",
	"command":        "command",
}

// never are the words for what no tool may do to a guest: a half-done move leaves it in pieces.
var never = regexp.MustCompile(`(?i)migrat|move.?(disk|volume)|clone`)

func TestEveryToolIsWhatAgentsAndSitesNeed(t *testing.T) {
	lock, err := plugin.Load("../plugins.lock")
	must(t, err)
	site, err := os.ReadFile("../policies/site/data.yaml")
	must(t, err)
	engine, err := load.New(t.Context(), load.Options{Site: "../policies/site"})
	must(t, err)
	entries, err := engine.Entries(t.Context())
	must(t, err)
	seen := map[string]bool{}
	for _, tool := range lock.Tools() {
		key := tool.Kind + ":" + tool.Name
		seen[key] = true
		t.Run(key, func(t *testing.T) {
			want, ok := promised[key]
			if !ok || want.plugin != tool.Plugin.Name {
				t.Fatalf(
					"is of plugin %s; docs/design.md, section 8, and this test do not have it "+
						"there",
					tool.Plugin.Name,
				)
			}
			if int(tool.Budget.Seconds()) != want.budget {
				t.Errorf("its budget is %s, want %d s", tool.Budget, want.budget)
			}
			line := regexp.MustCompile(`(?m)^  (# )?"` + regexp.QuoteMeta(key) + `": (\w+)$`).
				FindSubmatch(site)
			off := want.plugin == "hostops" || want.plugin == "web" || want.plugin == "llm" ||
				key == "tool:undo_call" || key == "tool:list_snapshots" // go with undo and snapshot
			if line == nil || string(line[2]) != want.tier || (len(line[1]) > 0) != off {
				t.Errorf(
					"its line in policies/site/data.yaml is %q; want tier %s, commented out: %v",
					line,
					want.tier,
					off,
				)
			}
			if len(tool.Title) < 8 || len(tool.Runs) < 8 || len(tool.Description) < 40 {
				t.Errorf(
					"needs a title, a line on what it runs and a description that an agent can "+
						"use: %q, %q, %q",
					tool.Title,
					tool.Runs,
					tool.Description,
				)
			}
			if never.MatchString(tool.Name + tool.Title + tool.Runs) {
				t.Errorf("no tool migrates a guest, moves its disk or clones it")
			}
			for _, c := range tool.Commands {
				if (c == terms.CallersText) != (tool.Name == "execute_ssh" ||
					tool.Name == "proxmox_host_exec_command") ||
					c != terms.CallersText && !slices.Contains(entries, c) {
					t.Errorf("declares %q, which is for the tools of command text, or for none", c)
				}
			}
			checkSchema(t, tool)
			if tool.Kind == "tool" {
				checkHints(t, tool, want.tier)
				checkExample(t, tool)
			}
		})
	}
	for key := range promised {
		if !seen[key] {
			t.Errorf("%s is promised, and not in plugins.lock", key)
		}
	}
}

func checkSchema(t *testing.T, tool *terms.Tool) {
	var s map[string]json.RawMessage
	must(t, json.Unmarshal(tool.InputSchema, &s))
	if string(s["type"]) != `"object"` || string(s["additionalProperties"]) != "false" {
		t.Errorf("its input is not one closed object: %s", tool.InputSchema)
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf", "not", "if", "$ref", "enum"} {
		if s[k] != nil {
			t.Errorf(
				"its input has %s at the top, for which some providers refuse the whole list",
				k,
			)
		}
	}
	var props map[string]map[string]any
	must(t, json.Unmarshal(s["properties"], &props))
	for name, p := range props {
		if text, _ := p["description"].(string); len(text) < 4 {
			t.Errorf("argument %s has no description", name)
		}
		mark, _ := p["x-caponier-target"].(string)
		// The vmid of get_backups and the node of list_allowed_commands only pick rows of a list;
		// the url of a prompt is text in it.
		if want := marked[name]; want != "" &&
			strings.TrimPrefix(mark, "guest_") != strings.TrimPrefix(want, "guest_") &&
			tool.Name+name != "get_backupsvmid" && tool.Name+name != "list_allowed_commandsnode" &&
			tool.Kind == "tool" {
			t.Errorf("argument %s is marked %q, want %s", name, mark, want)
		}
		if mark != "" && marked[name] == "" {
			t.Errorf("argument %s is marked %s: say so in this test", name, mark)
		}
		if (name == "confirmed") != (p["x-caponier-confirm"] == true) {
			t.Errorf("argument %s: confirmed, and nothing else, is the confirmation", name)
		}
		if (name == "vmid" || name == "guest_id") &&
			(p["minimum"] != 100.0 || p["maximum"] != 999999999.0) {
			t.Errorf("%s takes %v to %v, want 100 to 999999999", name, p["minimum"], p["maximum"])
		}
	}
	if want := props["confirmed"] != nil; want != (tool.Confirm == "confirmed") {
		t.Errorf("its confirmation is %q", tool.Confirm)
	}
}

func checkHints(t *testing.T, tool *terms.Tool, tier string) {
	h := tool.Hints
	if h.ReadOnly != (tier == "green") {
		t.Errorf("is %s, and says of itself that it reads only: %v", tier, h.ReadOnly)
	}
	if h.ReadOnly && (h.Destructive || !h.Idempotent) {
		t.Errorf("what only reads neither destroys nor differs when it is done again: %+v", h)
	}
	if destroys := regexp.MustCompile(`stop|restart|reboot|delete|exec|upload|curl`).MatchString(
		tool.Name); destroys &&
		!h.Destructive {
		t.Errorf("may destroy something, and does not say so")
	}
	if asks := tier == "red" || tier == "black"; asks && tool.Confirm == "" {
		t.Errorf("is %s and takes no confirmation", tier)
	}
}

var exampleForm = regexp.MustCompile(`Example: (\{.*\})$`)

func checkExample(t *testing.T, tool *terms.Tool) {
	m := exampleForm.FindStringSubmatch(tool.Description)
	if m == nil {
		t.Fatal("its description ends with no example")
	}
	v, err := abi.Decode([]byte(m[1]), 1<<16)
	must(t, err)
	args := v.(map[string]any)
	if err := tool.Validate(args); err != nil {
		t.Fatalf("its example does not fit its own schema: %v", err)
	}
	targets, commands, err := tool.Derive(terms.Principal{}, args)
	must(t, err)
	all := map[string]int{
		"vmids":       len(targets.VMIDs),
		"services":    len(targets.Services),
		"hosts":       len(targets.Hosts),
		"paths":       len(targets.Paths),
		"guest_paths": len(targets.GuestPaths),
		"local_paths": len(targets.LocalPaths),
		"commands":    len(commands),
	}
	for _, kind := range tool.TargetKinds {
		if n, counted := all[kind]; counted && n == 0 {
			t.Errorf("its example names none of its %s, so that policy would refuse it", kind)
		}
	}
}

// What a plugin could run is in its code, and what may run is in the grammar: neither knows how to
// move a guest.
func TestNothingMigratesAGuestOrMovesADisk(t *testing.T) {
	for _, dir := range []string{"../plugins", "../policies/core/grammar"} {
		must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "pvetest") {
				return err
			}
			data, err := os.ReadFile(path)
			for n, line := range strings.Split(string(data), "\n") {
				code, _, _ := strings.Cut(line, "#")
				if strings.HasSuffix(path, ".go") {
					code, _, _ = strings.Cut(line, "//")
				}
				for _, word := range regexp.MustCompile(`"[^"]*"|[a-z_/-]+:`).FindAllString(code,
					-1) {
					if never.MatchString(word) &&
						!strings.Contains(
							code,
							"A template cannot be started",
						) /* words to people */ {
						err = fmt.Errorf("%s:%d names %s", path, n+1, word)
					}
				}
			}
			return err
		}))
	}
	never := []string{
		"qm migrate 101 pve2",
		"pct migrate 101 pve2",
		"qm move-disk 101 scsi0 local",
		"qm disk move 101 scsi0 local",
		"pct move-volume 101 rootfs local",
		"qm clone 101 999",
		"pvesh create /nodes/pve1/lxc/101/migrate --target pve2",
		"pvesh create /nodes/pve1/qemu/101/move_disk --disk scsi0 --storage local",
		"pvesh create /nodes/pve1/migrateall --target pve2",
	}
	s := newSite(t, filepath.Join(plugins, "cluster.wasm"))
	session := s.stdio(t)
	for _, command := range never {
		how, _, text := outcome(
			t,
			session,
			"execute_ssh",
			map[string]any{"node": "pve1", "command": command},
		)
		if how != "refused" ||
			!strings.Contains(text, "the command grammar") &&
				!strings.Contains(text, " is black ") {
			t.Errorf("%s: %s %s", command, how, text)
		}
	}
}

func TestToolsDocSaysWhereToolsDiffer(t *testing.T) {
	data, err := os.ReadFile("../docs/tools.md")
	must(t, err)
	_, text, _ := strings.Cut(string(data), "## Where the tools differ")
	text, _, _ = strings.Cut(text, "\n## ")
	covered := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || line == "| tools | the document says | here | why |" {
			continue
		}
		if len(cells) != 4 {
			t.Errorf("a row without tools, document, here and why: %s", line)
		}
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[0], -1) {
			if _, ok := promised["tool:"+name[1]]; !ok && name[1] != "confirmed" {
				t.Errorf("there is no tool %s: %s", name[1], line)
			}
			covered[name[1]] = true
		}
	}
	for _, name := range []string{"get_containers", "stop_guest", "delete_guest",
		"proxmox_stop_container", "proxmox_upload_file_to_container", "wake_node", "execute_ssh",
		"curl_execute", "jq_query"} {
		if !covered[name] {
			t.Errorf("docs/tools.md does not say how %s differs", name)
		}
	}
}

// output_dir may be left out, and then policy lets nothing be written to the workspace.
func TestAnOptionalLocalPathIsATargetOnlyWhenItIsNamed(t *testing.T) {
	lock, err := plugin.Load("../plugins.lock")
	must(t, err)
	i := slices.IndexFunc(
		lock.Tools(),
		func(tool *terms.Tool) bool { return tool.Name == "curl_execute" },
	)
	tool := lock.Tools()[i]
	with, _, err := tool.Derive(
		terms.Principal{},
		map[string]any{"url": "https://a.example/", "output_dir": "api/today"},
	)
	must(t, err)
	without, _, err := tool.Derive(terms.Principal{}, map[string]any{"url": "https://a.example/"})
	must(t, err)
	if !slices.Equal(tool.TargetKinds, []string{"hosts"}) ||
		!slices.Equal(with.LocalPaths, []string{"api/today"}) ||
		len(without.LocalPaths) != 0 {
		t.Errorf(
			"must name %v; with output_dir it names %+v, without %+v",
			tool.TargetKinds,
			with,
			without,
		)
	}
}

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

// node scripts a Proxmox node with the traps that were measured on a real one. Fields change what
// it does.
type node struct {
	*sdktest.Host
	status map[string]string // by vmid, of containers on pve1
	locked string            // vmid
	// files of container 101, by path; a value beginning with ! is another kind of file
	inside    map[string]string
	host      map[string]string // files on the node
	local     map[string]string // files of the workspace
	cut       int               // bytes after which a copy ends in silence, when above 0
	pushSays  string            // on stderr of pct push, with exit code 0
	startSays string            // on stdout of pct start
	slow      int               // status reads after start or stop until the status has changed
	raced     bool              // somebody else starts or stops it first
	pending   string
	ran       [][]string
	script    func(string) sdk.ExecResult // what sh -c does in container 101
	hang      string                      // a verb of pct that does not end
	clock     time.Time
}

func lab(t *testing.T) *node {
	n := &node{
		Host:   sdktest.New(t),
		status: map[string]string{"101": "running", "102": "stopped", "103": "stopped"},
		locked: "103",
		clock:  time.Unix(1e9, 0),
		inside: map[string]string{
			"/etc/os-release": "NAME=x\n",
			"/root":           "!directory",
			"/root/ff":        "!fifo",
			"/root/ln":        "!symbolic link",
		},
		host:  map[string]string{},
		local: map[string]string{"app.conf": "hello"},
	}
	now = func() time.Time { return n.clock }
	t.Cleanup(func() { now = time.Now; pvetest.Note(n.Host) })
	n.SSHExec = n.exec
	n.Stage = func(string) (string, error) { return "/run/caponier/s1", nil }
	n.SFTPStat = func(_, p string) (sdk.FileInfo, error) {
		return sdk.FileInfo{Type: "file", Size: int64(len(n.host[p]))}, nil
	}
	n.SFTPPut = func(_, local, p string, o sdk.FileOptions) (sdk.Written, error) {
		body, ok := n.local[local]
		if !ok {
			return sdk.Written{}, &sdk.OpError{Code: "not_found", Message: "no such file"}
		}
		n.host[p] = body
		return sdk.Written{Bytes: int64(len(body)), SHA256: sum(body)}, nil
	}
	n.SFTPGet = func(_, p, local string, o sdk.FileOptions) (sdk.Written, error) {
		if _, there := n.local[local]; there && !o.Overwrite {
			return sdk.Written{}, &sdk.OpError{Code: "exists", Message: "it is there already"}
		}
		n.local[local] = n.host[p]
		return sdk.Written{Bytes: int64(len(n.host[p])), SHA256: sum(n.host[p]), Local: local}, nil
	}
	return n
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func exit(code int, stderr string) sdk.ExecResult {
	return sdk.ExecResult{Exit: code, Stderr: []byte(stderr)}
}
func prints(stdout string) sdk.ExecResult { return sdk.ExecResult{Stdout: []byte(stdout)} }

func (n *node) exec(on string, argv []string, o sdk.ExecOptions) (sdk.ExecResult, error) {
	n.ran = append(n.ran, argv)
	if argv[0] == "pvesh" {
		return prints(
			`[{"id":"qemu/200","type":"qemu","vmid":200,"node":"pve1","name":"vm-app",
			"status":"stopped"},
			{"id":"lxc/105","type":"lxc","vmid":"105","node":"pve2","status":"unknown"},
			{"id":"lxc/101","type":"lxc","vmid":101,"node":"pve1","name":"web01",
			"status":"running","cpu":"0.5","maxcpu":2,"mem":6291456,
			"maxmem":"536870912","uptime":7},
			{"id":"lxc/103","type":"lxc","vmid":103,"node":"pve1","name":"jarvis",
			"status":"stopped","lock":"backup","template":0}]` + "\n",
		), nil
	}
	if argv[0] == "sha256sum" {
		return prints("\\" + sum(n.host[argv[2]]) + "  " + argv[2] + "\n"), nil
	}
	verb, id := argv[1], argv[2]
	state, exists := n.status[id]
	missing := exit(2,
		fmt.Sprintf("Configuration file 'nodes/%s/lxc/%s.conf' does not exist\n", on, id))
	if verb == n.hang {
		return sdk.ExecResult{}, &sdk.OpError{
			Code:    "timeout",
			Message: "the time for it was over",
			Unknown: true,
		}
	}
	switch verb {
	case "status":
		if !exists {
			return missing, nil
		}
		if n.slow--; n.pending != "" && n.slow < 0 {
			n.status[id], n.pending = n.pending, ""
		}
		return prints("status: " + n.status[id] + "\n"), nil
	case "config":
		return prints(
			"arch: amd64\ncores: 2\ndescription: a%3A b%0Astatus%3A x\nhostname: web01\nmemory: " +
				"512\nprotection: 1\ntags: prod;web\n",
		), nil
	case "start", "stop", "shutdown":
		if n.raced {
			n.status[id] = map[string]string{"start": "running"}[verb]
			return exit(
				255,
				map[string]string{"start": "CT " + id +
					" already running\n"}[verb]+map[bool]string{true: "CT " + id +
					" not running\n"}[verb != "start"],
			), nil
		}
		if n.locked == id {
			return exit(255, "CT is locked (backup)\n"), nil
		}
		n.pending = map[string]string{"start": "running", "stop": "stopped",
			"shutdown": "stopped"}[verb]
		return prints(n.startSays), nil
	case "push":
		if state != "running" {
			return exit(255, "can only push files to a running CT\n"), nil
		}
		if n.pushSays != "" {
			return exit(0, n.pushSays), nil
		}
		n.inside[argv[len(argv)-1]] = n.short(n.host[argv[len(argv)-2]])
		return exit(0, ""), nil
	case "pull":
		from, to := argv[len(argv)-2], argv[len(argv)-1]
		n.host[to] = ""
		if body, ok := n.inside[from]; ok {
			n.host[to] = n.short(body)
			return exit(0, ""), nil
		}
		return exit(0, "failed to open "+from+": No such file or directory\n"), nil
	case "exec":
		switch {
		case !exists:
			return missing, nil
		case state != "running":
			return exit(255, fmt.Sprintf("container '%s' not running!\n", id)), nil
		}
		return n.program(argv[slices.Index(argv, "--")+5:]), nil
	}
	panic(fmt.Sprint(argv))
}

func (n *node) short(body string) string {
	if n.cut > 0 && len(body) > n.cut {
		return body[:n.cut]
	}
	return body
}

func (n *node) program(argv []string) sdk.ExecResult {
	p := argv[len(argv)-1]
	body, ok := n.inside[p]
	switch {
	case argv[0] == "sh":
		return n.script(p)
	case !ok:
		return exit(1, argv[0]+": can't stat '"+p+"': No such file or directory\n")
	case argv[0] == "stat" && strings.HasPrefix(body, "!"):
		return prints(body[1:] + " 4096\n")
	case argv[0] == "stat" && body == "":
		return prints("regular empty file 0\n")
	case argv[0] == "stat":
		return prints(fmt.Sprintf("regular file %d\n", len(body)))
	case argv[0] == "sha256sum":
		return prints(sum(body) + "  " + p + "\n")
	}
	panic(fmt.Sprint(argv))
}

// call fails the test when the arguments do not fit; the result is in out.
func (n *node) call(t *testing.T, tool, args string) (sdktest.Output, map[string]any) {
	t.Helper()
	out, err := n.Call(tool, args)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if out.Structured != nil {
		if err := json.Unmarshal(out.Structured, &m); err != nil {
			t.Fatal(err)
		}
	}
	return out, m
}

func TestEveryToolSaysWhereAContainerIs(t *testing.T) {
	for tool, args := range map[string]string{
		"proxmox_container_exec_command":       `"command":"ls"`,
		"proxmox_container_status":             `"response_format":"json"`,
		"proxmox_start_container":              `"response_format":"json"`,
		"proxmox_stop_container":               `"graceful":true`,
		"proxmox_download_file_from_container": `"container_path":"/a","local_path":"a"`,
		"proxmox_upload_file_to_container":     `"container_path":"/a","local_path":"app.conf"`,
	} {
		if out, err := lab(t).Call(tool, `{"vmid":105,`+args+`}`); err != nil || out.Error == nil ||
			out.Error.Code != "on_other_node" ||
			!strings.Contains(out.Error.Suggestion, `"node": "pve2"`) {
			t.Errorf("%s: %+v, %v", tool, out.Error, err)
		}
	}
}

func TestMain(m *testing.M) { pvetest.Main(m) }

func TestRenderingOfTheHostRunsInPlaceOfTheText(t *testing.T) {
	n := lab(t)
	n.script = func(s string) sdk.ExecResult { return prints(s) }
	n.Rendered = map[string]string{"command": "'ls' '/x'", "vmid": "'id'"}
	out, _ := n.call(t, "proxmox_container_exec_command", `{"vmid":101,"command":"ls  /x # y"}`)
	if got := n.ran[0][len(n.ran[0])-1]; got != "'ls' '/x'" || out.Error != nil {
		t.Errorf("ran %q, error %v", got, out.Error)
	}
}

func TestCommandRunsExactlyOneWay(t *testing.T) {
	n := lab(t)
	n.script = func(s string) sdk.ExecResult {
		return sdk.ExecResult{Exit: 3, Stdout: []byte("out \xff"), Stderr: []byte("err\n")}
	}
	out, m := n.call(t, "proxmox_container_exec_command",
		`{"vmid":101,"command":"echo \"$HOME\" | wc; false","timeout":7}`)
	want := []string{
		"pct",
		"exec",
		"101",
		"--keep-env",
		"0",
		"--",
		"timeout",
		"-k",
		"2",
		"7",
		"sh",
		"-c",
		`echo "$HOME" | wc; false`,
	}
	if len(n.ran) != 1 || !slices.Equal(n.ran[0], want) {
		t.Errorf("ran %q", n.ran)
	}
	if m["exit_code"] != 3.0 || m["success"] != false || m["stdout"] != "out \uFFFD" ||
		m["stderr"] != "err\n" ||
		m["timed_out"] != false ||
		m["node"] != "pve1" {
		t.Errorf("result %v", m)
	}
	if !strings.HasPrefix(out.Text,
		"out \uFFFD\n[stderr]\nerr\n[exit code 3]\n[notice] The output "+
			"is not UTF-8") {
		t.Errorf("text %q", out.Text)
	}
	if !strings.Contains(string(n.Requests[0].JSON), `"timeout_ms":17000`) {
		t.Errorf("the deadline is not the command's and 10 s: %s", n.Requests[0].JSON)
	}
	out, _ = n.call(t, "proxmox_container_exec_command",
		`{"vmid":101,"command":"x","response_format":"json"}`)
	if out.Text != string(out.Structured) {
		t.Errorf("json text %q, structured %s", out.Text, out.Structured)
	}
}

func TestCommandThatDoesNotEndIsTold(t *testing.T) {
	for _, c := range []struct {
		name   string
		exit   int
		took   time.Duration
		stdout string
		open   bool
		want   string
	}{
		{"coreutils", 124, 5 * time.Second, "", false, "stopped after 5 seconds"},
		{"busybox", 143, 5 * time.Second, "", false, "may still be running in the container"},
		{"killed", 137, 7 * time.Second, "", false, "stopped after 5 seconds"},
		{"an exit code of its own", 124, time.Second, "", false, ""},
		{"a leftover holds the output open", 0, time.Second, "x", true, "a process that it left " +
			"behind"},
		{"too much output", 0, time.Second, strings.Repeat("x", pve.MaxOutput), true,
			"cut at 256 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := lab(t)
			n.script = func(string) sdk.ExecResult {
				n.clock = n.clock.Add(c.took)
				return sdk.ExecResult{Exit: c.exit, Stdout: []byte(c.stdout), Truncated: c.open}
			}
			_, m := n.call(t, "proxmox_container_exec_command",
				`{"vmid":101,"command":"x","timeout":5}`)
			notice, _ := m["notice"].(string)
			if !strings.Contains(notice, c.want) || (notice == "") != (c.want == "") ||
				m["timed_out"] != strings.Contains(notice, "still be running") {
				t.Errorf("timed_out %v, notice %q", m["timed_out"], notice)
			}
		})
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	exec := "proxmox_container_exec_command"
	for _, c := range []struct {
		name, tool, args, code, message, suggestion string
		set                                         func(*node)
	}{
		{"stopped container", exec, `{"vmid":102,"command":"ls"}`, "not_running",
			"container '102' not running!", "Start it first", nil},
		{"no such container", exec, `{"vmid":999,"command":"ls"}`, "not_found",
			"running a command in container 999 on pve1", "List what there is", nil},
		{"container of another node", exec, `{"vmid":105,"command":"ls"}`, "on_other_node",
			"105 is on node pve2", `"node": "pve2"`, nil},
		{"a virtual machine", "proxmox_container_status", `{"vmid":200}`, "not_found",
			"200 is a virtual machine, not a container", "that type", nil},
		{"status of a container of another node", "proxmox_container_status", `{"vmid":105}`,
			"on_other_node", "on node pve2", `"pve2"`, nil},
		{"locked", "proxmox_start_container", `{"vmid":103}`, "locked", "CT is locked (backup)",
			"Locks are not overridden", nil},
		{"no timeout program", exec, `{"vmid":101,"command":"ls"}`, "unsupported",
			"no timeout program", "Install", func(n *node) {
				n.script = func(string) sdk.ExecResult {
					return exit(127, "lxc-attach: 101: ../src/lxc/attach.c: "+
						"lxc_attach_run_command: "+
						"1841 No such file or directory - Failed to exec \"timeout\"\n")
				}
			}},
		{"connection lost", exec, `{"vmid":101,"command":"ls"}`, "unknown_outcome",
			"pct exec 101 " +
				"on pve1", "look at the status", func(n *node) {
				n.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult, error) {
					return sdk.ExecResult{}, &sdk.OpError{Code: "lost", Message: "x", Unknown: true}
				}
			}},
		{"node down", exec, `{"vmid":101,"command":"ls"}`, "connection", "dialling", "reachable",
			func(n *node) {
				n.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult, error) {
					return sdk.ExecResult{}, &sdk.OpError{Code: "connection", Message: "dialling"}
				}
			}},
		{"refused by policy", exec, `{"vmid":101,"command":"ls"}`, "refused", "no", "refused too",
			func(n *node) {
				n.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult, error) {
					return sdk.ExecResult{}, &sdk.Refused{DecisionID: "D",
						Deny: []sdk.Reason{{ID: "x",
							Msg: "no"}}}
				}
			}},
		{"never ends", "proxmox_start_container", `{"vmid":102}`, "timeout", "pct start 102",
			"may still be running", func(n *node) { n.hang = "start" }},
		{"start that does nothing", "proxmox_start_container", `{"vmid":102}`, "failed",
			"but it is stopped", "get_recent_tasks", func(n *node) { n.slow = 9 }},
		{"HA that has not acted", "proxmox_start_container", `{"vmid":102}`, "unknown_outcome",
			"it is still stopped", "in a minute", func(n *node) {
				n.slow, n.startSays = 99,
					"Requesting HA start for CT 102\n"
			}},

		{"download of nothing", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/no","local_path":"x"}`, "not_found", "there is no " +
				"such file", "ls -la", nil},
		{"download of a directory", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/root","local_path":"x"}`, "bad_parameter",
			"it is a directory", "regular file", nil},
		{"download of a FIFO", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/root/ff","local_path":"x"}`, "bad_parameter",
			"it is a fifo", "regular file", nil},
		{"download of a link", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/root/ln","local_path":"x"}`, "bad_parameter",
			"it is a symbolic link", "readlink -f", nil},
		{"download too large", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"x","max_bytes":6}`,
			"too_large", "it has 7 bytes, the limit is 6", "max_bytes", nil},
		{"download over a local file", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"app.conf"}`, "exists",
			"it is there already", "Set overwrite", nil},
		{"download cut in silence", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"x"}`, "incomplete",
			"of the 3 bytes that arrived on the node", "disk is full",
			func(n *node) { n.cut = 3 }},
		{"download changed on the node", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"x"}`, "incomplete",
			"was not changed", "by whom", func(n *node) {
				n.SFTPGet = func(_, p, local string, o sdk.FileOptions) (sdk.Written, error) {
					if o.SHA256 == sum("evil") || o.SHA256 == "" {
						return sdk.Written{Bytes: 4, SHA256: o.SHA256}, nil
					}
					return sdk.Written{}, &sdk.OpError{Code: "changed",
						Message: `local "x" was not changed`}
				}
			}},
		{"container without sha256sum", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"x"}`, "unknown_outcome",
			"could not", "must be installed", func(n *node) {
				exec := n.SSHExec
				n.SSHExec = func(on string, argv []string, o sdk.ExecOptions) (sdk.ExecResult,
					error) {
					if slices.Contains(argv, "sha256sum") {
						return exit(127, "timeout: could not run sha256sum\n"), nil
					}
					return exec(on, argv, o)
				}
			}},
		{"download from a stopped container", "proxmox_download_file_from_container",
			`{"vmid":102,"container_path":"/etc/os-release","local_path":"x"}`, "not_running",
			"container '102' not running!", "Start it", nil},
		{"a FIFO put there after the look", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"x"}`, "timeout",
			"pct pull 101", "still a regular file", func(n *node) { n.hang = "pull" }},
		{"the file is gone after the look", "proxmox_download_file_from_container",
			`{"vmid":101,"container_path":"/etc/os-release","local_path":"x"}`, "not_found",
			"failed to open", "Check the path", func(n *node) {
				exec := n.SSHExec
				n.SSHExec = func(on string, argv []string, o sdk.ExecOptions) (sdk.ExecResult,
					error) {
					if argv[1] == "pull" {
						delete(n.inside, "/etc/os-release")
					}
					return exec(on, argv, o)
				}
			}},

		{"upload of nothing", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"no","container_path":"/x"}`, "not_found", "no such file",
			"relative to your workspace", nil},
		{"upload over a file", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/etc/os-release"}`, "exists",
			"a file of 7 bytes already", "Set overwrite", nil},
		{"upload over a directory", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/root","overwrite":true}`,
			"bad_parameter", "it is a directory", "regular file", nil},
		{"upload through a link", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/root/ln","overwrite":true}`,
			"bad_parameter", "it is a symbolic link", "readlink -f", nil},
		{"upload too large", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/x","max_bytes":4}`, "too_large",
			"it has 5 bytes", "max_bytes", nil},
		{"push that fails with exit code 0", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/nodir/x"}`, "not_found",
			"failed to create file: /nodir/x", "its directory exists", func(n *node) {
				n.pushSays = "failed to create file: /nodir/x: No such file or directory\n"
			}},
		{"push onto a full disk in silence", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/x"}`, "incomplete",
			"INCOMPLETE file now: 2 of the 5 bytes are there", "disk is full",
			func(n *node) { n.cut = 2 }},
		{"push onto a full disk, which can be removed", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/it's"}`, "incomplete",
			"there was none before", `rm -- '/it'\''s'`, func(n *node) { n.cut = 2 }},
		{"push over a file onto a full disk", "proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"app.conf","container_path":"/etc/os-release",` +
				`"overwrite":true}`, "incomplete", "the one of 7 bytes that was there before " +
				"is lost", "with overwrite", func(n *node) { n.cut = 2 }},
		{"upload to a stopped container", "proxmox_upload_file_to_container",
			`{"vmid":102,"local_path":"app.conf","container_path":"/x"}`, "not_running",
			"not running", "Start it", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := lab(t)
			if c.set != nil {
				c.set(n)
			}
			out, _ := n.call(t, c.tool, c.args)
			if out.Error == nil {
				t.Fatalf("succeeded: %s", out.Structured)
			}
			if out.Error.Code != c.code || !strings.Contains(out.Error.Message, c.message) ||
				!strings.Contains(out.Error.Suggestion, c.suggestion) {
				t.Errorf("got  %q: %q / %q\nwant %q: %q / %q", out.Error.Code, out.Error.Message,
					out.Error.Suggestion, c.code, c.message, c.suggestion)
			}
		})
	}
}

func TestLifecycleLooksActsAndLooksAgain(t *testing.T) {
	for _, c := range []struct {
		name, tool, args string
		set              func(*node)
		changed          bool
		status, ran      string
	}{
		{"start", "proxmox_start_container", `{"vmid":102}`, nil, true, "running", "status start " +
			"status"},
		{"start of a running one", "proxmox_start_container", `{"vmid":101}`, nil, false, "running",
			"status"},
		{"start that another one won", "proxmox_start_container", `{"vmid":102}`,
			func(n *node) { n.raced = true }, false, "running", "status start"},
		{"start by the HA manager", "proxmox_start_container", `{"vmid":102}`,
			func(n *node) {
				n.slow, n.startSays = 4, "Requesting HA start for "+
					"CT 102\n"
			}, true, "running", "status start status status status status"},
		{"stop", "proxmox_stop_container", `{"vmid":101}`, nil, true, "stopped", "status stop " +
			"status"},
		{"stop of a stopped one", "proxmox_stop_container", `{"vmid":102}`, nil, false, "stopped",
			"status"},
		{"stop that another one won", "proxmox_stop_container", `{"vmid":101}`,
			func(n *node) { n.raced = true }, false, "stopped", "status stop"},
		{"shutdown", "proxmox_stop_container", `{"vmid":101,"graceful":true,"timeout":5}`, nil,
			true, "stopped", "status shutdown status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := lab(t)
			if c.set != nil {
				c.set(n)
			}
			out, m := n.call(t, c.tool, c.args)
			var verbs []string
			for _, argv := range n.ran {
				verbs = append(verbs, argv[1])
			}
			if out.Error != nil || m["changed"] != c.changed || m["status"] != c.status ||
				strings.Join(verbs, " ") != c.ran {
				t.Errorf("changed %v, status %v, ran %q, error %v", m["changed"], m["status"],
					verbs, out.Error)
			}
		})
	}
	n := lab(t)
	n.call(t, "proxmox_stop_container", `{"vmid":101,"graceful":true,"timeout":5}`)
	if want := []string{"pct", "shutdown", "101", "--timeout", "5", "--forceStop",
		"1"}; !slices.Equal(n.ran[1], want) {
		t.Errorf("ran %q", n.ran[1])
	}
	if !strings.Contains(string(n.Requests[1].JSON), `"timeout_ms":35000`) {
		t.Errorf("a shutdown takes up to twice its timeout and 15 s: %s", n.Requests[1].JSON)
	}
}

func TestNoiseOfPerlIsNoFailure(t *testing.T) {
	n := lab(t)
	exec := n.SSHExec
	n.SSHExec = func(on string, argv []string, o sdk.ExecOptions) (sdk.ExecResult, error) {
		r, err := exec(on, argv, o)
		r.Stderr = append(
			[]byte(
				"perl: warning: Setting locale failed.\nperl: warning: Please check that your "+
					"locale settings:\n\tLANG = \"x\"\n    are supported and installed on your "+
					"system.\nperl: warning: Falling back to the standard locale (\"C\").\n",
			),
			r.Stderr...)
		return r, err
	}
	if out, _ := n.call(t, "proxmox_upload_file_to_container",
		`{"vmid":101,"local_path":"app.conf","container_path":"/etc/app.conf"}`); out.Error != nil {
		t.Errorf("upload: %+v", out.Error)
	}
	if out, _ := n.call(t, "proxmox_container_exec_command",
		`{"vmid":102,"command":"ls"}`); out.Error == nil ||
		out.Error.Code != "not_running" {
		t.Errorf("stopped container: %+v", out.Error)
	}
}

func TestListHasContainersOnly(t *testing.T) {
	n := lab(t)
	out, m := n.call(t, "proxmox_list_containers", `{}`)
	if m["count"] != 3.0 ||
		!strings.Contains(out.Text, "101        running   pve1                    web01") ||
		strings.Contains(out.Text, "200") {
		t.Errorf("%v\n%s", m, out.Text)
	}
	if first := m["containers"].([]any)[0].(map[string]any); first["vmid"] != 101.0 ||
		first["maxmem"] != 536870912.0 ||
		first["cpu"] != 0.5 {
		t.Errorf("numbers that are strings: %v", first)
	}
	if _, m = n.call(t, "proxmox_list_containers", `{"node":"pve2"}`); m["count"] != 1.0 {
		t.Errorf("of pve2: %v", m)
	}
	n.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult,
		error) {
		return prints("[]\n"), nil
	}
	if out, m = n.call(t, "proxmox_list_containers", `{}`); m["count"] != 0.0 ||
		out.Text != "There are no containers." ||
		string(out.Structured) != `{"count":0,"containers":[]}` {
		t.Errorf("%s %q", out.Structured, out.Text)
	}
}

func TestStatusNamesWhatBlocksTheContainer(t *testing.T) {
	out, m := lab(t).call(t, "proxmox_container_status", `{"vmid":101}`)
	if m["status"] != "running" || m["protection"] != true || m["tags"] != "prod;web" ||
		m["name"] != "web01" ||
		out.Text != "Container 101 (web01) on pve1 is running. It is protected." {
		t.Errorf("%v %q", m, out.Text)
	}
}

func TestArgumentsHaveLimits(t *testing.T) {
	n := lab(t)
	long := strings.Repeat("x", 10_001)
	for _, c := range [][2]string{
		{"proxmox_container_exec_command", `{"vmid":99,"command":"ls"}`},
		{"proxmox_container_exec_command", `{"vmid":1000000000,"command":"ls"}`},
		{"proxmox_container_exec_command", `{"vmid":"101","command":"ls"}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":""}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":"` + long + `"}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":"ls","timeout":301}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":"ls","timeout":0}`},
		{"proxmox_container_exec_command", `{"vmid":101,"command":"ls","shell":"bash"}`},
		{"proxmox_container_exec_command", `{"command":"ls"}`},
		{"proxmox_container_status", `{"vmid":101,"response_format":"xml"}`},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"a","container_path":"/a","permissions":"u+x"}`},
		{"proxmox_upload_file_to_container",
			`{"vmid":101,"local_path":"a","container_path":"/a","permissions":"99999"}`},
	} {
		if out, err := n.Call(c[0], c[1]); err == nil {
			t.Errorf("%s %.60s was taken: %s", c[0], c[1], out.JSON)
		}
	}
	if len(n.ran) > 0 {
		t.Errorf("ran %q", n.ran)
	}
}

func TestExamplesSayWhenTheNodeIsDown(t *testing.T) { pvetest.CheckExamples(t) }

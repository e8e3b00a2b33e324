package repo_test

import (
	"math/rand/v2"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// targets are values for each kind of target, also some in no canonical form.
var targets = map[string][]any{
	"vmid": {101, 250, 999999999, 99, 1000000000}, "node": {"pve1", "pve2", "other", "pve9"},
	"service": {"nginx", "nginx.service", "docker.socket", "a.b", "Nginx", "x@1"},
	"host":    {"example.com", "192.0.2.1", "2001:db8::1", "Example.com", "example.com."},
	"url": {"https://example.com/x?y=1", "http://example.com:8080", "https://192.0.2.1/",
		"https://u@example.com/", "ftp://example.com/"},
	"remote_path": {"/srv/x", "/", "/srv//x", "/srv/../x", "srv/x", "/srv/x/"},
	"guest_path":  {"/srv/x", "/etc/hosts", "/a/./b"},
	"local_path":  {"x", "a/b.txt", "../x", "/x", "a/"},
	"remote_dir":  {"/srv/x", "/", "/srv//x", "srv/x", "/srv/x/"},
	"local_dir":   {"x", "a/b", "../x", "/x", "."},
	"call":        {"0123456789ABCDEFGHIJKLMNOP", "x"},
}

var (
	programs = []string{"pct status 101", "uptime", "pct exec 101 -- ls", "cat '/etc/hosts'",
		`echo "a b"`, "./x --y=z", "df -h", "eval x", "time ls", "sh -c ls", "A=1 b", "%1",
		"echo $(id)", "a > b", "'it is' x", "grep a=b c", "", "if", "echo {a,b}", "[ -v a ]",
		"ls ~", "ls *", "'if' x", "echo 2>&1", "x !", "a,b c", "ls # x", "command x", "in x"}
	joins = []string{" && ", " || ", " | ", "; ", ";", "|", " & ", " ;; ", "\n"}
)

func commandText(rnd *rand.Rand) string {
	var b strings.Builder
	for i := range 1 + rnd.IntN(3) {
		if i > 0 {
			b.WriteString(joins[rnd.IntN(len(joins))])
		}
		b.WriteString(programs[rnd.IntN(len(programs))])
	}
	return b.String()
}

// generated are arguments of a tool: those that it requires, and some others.
func generated(rnd *rand.Rand, tool *terms.Tool) map[string]any {
	args := map[string]any{}
	for _, p := range tool.Params {
		if p.Required && rnd.IntN(50) > 0 || rnd.IntN(2) == 0 {
			args[p.Name] = some(rnd, p)
		}
	}
	if rnd.IntN(30) == 0 {
		args["unknown"] = 1
	}
	return args
}

func some(rnd *rand.Rand, p terms.Param) any {
	kind := p.Type
	if kind == "array" {
		p.Type = p.Items
		var list []any
		for range 1 + rnd.IntN(3) {
			list = append(list, some(rnd, p))
		}
		return list
	}
	if strings.HasSuffix(p.Target, "command") {
		return commandText(rnd)
	}
	if rnd.IntN(20) == 0 {
		return []any{true, 7, "x", 1.5}[rnd.IntN(4)]
	}
	if all := targets[p.Target]; len(all) > 0 {
		return all[rnd.IntN(len(all))]
	}
	if len(p.Enum) > 0 && kind == "string" {
		return p.Enum[rnd.IntN(len(p.Enum))]
	}
	switch kind {
	case "integer":
		if p.Min != nil {
			return int64(*p.Min) + int64(rnd.IntN(3))
		}
		return rnd.IntN(10)
	case "number":
		return 1.5
	case "boolean":
		return rnd.IntN(2) == 0
	case "object":
		return map[string]any{}
	}
	if p.MaxLength == 0 && rnd.IntN(4) == 0 {
		return strings.Repeat("x", 255+rnd.IntN(4))
	}
	return []any{"abc", "a-b"}[rnd.IntN(2)]
}

// required are arguments that the host takes: the first value of each kind.
func required(tool *terms.Tool) map[string]any {
	args := map[string]any{}
	rnd := rand.New(rand.NewPCG(7, 7))
	for tool.Validate(args) != nil || len(args) == 0 {
		for _, p := range tool.Params {
			if p.Required {
				args[p.Name] = some(rnd, p)
			}
			if all := targets[p.Target]; p.Required && len(all) > 0 && p.Type != "array" {
				args[p.Name] = all[0]
			}
			if strings.HasSuffix(p.Target, "command") {
				args[p.Name] = "uptime"
			}
		}
		if len(args) == 0 {
			break
		}
	}
	return args
}

// operationOf returns an operation, and what a test says to have it.
func operationOf(name string) (abi.Op, map[string]any) {
	on := abi.OnNode{Node: "pve2"}
	file := map[string]any{"node": "pve2", "path": "/srv/x"}
	with := func(more map[string]any) map[string]any { return merged(file, more) }
	switch name {
	case "ssh_exec":
		return abi.SSHExec{OnNode: on, Argv: []string{"pct", "status", "101"}},
			map[string]any{"node": "pve2", "argv": []string{"pct", "status", "101"}}
	case "ssh_script":
		return abi.SSHScript{OnNode: on, Script: "uptime && df 'a b'"},
			map[string]any{"node": "pve2", "script": "uptime && df 'a b'"}
	case "stage":
		return abi.Stage{OnNode: on}, map[string]any{"node": "pve2"}
	case "sftp_stat":
		return abi.SFTPStat{OnNode: on, Path: "/srv/x"}, file
	case "sftp_list":
		return abi.SFTPList{OnNode: on, Path: "/srv/x"}, file
	case "sftp_read":
		return abi.SFTPRead{OnNode: on, Path: "/srv/x", MaxBytes: 9},
			with(map[string]any{"bytes": 9})
	case "sftp_remove":
		return abi.SFTPRemove{OnNode: on, Path: "/srv/x"}, file
	case "sftp_write":
		return abi.SFTPWrite{OnNode: on, Path: "/srv/x", Data: abi.Data{Text: "abc"}, Mode: "600"},
			with(map[string]any{"bytes": 3, "mode": "600"})
	case "sftp_get":
		return abi.SFTPGet{OnNode: on, Path: "/srv/x", Local: "x", Overwrite: true},
			with(map[string]any{"local": "x", "overwrite": true})
	case "sftp_put":
		return abi.SFTPPut{OnNode: on, Path: "/srv/x", Local: "x"},
			with(map[string]any{"local": "x"})
	case "http_request":
		return abi.HTTPRequest{Method: "GET", URL: "https://example.com/"},
			map[string]any{"host": "example.com"}
	case "blob_write":
		return abi.BlobWrite{Name: "x", MIME: "text/plain", Data: abi.Data{Text: "abc"}},
			map[string]any{"name": "x", "mime": "text/plain", "bytes": 3}
	case "blob_read":
		return abi.BlobRead{Blob: "x"}, map[string]any{"name": "x"}
	case "ask":
		return abi.Ask{Key: "k", Message: "abc"}, map[string]any{"key": "k", "bytes": 3}
	case "list_commands":
		return abi.ListCommands{Word: "pct"}, map[string]any{"word": "pct"}
	case "snapshots":
		return abi.Snapshots{All: true}, map[string]any{"all": true}
	}
	return nil, nil
}

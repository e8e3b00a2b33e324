package main

import (
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

// What Proxmox VE 9 printed, recorded.
const content = `[{"content":"backup","ctime":1767323045,"format":"tar.zst","notes":` +
	`"before upgrade","size":5000,"subtype":"lxc","vmid":101,"volid":` +
	`"local:backup/vzdump-lxc-101-2026_01_02-03_04_05.tar.zst"},{"content":"backup","ctime":` +
	`1770091506,"format":"vma.zst","protected":1,"size":7000,"subtype":"qemu","vmid":200,` +
	`"volid":"local:backup/vzdump-qemu-200-2026_02_03-04_05_06.vma.zst"}]`

const guests = `[{"id":"lxc/101","name":"web01","node":"pve1","template":0,"type":"lxc",` +
	`"vmid":101},{"id":"lxc/102","name":"db01","node":"pve1","template":0,"type":"lxc",` +
	`"vmid":102},{"id":"qemu/200","name":"vm","node":"pve1","template":0,"type":"qemu",` +
	`"vmid":200},{"id":"qemu/201","name":"tpl","node":"pve1","template":1,"type":"qemu",` +
	`"vmid":201},{"id":"lxc/110","name":"far","node":"pve2","type":"lxc","vmid":110}]`

func TestAge(t *testing.T) {
	says := func(out string) sdk.ExecResult { return sdk.ExecResult{Stdout: []byte(out)} }
	good := says(guests)
	for _, c := range []struct {
		claim, args   string
		list, backups sdk.ExecResult
		err           error
		text, code    string
	}{
		{"each guest of the node", `{}`, good, says(content), nil, "102 db01: has no backup on " +
			"local\n101 web01: old: 33d 1h, local:backup/vzdump-lxc-101-2026_01_02-03_04_05." +
			"tar.zst\n200 vm: good: 1d 0h, local:backup/vzdump-qemu-200-2026_02_03-04_05_06." +
			"vma.zst", ""},
		{"as old as is allowed", `{"max_days":34}`, good, says(content), nil, "101 web01: good: " +
			"33d", ""},
		{"no guests", `{"node":"pve3"}`, good, says(content), nil, "pve3 has no guests.", ""},
		{"no backups", `{}`, good, says(`[]`), nil, "101 web01: has no backup", ""},
		{"a backup from the future", `{}`, good, says(strings.Replace(content, "1770091506",
			"1870091506", 1)), nil, "", "clock"},
		{"a storage that is not there", `{"storage":"nope"}`, good, sdk.ExecResult{Exit: 2,
			Stderr: []byte("storage 'nope' does not exist\n")}, nil, "", "not_found"},
		{"another failure", `{}`, sdk.ExecResult{Exit: 255}, says(content), nil, "", "failed"},
		{"null for a list", `{}`, says(`null`), says(content), nil, "", "bad_output"},
		{"a list of other things", `{}`, says(`[{}]`), says(content), nil, "", "bad_output"},
		{"a guest without a node", `{}`, says(`[{"vmid":101}]`), says(content), nil, "",
			"bad_output"},
		{"a backup without a time", `{}`, good, says(`[{"vmid":101,"volid":"x"}]`), nil, "",
			"bad_output"},
		{"text", `{}`, says(`VMID`), says(content), nil, "", "bad_output"},
		{"too much", `{}`, sdk.ExecResult{Truncated: true}, says(""), nil, "", "too_long"},
		{"a refusal", `{}`, good, good, &sdk.Refused{DecisionID: "D1"}, "", "refused"},
		{"a lost connection", `{}`, good, good, &sdk.OpError{Code: "connection",
			Message: "gone"}, "", "connection"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			now = func() time.Time { return time.Unix(1770091506+86400+60, 0) }
			h := sdktest.New(t)
			h.SSHExec = func(_ string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
				if argv[2] == "/cluster/resources" {
					return c.list, c.err
				}
				return c.backups, c.err
			}
			out, err := h.Call("backup_age", c.args)
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
	if _, err := sdktest.New(t).Call("backup_age", `{"storage":"a;b"}`); err == nil {
		t.Error("a storage with a semicolon is accepted")
	}
}

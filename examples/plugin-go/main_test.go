package main

import (
	"slices"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

const df = `Filesystem     1024-blocks    Used Available Capacity Mounted on
/dev/mapper/pve-root  98497780 9000000  84450000      10% /
/dev/sdb1              1000000  950000     50000      95% /mnt/my backups
`

func TestDiskSpace(t *testing.T) {
	for _, c := range []struct {
		claim, args string
		answer      sdk.ExecResult
		err         error
		text, code  string
	}{
		{"all are listed", `{}`, sdk.ExecResult{Stdout: []byte(df)}, nil, " 10%  /  (82470 MiB " +
			"free)\n 95%  /mnt/my backups  (48 MiB free)", ""},
		{"the full ones alone", `{"min_percent":90}`, sdk.ExecResult{Stdout: []byte(df)}, nil,
			" 95%  /mnt/my backups  (48 MiB free)", ""},
		{"none is that full", `{"min_percent":99,"node":"pve2"}`,
			sdk.ExecResult{Stdout: []byte(df)}, nil, "No file system of pve2 is that full.", ""},
		{"what df would not print is a failure", `{}`, sdk.ExecResult{Stdout: []byte("a\nb c\n")},
			nil, "", "bad_output"},
		{"an exit code is a failure", `{}`, sdk.ExecResult{Exit: 1}, nil, "", "failed"},
		{"a refusal is told", `{}`, sdk.ExecResult{}, &sdk.Refused{DecisionID: "D1",
			Failed: []string{"commands"}}, "", "refused"},
		{"a lost connection is told", `{}`, sdk.ExecResult{}, &sdk.OpError{Code: "connection",
			Message: "gone", Unknown: true}, "", "connection"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			h := sdktest.New(t)
			h.SSHExec = func(node string, argv []string, o sdk.ExecOptions) (sdk.ExecResult,
				error) {
				if !slices.Equal(argv, []string{"df", "-P", "-k", "-l"}) {
					t.Errorf("ran %q", argv)
				}
				return c.answer, c.err
			}
			o, err := h.Call("disk_space", c.args)
			if err != nil {
				t.Fatal(err)
			}
			if code := codeOf(o.Error); code != c.code || code == "" && o.Text != c.text {
				t.Errorf("text %q, error %+v; want %q %q", o.Text, o.Error, c.text, c.code)
			}
		})
	}
	if _, err := sdktest.New(t).Call("disk_space", `{"min_percent":101}`); err == nil {
		t.Error("101 percent was accepted")
	}
}

func codeOf(e *sdk.Error) string {
	if e == nil {
		return ""
	}
	return e.Code
}

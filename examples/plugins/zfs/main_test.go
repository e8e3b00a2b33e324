package main

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

const (
	good = "rpool\t498216206336\t337862762496\t32\tONLINE\n"
	weak = "tank\t1992864825344\t200000000000\t90\tDEGRADED\n"

	goodStatus = `  pool: rpool
 state: ONLINE
  scan: scrub repaired 0B in 00:04:12 with 0 errors on Sun Nov  8 00:28:13 2026
config:

	NAME                                STATE     READ WRITE CKSUM
	rpool                               ONLINE       0     0     0
	  mirror-0                          ONLINE       0     0     0
	    /dev/disk/by-id/ata-A-part3     ONLINE       0     0     0
	    /dev/disk/by-id/ata-B-part3     ONLINE       0     0     0
	spares
	  /dev/disk/by-id/ata-C             AVAIL

errors: No known data errors
`
	weakStatus = `  pool: tank
 state: DEGRADED
status: One or more devices could not be used because the label is missing or
	invalid.  Sufficient replicas exist for the pool to continue
	functioning in a degraded state.
action: Replace the device using 'zpool replace'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
config:

	NAME                       STATE     READ WRITE CKSUM
	tank                       DEGRADED     0     0     0
	  raidz1-0                 DEGRADED     0     0     0
	    /dev/sdd1              ONLINE       0     0    12
	    12345678901234567890   UNAVAIL      0     0     0  was /dev/sde1

errors: No known data errors
`
)

func TestHealth(t *testing.T) {
	says := func(out string) sdk.ExecResult { return sdk.ExecResult{Stdout: []byte(out)} }
	for _, c := range []struct {
		claim        string
		list, status sdk.ExecResult
		err          error
		texts        string // separated by |
		code         string
	}{
		{"healthy pools", says(good), says(goodStatus), nil, "rpool: ONLINE, 32% of 464 GiB in " +
			"use; scrub repaired 0B in 00:04:12", ""},
		{"a weak one beside a healthy one", says(good + weak), says(goodStatus + "\n" +
			weakStatus), nil, "! tank: the pool is DEGRADED|! tank: 90% are in use|! tank: " +
			"raidz1-0 is DEGRADED|! tank: /dev/sdd1 is ONLINE, errors 0 read, 0 write, 12 " +
			"checksum|! tank: 12345678901234567890 is UNAVAIL|never scrubbed", ""},
		{"lost data", says(good), says(strings.Replace(goodStatus, "No known data errors",
			"3 data errors, use '-v' for a list", 1)), nil, "! rpool: errors: 3 data errors", ""},
		{"a complaint alone", says(good), says(strings.Replace(goodStatus, "  scan:",
			"status: Some supported features are not enabled on the pool.\n  scan:", 1)), nil,
			"! rpool: Some supported features", ""},
		{"a pool without figures", says("p\t-\t-\t-\tUNAVAIL\n"), says("  pool: p\nerrors: x\n"),
			nil, "! p: the pool is UNAVAIL", ""},
		{"none", says(""), says("x"), nil, "pve1 has no ZFS pool.", ""},
		{"none, in words", says("no pools available\n"), says("x"), nil, "pve1 has no ZFS pool.",
			""},
		{"a status that lacks a pool", says(good + weak), says(goodStatus), nil, "",
			"bad_output"},
		{"a status of another pool", says(weak), says(goodStatus), nil, "", "bad_output"},
		{"a pool twice", says(good), says(goodStatus + goodStatus), nil, "", "bad_output"},
		{"a table with letters", says(good), says(strings.Replace(goodStatus, "0     0     0",
			"0     x     0", 1)), nil, "", "bad_output"},
		{"a list with too few columns", says("rpool\n"), says(""), nil, "", "bad_output"},
		{"a list with words for figures", says("p\ta\t1\t1\tONLINE\n"), says(""), nil, "",
			"bad_output"},
		{"no ZFS", sdk.ExecResult{Exit: 127}, says(""), nil, "", "no_zfs"},
		{"no module", sdk.ExecResult{Exit: 1, Stderr: []byte("The ZFS modules cannot be " +
			"auto-loaded.\n")}, says(""), nil, "", "no_zfs"},
		{"another failure", says(good), sdk.ExecResult{Exit: 1}, nil, "", "failed"},
		{"too much", sdk.ExecResult{Truncated: true}, says(""), nil, "", "too_long"},
		{"a refusal", says(""), says(""), &sdk.Refused{DecisionID: "D1"}, "", "refused"},
		{"a lost connection", says(""), says(""), &sdk.OpError{Code: "connection",
			Message: "gone"}, "", "connection"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			h := sdktest.New(t)
			h.SSHExec = func(_ string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
				if argv[1] == "status" {
					return c.status, c.err
				}
				return c.list, c.err
			}
			out, err := h.Call("zfs_health", `{}`)
			if err != nil {
				t.Fatal(err)
			}
			code := ""
			if out.Error != nil {
				code = out.Error.Code
			}
			for _, text := range strings.Split(c.texts, "|") {
				if code != c.code || code == "" && !strings.Contains(out.Text, text) {
					t.Errorf("text %q, error %+v; want %q %q", out.Text, out.Error, text, c.code)
				}
			}
			if well := strings.Contains(string(out.Structured), `"healthy":true`); code == "" &&
				well == strings.Contains(out.Text, "!") {
				t.Errorf("healthy %v: %s", well, out.Text)
			}
		})
	}
}

package policy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An API path that is allowed is one that Proxmox reads in one way only: plain segments, no guest
// that the site protects, no node that is not in the inventory, whatever else is in it.
func FuzzAPIPaths(f *testing.F) {
	for _, path := range []string{"/nodes", "/cluster/resources", "/nodes/pve1/lxc/102/config",
		"/nodes/pve1/lxc/103/config", "/nodes/pve1/qemu/0103/status/current", "nodes/pve1/status",
		"/nodes/pve9/status", "/nodes/pve1/../pve9/status", "//nodes//pve1/status/",
		"/nodes/pve1/lxc/102/config?x=1", "/nodes/pve1%2flxc/103", "/nodes/localhost/status",
		"/nodes/pve1/tasks/UPID:pve1:0000A0B1:0000A0B1:65000000:vzdump:103:root@pam:/log",
		"/nodes/pve1/storage/local/content", "/access/users", "/nodes/pve1/lxc/102;id/config"} {
		f.Add(path)
	}
	s := site(f, lab)
	plain := regexp.MustCompile(`^(/[A-Za-z0-9_.:@!-]+)+$`)
	f.Fuzz(func(t *testing.T, path string) {
		if strings.ContainsAny(path, "'\x00\n") || len(path) > 500 {
			return // not one word of a text
		}
		q, _ := sshCall("pvesh get '" + path + "'")
		d := decide(t, s, q)
		if !d.Allow && !d.NeedsApproval {
			return
		}
		parts := strings.Split(path, "/")
		for i, p := range parts[1:] {
			if parts[i] == "nodes" && !slices.Contains([]string{"pve1", "pve2"}, p) {
				t.Errorf("%q is allowed, of a node that is not in the inventory", path)
			}
			if strings.Trim(p, ".") == "" || slices.Contains(strings.Split(p, ":"), "103") {
				t.Errorf("%q is allowed, with the segment %q", path, p)
			}
		}
		if !plain.MatchString(path) {
			t.Errorf("%q is allowed, and is not plain", path)
		}
	})
}

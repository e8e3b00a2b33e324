package policy_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A UPID that is allowed is one that Proxmox reads in one way only (PVE::Tools::upid_decode): nine
// parts, plain, of no guest that the site protects. Proxmox takes it as the name of a file of the
// node that is asked: another node in it, or an id with zeros before it, is no task there.
func FuzzUPIDs(f *testing.F) {
	const good = "UPID:pve1:0000A0B1:0000A0B1:65000000:vzdump:102:root@pam:"
	for _, upid := range []string{good, strings.Replace(good, "102", "103", 1),
		strings.Replace(good, "pve1", "pve9", 1), strings.Replace(good, "102", "0103", 1),
		strings.Replace(good, "102", "", 1), strings.Replace(good, ":vzdump", ":vz dump", 1),
		good + ":", good[:len(good)-1],
		"UPID:pve1:0000A0B1:0000A0B1:65000000:vzdump:102:root@pam!t1:", strings.ToLower(good),
		"UPID:../x" + good, good + "/../..",
		"UPID:pve1:0000A0B1:0000A0B1:65000000:vzdump:102,103:root@pam:",
		"UPID:pve1:0000A0B1:0000A0B1:65000000:hamigrate:103@pve2:root@pam:"} {
		f.Add(upid)
	}
	s, protected := site(f, lab), regexp.MustCompile(`(^|[^0-9])103([^0-9]|$)`)
	hex := func(p string, most int) bool {
		_, err := strconv.ParseUint(p, 16, 64)
		return err == nil && len(p) >= 8 && len(p) <= most && p == strings.ToUpper(p)
	}
	f.Fuzz(func(t *testing.T, upid string) {
		if strings.ContainsAny(upid, "'\x00\n") || len(upid) > 500 {
			return // not one word of a text
		}
		for _, command := range []string{"pvenode task log '" + upid + "'",
			"pvesh get '/nodes/pve1/tasks/" + upid + "/log'"} {
			q, _ := sshCall(command)
			d := decide(t, s, q)
			if !d.Allow && !d.NeedsApproval {
				continue
			}
			p := strings.Split(upid, ":")
			switch {
			case len(p) != 9 || p[0] != "UPID" || p[8] != "":
				t.Errorf("%s is allowed, of %d parts", command, len(p))
			case strings.Trim(p[1], ".") == "":
				t.Errorf("%s is allowed, with the node %q", command, p[1])
			case !hex(p[2], 8) || !hex(p[3], 9) || !hex(p[4], 8):
				t.Errorf("%s is allowed, with a number that is none", command)
			case protected.MatchString(p[6]):
				t.Errorf("%s is allowed, of a guest that is protected", command)
			case strings.ContainsAny(upid, " /\\%?#;|&$`\"<>(){}*") || !strings.Contains(p[7], "@"):
				t.Errorf("%s is allowed, and is not plain", command)
			}
		}
	})
}

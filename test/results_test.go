package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command of the lab prints a private key. The client gets a mask, the journal a count, and no
// file of the host has the key.
func TestAPrivateKeyDoesNotReachTheClient(t *testing.T) {
	s := newSite(t)
	const canary = "MIICANARYCANARY"
	printed := `printf -- '-----BEGIN %s KEY-----\nMII%sANARY\n-----END %s KEY-----\n' ` +
		`PRIVATE CANARYC PRIVATE; echo after`
	args := `{"vmid":101,"command":"` + strings.ReplaceAll(printed, `\`, `\\`) + `"}`
	out, err := s.command("call", "proxmox_container_exec_command", args).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "[caponier:masked:private_key]") ||
		!strings.Contains(string(out), "after") || strings.Contains(string(out), canary) {
		t.Fatalf("%v: %s", err, out)
	}
	s.journaled(t, `"hits":\[\{"detector":"private_key","count":1,"action":"mask"\}\]`)
	must(t, filepath.WalkDir(s.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if strings.Contains(string(b), canary) {
			t.Errorf("%s has the key", name)
		}
		return err
	}))
}

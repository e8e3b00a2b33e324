package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/plugin-registry.md are run in the order of the page, against Debian's
// registry on loopback; cosign is not in Debian, so its line is left out. Only the names of the
// registry, the key and the folders are replaced.
func TestTheRegistryPageHolds(t *testing.T) {
	page := read(t, "../docs/plugin-registry.md")
	fences := regexp.MustCompile("(?s)```(?:sh|yaml)\n(.*?)```").FindAllSubmatch(page, -1)
	if len(fences) != 3 {
		t.Fatalf("%d fences", len(fences))
	}
	s, registry := newSite(t), registryOnLoopback(t)
	key, public := keyPair(t)
	work, programs := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(programs, "caponier"), fmt.Appendf(nil,
		"#!/bin/sh\nexec %s --config %s \"$@\"\n", bin, s.config), 0o755))
	module, err := os.ReadFile("../build/modules/steps.wasm")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(work, "acme-zfs.wasm"), module, 0o644))
	must(t, os.WriteFile(filepath.Join(work, "acme-zfs.spdx.json"), []byte(
		`{"spdxVersion":"SPDX-2.3"}`), 0o644))
	run := func(text string) (out string) {
		t.Helper()
		text = strings.ReplaceAll(text, "\\\n", " ")
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.NewReplacer("~/.ssh/id_ed25519", key,
				"oci://registry.example.org", "--plain-http oci://"+registry).Replace(line)
			if strings.HasPrefix(line, "cosign ") {
				continue
			}
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir, cmd.Env = work, append(s.command().Env, "PATH="+programs+":"+os.Getenv("PATH"))
			got, err := cmd.CombinedOutput()
			// diff exits with 3 where something came or changed
			if err != nil && !strings.Contains(line, " diff ") {
				t.Fatalf("%s: %v\n%s", line, err, got)
			}
			out += string(got)
		}
		return out
	}
	ref := strings.TrimSpace(run(string(fences[0][1])))
	_, digest, ok := strings.Cut(ref, "@")
	if !ok {
		t.Fatalf("push printed %q", ref)
	}
	data := filepath.Join(s.dir, "site", "data.yaml")
	f, err := os.OpenFile(data, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	// the module that is at hand calls itself steps, and asks its user too
	_, err = f.WriteString("\n" + strings.NewReplacer("ssh-ed25519 AAAA…", public, "acme-*",
		"steps", "[ssh_exec]", "[ask, ssh_exec]").Replace(string(fences[2][1])))
	must(t, err)
	must(t, f.Close())
	taking := strings.NewReplacer("sha256:…", digest, "build/plugins/",
		filepath.Join(s.dir, "plugins")+"/", "plugins.lock", filepath.Join(s.dir, "plugins.lock"))
	out := run(taking.Replace(string(fences[1][1])))
	for _, want := range []string{"is signed by acme", "steps: is new"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q:\n%s", want, out)
		}
	}
	if !strings.Contains(s.read(t, "plugins.lock"), `"by": "acme"`) {
		t.Error("the lock does not say who signed")
	}
}

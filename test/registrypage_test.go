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
// registry, the key and the folders are replaced. Then the module is signed without a key.
func TestTheRegistryPageHolds(t *testing.T) {
	page := read(t, "../docs/plugin-registry.md")
	fences := regexp.MustCompile("(?s)```(?:sh|yaml)\n(.*?)```").FindAllSubmatch(page, -1)
	if len(fences) != 6 {
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
	before := read(t, data)
	// the module that is at hand calls itself steps, and asks its user too
	mine := strings.NewReplacer("ssh-ed25519 AAAA…", public, "acme-*", "steps", "[ssh_exec]",
		"[ask, ssh_exec]")
	must(t, os.WriteFile(data, []byte(string(before)+"\n"+mine.Replace(string(fences[2][1]))),
		0o644))
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
	file := filepath.Join(s.dir, "plugins", "acme-zfs.wasm")
	root, program := keylessly(t, workflow+"v1", file)
	must(t, os.WriteFile(data, []byte(string(before)+"\n"+mine.Replace(string(fences[4][1]))),
		0o644))
	toml := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(page)
	config := strings.NewReplacer("/usr/lib/caponier/caponier-keyless", program,
		"/etc/caponier/trusted_root.json", root).Replace(string(toml[1]))
	must(t, os.WriteFile(s.config, []byte(s.read(t, "config.toml")+"\n"+config), 0o600))
	run("caponier plugin lock acme-zfs")
	out = run(strings.NewReplacer("./caponier-keyless", program, "trusted_root.json ", root+" ",
		"acme-zfs.wasm", file).Replace(string(fences[5][1])))
	if !strings.Contains(out, "is signed by "+workflow+"v1") {
		t.Errorf("who signed without a key: %s", out)
	}
}

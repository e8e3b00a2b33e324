//go:build conformance

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// The official suite's bundles are held or refused as it says, with what is not for the signature
// of a module refused too: attestations, keys, older versions. They are not on the module proxy:
//
//	ASSETS=…/sigstore-conformance/test/assets/bundle-verify go test -tags conformance .
//
// Sigstore's public trusted root is that of sigstore-go's own tests.
func TestTheOfficialSuite(t *testing.T) {
	assets := os.DirFS(os.Getenv("ASSETS"))
	read := func(file, otherwise string) string {
		data, err := fs.ReadFile(assets, file)
		if err != nil {
			data = []byte(otherwise)
		}
		return strings.TrimSpace(string(data))
	}
	cases, err := fs.Glob(assets, "*/bundle.sigstore.json")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no bundles in ASSETS: %v", err)
	}
	held := 0
	for _, file := range cases {
		dir := path.Dir(file)
		artifact, err := fs.ReadFile(assets, dir+"/artifact")
		if err != nil {
			artifact, err = fs.ReadFile(assets, "a.txt")
		}
		if err != nil {
			t.Fatal(err)
		}
		bundle := read(file, "")
		issuer, subject, err := verify(question{
			TrustedRoot: read(dir+"/trusted_root.json", trustedRoot(t, "public-good.json")),
			Bundle:      bundle,
			Digest:      fmt.Sprintf("sha256:%x", sha256.Sum256(artifact)),
		})
		_, ours := fs.Stat(assets, dir+"/key.pub")
		notOurs := ours == nil || strings.Contains(bundle, `"dsseEnvelope"`) ||
			strings.Contains(bundle, `version=0.1"`) || strings.Contains(bundle, `version=0.2"`)
		wantIssuer := read(dir+"/issuer", "https://token.actions.githubusercontent.com")
		wantSubject := read(dir+"/identity", "https://github.com/sigstore-conformance/"+
			"extremely-dangerous-public-oidc-beacon/.github/workflows/"+
			"extremely-dangerous-oidc-beacon.yml@refs/heads/main")
		good := err == nil && issuer == wantIssuer && subject == wantSubject
		want := !strings.HasSuffix(dir, "_fail") && !notOurs
		t.Logf("%-60s %v: %v", dir, good, err)
		if good != want {
			t.Errorf("%s: %v, want %v: %s %s %v", dir, good, want, issuer, subject, err)
		}
		if good {
			held++
		}
	}
	t.Logf("%d of %d hold", held, len(cases))
}

package rules

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// reaches are the packages by which code gets to a node, a process or a file.
var reaches = []string{"net", "net/http", "net/http/httputil", "net/rpc", "net/smtp",
	"net/textproto", "crypto/tls", "os",
	"os/exec", "os/user", "syscall", "plugin", "unsafe", module + "host/remote", module +
		"host/egress",
	module + "host/blob", module + "host/sandbox", module + "host/doctor", module + "host/config",
	"golang.org/x/crypto/ssh",
	"golang.org/x/sys/unix", "github.com/pkg/sftp"}

// reached returns what the package, or one of ours that it imports, imports of reaches.
func reached(all map[string]*packages.Package, path string) (found []string) {
	seen := map[string]bool{}
	var walk func(string)
	walk = func(at string) {
		if seen[at] || all[at] == nil {
			return
		}
		seen[at] = true
		for imp := range all[at].Imports {
			if slices.Contains(reaches, imp) {
				found = append(found, strings.TrimPrefix(at, module)+" "+
					strings.TrimPrefix(imp, module))
			}
			if strings.HasPrefix(imp, module) {
				walk(imp)
			}
		}
	}
	walk(path)
	slices.Sort(found)
	return found
}

// What `caponier plugin run` runs cannot reach a node: the executors have no way to one by their
// types, since neither their package nor any of ours below it can make a connection or a process,
// or open a file.
func TestTheOfflineExecutorsCannotReachANode(t *testing.T) {
	const offline = module + "host/offline"
	all := func(overlay map[string][]byte) map[string]*packages.Package {
		found := map[string]*packages.Package{}
		for _, p := range loadHost(t, overlay) {
			packages.Visit([]*packages.Package{p}, func(p *packages.Package) bool {
				found[p.PkgPath] = p
				return strings.HasPrefix(p.PkgPath, module)
			}, nil)
		}
		return found
	}
	now := all(nil)
	if now[offline] == nil {
		t.Fatal("host/offline is not there, so that this test proves nothing")
	}
	if found := reached(now, offline); len(found) > 0 {
		t.Errorf("host/offline reaches out: %q", found)
	}
	// a way out that is planted is found, also one package below
	root, err := rootDir()
	if err != nil {
		t.Fatal(err)
	}
	planted := all(map[string][]byte{
		root + "/host/offline/planted.go": []byte("package offline\n\nimport _ \"os/exec\"\n"),
		root + "/host/plan/planted.go":    []byte("package plan\n\nimport _ \"net\"\n"),
	})
	if found := reached(planted, offline); !slices.Equal(found,
		[]string{"host/offline os/exec", "host/plan net"}) {
		t.Errorf("what was planted is not found: %q", found)
	}
}

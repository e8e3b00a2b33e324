// Package rules holds the rules of this repository as tests.
package rules

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/caponier-mcp/caponier/"

// rooms lists the packages of this repository that each package may import. A package that is not
// listed fails: adding one is a design change (docs/design.md, section 1).
var rooms = map[string][]string{
	"host/gate":              {"host/terms", "sdk/abi", "sdk/abi/success"},
	"host/terms":             {"sdk/abi"},
	"sdk/abi/success":        {"sdk/abi"},
	"host/fair":              {},
	"host/plaintext":         {},
	"host/trusted":           {},
	"host/watch":             {},
	"host/systemd":           {},
	"host/freeze":            {"host/terms"},
	"host/notify":            {"host/plaintext"},
	"host/signin":            {},
	"host/signin/signintest": {},
	"host/plan":              {"host/terms", "host/plaintext", "host/policy/input", "host/reverse"},
	"host/reverse":           {"host/shell"},
	"host/offline": {"host/gate", "host/terms", "host/fair", "host/plan", "host/policy/input",
		"host/shell",
		"sdk/abi"},
	"host/shell": {"host/terms"},
	"host/policy": {"host/terms", "host/policy/input", "host/policy/memo", "host/policy/redact",
		"host/policy/value", "sdk/abi"},
	"host/policy/memo":   {"host/policy/value"},
	"host/policy/value":  {},
	"host/policy/input":  {"host/terms", "host/policy/value", "sdk/abi"},
	"host/policy/redact": {"host/terms", "host/policy/input", "host/policy/value"},
	"host/policy/load": {"host/terms", "host/policy", "host/policy/input", "host/policy/value",
		"host/result", "host/shell",
		"host/policy/load/strict", "host/trusted", "host/watch", "policies", "sdk/abi"},
	"host/policy/load/strict": {},
	"host/policy/replay": {"host/terms", "host/policy", "host/policy/input", "host/policy/value",
		"host/policy/load"},
	"host/policy/repo": {"host/policy/load"},
	"host/policy/suggest": {"host/terms", "host/policy/can", "host/policy/input",
		"host/policy/load", "host/policy/load/strict", "host/policy/value"},
	"host/policy/can": {"host/terms", "host/policy", "host/policy/load", "sdk/abi"},
	"host/sandbox": {"host/gate", "host/terms", "host/fair", "host/plaintext", "host/sandbox/meter",
		"host/trusted", "sdk/abi"},
	"host/sandbox/meter": {},
	// Operations, which the gate's executor allows, use files; files use commands; commands use
	// connections. No other package can use the internal packages of remote.
	"host/remote": {"host/terms", "host/shell", "host/survey", "host/remote/internal/files",
		"host/remote/internal/command", "host/remote/internal/conn", "host/remote/internal/effect",
		"sdk/abi"},
	"host/remote/internal/files": {"host/terms", "host/remote/internal/command",
		"host/remote/internal/conn", "host/remote/internal/effect", "sdk/abi"},
	"host/remote/internal/command": {"host/terms", "host/remote/internal/conn",
		"host/remote/internal/effect"},
	"host/remote/internal/conn":   {"host/terms", "host/fair", "host/remote/internal/effect"},
	"host/remote/internal/effect": {"host/terms"},
	"host/cluster":                {},
	"host/inventory": {"host/cluster", "host/gate", "host/terms", "host/native",
		"sdk/abi"},
	"host/result": {"host/gate", "host/terms", "sdk/abi"},
	"host/policy/returned": {"host/terms", "host/policy", "host/policy/input", "host/policy/memo",
		"host/policy/value", "host/result"},
	"host/survey": {"host/cluster", "host/terms"},
	"host/native": {"host/gate", "host/terms"},
	"host/lease":  {"host/terms"},
	"host/undo": {"host/cluster", "host/gate", "host/terms", "host/native", "host/reverse",
		"sdk/abi"},
	"host/recording": {"host/terms", "host/native", "host/offline", "sdk/abi"},
	"host/shadow": {"host/audit", "host/terms", "host/policy", "host/policy/input",
		"host/policy/load", "host/policy/replay", "host/watch"},
	"host/sweep":          {"host/gate", "host/terms", "host/native", "sdk/abi"},
	"host/remote/sshtest": {"host/terms", "test/needs"},
	"host/doctor":         {"host/", "policies"},
	"host/egress":         {"host/terms", "host/fair"},
	"host/blob":           {"host/terms", "host/trusted"},
	"host/approval": {"host/terms", "host/notify", "host/plaintext", "host/signin",
		"host/trusted"},
	"host/audit":       {"host/terms", "host/plaintext", "host/trusted"},
	"host/anchor":      {"host/audit", "host/trusted"},
	"host/export":      {"host/audit"},
	"host/audit/index": {"host/audit", "host/terms"},
	"host/console":     {"host/audit", "host/audit/index", "host/terms", "host/plaintext"},
	// the packages whose interfaces it implements
	"host/store": {"host/terms", "host/approval", "host/blob", "host/egress", "host/lease",
		"host/trusted", "host/undo"},
	"host/store/postgres": {"host/terms", "host/approval", "host/blob", "host/egress",
		"host/freeze", "host/identity", "host/lease", "host/store", "host/undo"},
	"host/plugin":        {"host/terms", "host/plaintext", "host/trusted"},
	"host/plugin/author": {"sdk/assemblyscript", "sdk/c", "sdk/rust"},
	"host/distribution":  {"sdk/abi"},
	"host/signature":     {"sdk/abi"},
	"host/keyless":       {"host/plaintext", "host/trusted", "sdk/abi"},
	"host/identity":      {"host/terms", "host/trusted", "sdk/abi"},
	"host/config": {
		"host/trusted",
		"host/terms",
		"host/policy/load",
		"host/sandbox",
		"host/remote",
		"host/egress",
		"host/blob",
		"host/approval",
		"host/audit",
		"host/anchor",
		"host/export",
		"host/store",
		"host/plugin",
		"host/identity",
		"host/keyless",
		"host/observe",
		"host/front/mcp",
		"host/front/http",
	},
	"host/setup":               {},
	"host/cmd/caponier":        {"host/", "client/", "policies"},
	"host/cmd/caponier/hangup": {},
	"host/front/fronttest":     {"host/terms"},
	"host/front/http":          {"host/terms", "host/fair", "host/front/mcp", "host/observe"},
	"host/front/mcp": {"host/gate", "host/terms", "host/fair", "host/observe", "host/plaintext",
		"sdk/abi"},
	"host/observe": {"host/gate", "host/terms"},

	// programs of the client's machine, which know nothing of the host
	"client/connect":     {},
	"client/oauth":       {},
	"client/command":     {"client/connect", "client/oauth"},
	"client/settings":    {},
	"client/cmd/connect": {"client/command"},

	"packaging/dist":           {},
	"policies":                 {},
	"sdk":                      {"sdk/abi", "sdk/codec", "sdk/internal/imports"},
	"sdk/abi":                  {"sdk/codec"},
	"sdk/codec":                {},
	"sdk/internal/gen":         {"sdk/abi"},
	"sdk/internal/gen/abi":     {"sdk/internal/gen"},
	"sdk/assemblyscript":       {},
	"sdk/c":                    {},
	"sdk/rust":                 {},
	"sdk/internal/imports":     {"sdk/abi"},
	"sdk/sdktest":              {"sdk", "sdk/abi", "sdk/internal/imports"},
	"plugins/":                 {"sdk", "plugins/internal/"},
	"plugins/internal/pvetest": {"sdk", "sdk/sdktest", "plugins/internal/"},
	"examples/":                {"sdk"},
	"test/modules/":            {"sdk"},
	"test/needs":               {},
	"test/needs/":              {"test/needs"},
	"test/pvelab":              {},
	"test/pvelab/":             {"test/pvelab"},
	"test/bench":               {"host/", "policies", "test/"},
	"test/bench/":              {},
	"test/conformance":         {"sdk", "host/"},
	"test/conformance/":        {"sdk"},
	"test/toolsdoc":            {"host/"},
	"test/operationtable":      {"sdk/abi"},
	"test/demo":                {"test/pvelab"},
	"test":                     {},
}

// owners lists the packages that may import a third-party module. Packages under test/ may import
// any.
var owners = map[string][]string{
	"github.com/open-policy-agent/opa": {"host/policy", "host/policy/input",
		"host/policy/value", "host/policy/memo", "host/policy/redact", "host/policy/load",
		"host/policy/replay", "host/policy/returned", "host/policy/suggest"},
	"github.com/tetratelabs/wazero": {"host/sandbox"},
	"github.com/modelcontextprotocol": {"host/front/mcp", "host/front/http", "host/identity",
		"client/oauth"},
	"golang.org/x/crypto/ssh": {"host/remote/internal/conn", "host/remote/internal/command",
		"host/remote/internal/files",
		"host/remote/sshtest", "host/doctor", "host/setup", "host/signature"},
	"github.com/hiddeco/sshsig":    {"host/signature"},
	"oras.land/oras-go":            {"host/distribution", "host/cmd/caponier"},
	"github.com/opencontainers":    {"host/distribution"},
	"golang.org/x/mod/sumdb/note":  {"host/anchor"},
	"golang.org/x/mod/semver":      {"host/policy/repo"},
	"github.com/skeema/knownhosts": {"host/remote/internal/conn", "host/doctor"},
	"github.com/pkg/sftp": {"host/remote", "host/remote/internal/files",
		"host/remote/sshtest"},
	"github.com/pelletier/go-toml": {"host/config", "host/setup", "client/settings"},
	"mvdan.cc/sh":                  {"host/shell"},
	"modernc.org/sqlite":           {"host/store", "host/audit/index"},
	"github.com/jackc/pgx":         {"host/store/postgres"},
	"github.com/google/jsonschema-go": {"host/plugin", "host/front/mcp",
		"plugins/internal/pvetest"},
	"github.com/spf13/cobra":    {"host/cmd/caponier"},
	"github.com/coreos/go-oidc": {"host/identity", "host/signin"},
	"golang.org/x/oauth2":       {"host/signin", "client/oauth"},
	"golang.org/x/time/rate":    {"host/identity", "host/front/http", "host/signin"},
	"golang.org/x/sys": {
		"host/audit",
		"host/export",
		"host/shadow",
		"host/sandbox",
		"host/systemd",
		"host/doctor",
		"host/store",
	},
	"github.com/itchyny/gojq": {"plugins/internal/jq"},
	"code.dny.dev/ssrf":       {"host/egress"},
	"go.yaml.in/yaml": {"host/policy/load", "host/policy/load/strict",
		"host/offline", "client/settings"},
	"github.com/prometheus/client_golang": {"host/observe"},
	"github.com/fsnotify/fsnotify":        {"host/watch"},
	"go.uber.org/goleak":                  {},
	"github.com/rogpeppe/go-internal":     {},
	"golang.org/x/crypto":                 {"host/remote/sshtest", "host/setup"},
}

type pkg struct {
	ImportPath, Dir                               string
	Imports, GoFiles, TestGoFiles, IgnoredGoFiles []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command(
		"go",
		"list",
		"-json=ImportPath,Dir,Imports,GoFiles,TestGoFiles,IgnoredGoFiles",
		"./...", module+"sdk/...",
	)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(out); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return pkgs
}

func room(path string) (string, bool) {
	if _, ok := rooms[path]; ok {
		return path, true
	}
	for name := range rooms {
		if strings.HasSuffix(name, "/") && strings.HasPrefix(path, name) {
			return name, true
		}
	}
	return "", false
}

// ground may be imported by every package under host: the vocabulary, the wire, and what is pure.
var ground = []string{"host/terms", "sdk/abi", "host/shell", "host/fair", "host/plaintext",
	"host/trusted"}

func allowed(path string, list []string) bool {
	return slices.ContainsFunc(
		list,
		func(a string) bool {
			return a == path || strings.HasSuffix(a, "/") &&
				strings.HasPrefix(path, a)
		},
	)
}

func onGround(path, in string) bool {
	return strings.HasPrefix(path, "host/") && path != "host/gate" &&
		!slices.Contains(ground, path) &&
		slices.Contains(ground, in)
}

func TestPackagesImportOnlyWhatTheMapAllows(t *testing.T) {
	for _, p := range listPackages(t) {
		path, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours || len(p.GoFiles) == 0 || strings.HasPrefix(path, "internal_deps") {
			continue
		}
		name, listed := room(path)
		if !listed {
			t.Errorf("package %s is not on the map in test/rules/arch_test.go", path)
			continue
		}
		for _, imp := range p.Imports {
			if in, ours := strings.CutPrefix(imp, module); ours {
				if !allowed(in, rooms[name]) && !onGround(path, in) &&
					!strings.HasPrefix(in, path+"/internal") {
					t.Errorf("%s imports %s; the map allows %v", path, in, rooms[name])
				}
				continue
			}
			if path == "test/pvelab" && ownerOf(imp) == "mvdan.cc/sh" {
				t.Errorf("%s imports %s: what it shares with the host it cannot test", path, imp)
			}
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") ||
				strings.HasPrefix(path, "test") {
				continue
			}
			if owner := ownerOf(imp); owner == "" || !slices.Contains(owners[owner], path) {
				t.Errorf("%s imports %s; %q may be imported by %v", path, imp, owner, owners[owner])
			}
		}
	}
}

func ownerOf(imp string) (longest string) {
	for mod := range owners {
		if (imp == mod || strings.HasPrefix(imp, mod+"/")) && len(mod) > len(longest) {
			longest = mod
		}
	}
	return longest
}

// A package doc is one sentence that needs no "and".
func TestPackageDocsAreOneThing(t *testing.T) {
	for _, p := range listPackages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(path, "host/") && !strings.HasPrefix(path, "client/") ||
			len(p.GoFiles) == 0 {
			continue
		}
		doc := ""
		for _, f := range p.GoFiles {
			parsed, err := parser.ParseFile(
				token.NewFileSet(),
				filepath.Join(p.Dir, f),
				nil,
				parser.PackageClauseOnly|parser.ParseComments,
			)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Doc != nil {
				doc = parsed.Doc.Text()
			}
		}
		first, _, _ := strings.Cut(strings.ReplaceAll(doc, "\n", " "), ". ")
		if doc == "" {
			t.Errorf("%s has no package doc", path)
		} else if strings.Contains(first, ", and ") {
			t.Errorf("%s: the package doc needs an \"and\": %s", path, first)
		}
	}
}

func TestForbiddenPackageNames(t *testing.T) {
	for _, p := range listPackages(t) {
		base := filepath.Base(p.ImportPath)
		if slices.Contains(
			[]string{
				"types",
				"util",
				"utils",
				"errors",
				"core",
				"middleware",
				"tiers",
				"sanitize",
				"registry",
				"health",
				"metrics",
				"common",
			},
			base,
		) {
			t.Errorf("%s: a package is named after what it gives, not %q", p.ImportPath, base)
		}
	}
}

func rootDir() (string, error) { return filepath.Abs("../..") }

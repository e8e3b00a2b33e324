package test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runners maps a page to the test that runs its fences. A page without a test must have no commands
// in fences, except those listed in illustrates.
var runners = map[string]string{
	"README.md":                       "TestWalks",
	"docs/plugins.md":                 "TestWalks",
	"docs/first-node.md":              "TestWalks",
	"docs/operating.md":               "TestWalks",
	"docs/procedures.md":              "TestWalks",
	"docs/identity/keycloak.md":       "TestIdentityPagesLetTheirProvidersIn",
	"docs/identity/entra.md":          "TestIdentityPagesLetTheirProvidersIn",
	"docs/identity/okta.md":           "TestIdentityPagesLetTheirProvidersIn",
	"docs/identity/authentik.md":      "TestIdentityPagesLetTheirProvidersIn",
	"docs/identity/github-actions.md": "TestIdentityPagesLetTheirProvidersIn",
	"docs/identity/auth0.md":          "TestIdentityPagesLetTheirProvidersIn",
	"docs/identity/zitadel.md":        "TestIdentityPagesLetTheirProvidersIn",
	// its dex.yaml is run by TestDex of test/conformance, where there is a Dex
	"docs/identity/dex.md":                               "TestIdentityPagesLetTheirProvidersIn",
	"docs/console.md":                                    "TestAPersonSeesWhatHappensInABrowser",
	"docs/plugin-registry.md":                            "TestTheRegistryPageHolds",
	"docs/uses/read-everything.md":                       "TestWalks",
	"docs/uses/web-team.md":                              "TestWalks",
	"docs/uses/on-call.md":                               "TestWalks",
	"docs/uses/ci-token.md":                              "TestWalks",
	"docs/uses/least-privilege.md":                       "TestWalks",
	"docs/uses/policy-repository.md":                     "TestWalks",
	"docs/policy.md":                                     "TestEveryExampleOfTheDocsHolds",
	"docs/abi.md":                                        "TestTheExamplesOfTheABIPageWork",
	"docs/approvals.md":                                  "TestWalks",
	"examples/plugin-go/README.md":                       "TestFolderReadmesWork",
	"examples/plugins/zfs/README.md":                     "TestFolderReadmesWork",
	"examples/plugins/backup-age/README.md":              "TestFolderReadmesWork",
	"examples/plugins/service/README.md":                 "TestFolderReadmesWork",
	"examples/plugins/load/README.md":                    "TestExamplesInOtherLanguagesWork",
	"examples/plugins/thin-pools/README.md":              "TestExamplesInOtherLanguagesWork",
	"examples/plugins/clock/README.md":                   "TestExamplesInOtherLanguagesWork",
	"host/plugin/author/templates/plugin/README.md.tmpl": "TestFolderReadmesWork",
	"host/plugin/author/templates/common/README.md.tmpl": "TestNewPluginsOfEachLanguageWork",
}

// illustrates are fences that a reader does not run.
var illustrates = map[string][]string{"docs/design.md": {"", "go", "jsonc"},
	"docs/plan.md": {"text", "go", "yaml"},
	// newReplicas runs what scale.md configures HAProxy with
	"docs/scale.md": {"sql", "toml", "haproxy"},
	// needs a cluster and a registry; test/cluster_test.go reads the manifests
	"examples/cluster/README.md": {"sh"},
	// host/policy/repo runs what ci.sh has of it
	"host/policy/repo/CAPONIER.md.tmpl": {"sh", "yaml"},
	// test/packaging/verify.sh runs these
	"packaging/VERIFY.md": {"sh", "sh signed", "sh minisign", "sh deb", "sh rpm", "sh go",
		"sh rebuild"}}

func pages(t *testing.T) (names []string) {
	t.Helper()
	cmd := exec.Command(
		"git",
		"ls-files",
		"--cached",
		"--others",
		"--exclude-standard",
		"*.md",
		"*.md.tmpl",
	)
	cmd.Dir = ".."
	out, err := cmd.Output()
	must(t, err)
	if names = strings.Fields(string(out)); len(names) < 15 {
		t.Fatalf("pages: %q", names)
	}
	return names
}

// Every command of every page is run by a test, or belongs on a real node and is marked as such;
// each text that a page calls a command of caponier, or a target of make, is one, with those flags.
func TestEveryCommandInThePagesIsRunOrMarked(t *testing.T) {
	tests := ""
	for _, glob := range []string{"*_test.go", "../host/*/*_test.go", "../host/*/*/*_test.go",
		"../host/*/*/*/*_test.go", "../client/*/*_test.go"} {
		files, err := filepath.Glob(glob)
		must(t, err)
		for _, f := range files {
			code, err := os.ReadFile(f)
			must(t, err)
			tests += string(code)
		}
	}
	makefile, err := os.ReadFile("../Makefile")
	must(t, err)
	targets := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindSubmatch(makefile)
	commands := 0
	for _, page := range pages(t) {
		data, err := os.ReadFile(filepath.Join("..", page))
		must(t, err)
		runner, info, open := runners[page], "", false
		if runner != "" && !strings.Contains(tests, "\nfunc "+runner+"(t ") {
			t.Errorf("%s: there is no test %s", page, runner)
		}
		for i, line := range strings.Split(string(data), "\n") {
			rest, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
			switch {
			case fence && open:
				open = false
			case fence:
				open, info = true, rest
				if runner == "" && !slices.Contains(illustrates[page], info) {
					t.Errorf(
						"%s:%d: nobody runs a fence of %q: give the page a test, or say that the "+
							"fence illustrates (test/docs_test.go)",
						page,
						i+1,
						info,
					)
				}
			}
			spans := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1)
			if open {
				spans = [][]string{{"", strings.TrimPrefix(strings.TrimSpace(line), "$ ")}}
			}
			for _, s := range spans {
				words := strings.Fields(s[1])
				switch {
				case len(words) > 1 && words[0] == "caponier" && !strings.HasPrefix(words[1], ":"):
					commands++
					if problem := noCommand(words[1:]); problem != "" {
						t.Errorf("%s:%d: `%s`: %s", page, i+1, s[1], problem)
					}
				case len(words) == 2 && words[0] == "make" && !open:
					if !strings.Contains(" all "+string(targets[1])+" ", " "+words[1]) &&
						!strings.HasPrefix(words[1], "build/") {
						t.Errorf("%s:%d: make has no target %s", page, i+1, words[1])
					}
				}
			}
		}
	}
	if commands < 60 {
		t.Errorf("only %d commands were found", commands)
	}
}

var helps = map[string]string{} // by command

// noCommand returns what is wrong with the words of a command line, according to its help.
func noCommand(words []string) string {
	path, flags := []string{}, []string{}
	for i := 0; i < len(words) && !strings.ContainsAny(words[i], "#;|&"); i++ {
		if w := strings.TrimRight(words[i], ","); strings.HasPrefix(w, "-") {
			flag, _, _ := strings.Cut(w, "=")
			if flags = append(flags, flag); flag == "--config" || flag == "--profile" {
				i++
			}
		} else if !strings.HasSuffix(w, "…") && (len(flags) == 0 || len(path) == 0) {
			path = append(path, w)
		}
	}
	if len(path) == 0 {
		return "" // all commands
	}
	for n := min(len(path), 2); n > 0; n-- {
		key := strings.Join(path[:n], " ")
		if _, seen := helps[key]; !seen {
			out, _ := exec.Command(bin, append(append([]string{}, path[:n]...), "--help")...).
				CombinedOutput()
			helps[key] = string(out)
		}
		usage := regexp.MustCompile(`(?m)^  caponier ` + regexp.QuoteMeta(key) + `( |$)`)
		if !usage.MatchString(helps[key]) {
			continue // the last word is an argument
		}
		if n == 1 && len(path) > 1 && strings.Contains(helps[key], "Available Commands:") &&
			!strings.ContainsAny(path[1], "…<|") {
			return "there is no " + key + " " + path[1]
		}
		for _, f := range flags {
			if f != "-" && f != "--" &&
				!regexp.MustCompile(`(?m)(^|\s)`+regexp.QuoteMeta(f)+`[ ,\n]`).
					MatchString(helps[key]) {
				return "caponier " + key + " has no " + f
			}
		}
		return ""
	}
	return "there is no such command"
}

// The commands in a plugin's README work in its folder, for our plugins and a new one.
func TestFolderReadmesWork(t *testing.T) {
	t.Parallel()
	run := func(dir string) {
		t.Helper()
		page, err := os.ReadFile(filepath.Join(dir, "README.md"))
		must(t, err)
		fence := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(page)
		if fence == nil {
			t.Fatalf("%s/README.md has no commands", dir)
		}
		cmd := exec.Command("bash", "-ec", string(fence[1]))
		cmd.Dir, cmd.Env = dir, append(
			os.Environ(),
			"PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"),
			"GOPROXY=off",
		)
		out, err := cmd.CombinedOutput()
		if exited := (*exec.ExitError)(nil); errors.As(err, &exited) ||
			!regexp.MustCompile(`plugins.lock (written|is current) \(1 plugins\)`).Match(out) {
			t.Errorf("%s/README.md: %v %s", dir, err, out)
		}
	}
	for _, example := range []string{"plugin-go", "plugins/zfs", "plugins/backup-age",
		"plugins/service"} {
		ours, err := filepath.Abs("../examples/" + example)
		must(t, err)
		run(ours)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if out, err := exec.Command(bin, "plugin", "new", dir).CombinedOutput(); err != nil {
		t.Fatalf("plugin new: %v %s", err, out)
	}
	run(dir)
}

// What the README shows of a client's configuration is the file that a test starts the host from.
func TestReadmeShowsAClientsFile(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	must(t, err)
	fence := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if fence == nil {
		t.Fatal("README.md shows none")
	}
	file, err := os.ReadFile("../examples/clients/claude_desktop_config.json")
	must(t, err)
	var a, b any
	must(t, json.Unmarshal(fence[1], &a))
	must(t, json.Unmarshal(file, &b))
	if !reflect.DeepEqual(a, b) {
		t.Errorf("README.md shows\n%s\nthe file says\n%s", fence[1], file)
	}
}

// The tests that a page names exist.
func TestPagesNameExistingTests(t *testing.T) {
	tests := ""
	for _, glob := range []string{"*_test.go", "../host/*/*_test.go", "../host/*/*/*_test.go",
		"../host/*/*/*/*_test.go", "../client/*/*_test.go", "conformance/*_test.go"} {
		files, err := filepath.Glob(glob)
		must(t, err)
		for _, f := range files {
			code, err := os.ReadFile(f)
			must(t, err)
			tests += string(code)
		}
	}
	named := 0
	for _, page := range []string{"docs/approvals.md", "docs/threats.md", "docs/operating.md"} {
		data, err := os.ReadFile(filepath.Join("..", page))
		must(t, err)
		for _, m := range regexp.MustCompile(
			"`((?:Test|Fuzz)[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(data), -1) {
			if named++; !strings.Contains(tests, "\nfunc "+m[1]+"(") {
				t.Errorf("%s: there is no test %s", page, m[1])
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d tests are named", named)
	}
}

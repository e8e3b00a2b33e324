package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The bounds that keep the code readable. Lines are those of files that are not tests, at most
// maxColumns wide. sshtest is a helper of tests.
const (
	maxColumns  = 100 // a tab counts as 4
	maxFile     = 400 // lines
	maxFunction = 60  // lines of its body, with its braces
	// The plan was 22,000 lines for this set of features: docs/rationale.md says where the rest is.
	maxHost = 59_470
	// maxClient bounds the programs of the client's machine.
	maxClient = 1_587
)

// maxLines bounds sets of packages, each without the packages below it. The decision path is what
// runs between a question and its decision.
var maxLines = map[string]int{
	"../../host/gate":   850,
	"../../host/policy": 550,
	"../../host/policy ../../host/policy/input ../../host/policy/value " +
		"../../host/policy/redact": 1_801,
}

// sources returns the files that git tracks, or would, with this ending.
func sources(t *testing.T, pattern ...string) []string {
	t.Helper()
	args := append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"},
		pattern...)
	cmd := exec.Command("git", args...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for f := range strings.FieldsSeq(string(out)) {
		if _, err := os.Stat(filepath.Join("../..", f)); err == nil {
			files = append(files, filepath.Join("../..", f))
		}
	}
	if len(files) == 0 {
		t.Fatalf("no files match %q", pattern)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestShapeNoLineIsWiderThan100Columns(t *testing.T) {
	for _, file := range sources(t, "*.go", "*.rego", "*.md") {
		if strings.HasSuffix(file, "docs/tools.md") { // generated
			continue
		}
		fence := false
		for i, line := range strings.Split(read(t, file), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fence = !fence
			}
			code := fence || strings.Contains(line, "|") || strings.HasPrefix(line, "<!-- $ ")
			if strings.HasSuffix(file, ".md") && code || strings.Contains(line, "://") {
				continue
			}
			if n := columns(line); n > maxColumns {
				t.Errorf("%s:%d is %d columns wide", file, i+1, n)
			}
		}
	}
}

func columns(line string) int {
	return len([]rune(line)) + 3*strings.Count(line, "\t")
}

func TestShapeNoFileAndNoFunctionIsTooLong(t *testing.T) {
	for _, file := range sources(t, "host/*.go", "client/*.go", "sdk/*.go", "plugins/*.go") {
		src := read(t, file)
		if n := strings.Count(src, "\n"); n > maxFile && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s has %d lines; split it by meaning (%d at most)", file, n, maxFile)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := fset.Position(f.Body.End()).Line - fset.Position(f.Body.Pos()).Line + 1
			if n > maxFunction {
				t.Errorf("%s: %s has %d lines (%d at most)", file, f.Name.Name, n, maxFunction)
			}
		}
	}
}

func TestShapeThePackagesKeepTheirSize(t *testing.T) {
	total, by := map[string]int{}, map[string]int{}
	for _, file := range sources(t, "host/*.go", "client/*.go") {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "test/") {
			continue
		}
		n := strings.Count(read(t, file), "\n")
		by[filepath.Dir(file)] += n
		tree, _, _ := strings.Cut(strings.TrimPrefix(file, "../../"), "/")
		total[tree] += n
	}
	for set, most := range maxLines {
		n := 0
		for dir := range strings.FieldsSeq(set) {
			n += by[dir]
		}
		if n == 0 || n > most {
			t.Errorf("%s: %d lines, want 1 to %d", set, n, most)
		}
	}
	for tree, most := range map[string]int{"host": maxHost, "client": maxClient} {
		if n := total[tree]; n == 0 || n > most {
			t.Errorf("%s has %d lines, want 1 to %d:\n%s", tree, n, most, sizes(by))
		}
	}
}

func sizes(by map[string]int) string {
	var b strings.Builder
	for dir, n := range by {
		fmt.Fprintf(&b, "%6d %s\n", n, strings.TrimPrefix(dir, "../../"))
	}
	return b.String()
}

// Each direct dependency has a line in the rationale that says what it is for.
func TestShapeEveryDependencyHasItsReason(t *testing.T) {
	page := read(t, "../../docs/rationale.md")
	for line := range strings.Lines(read(t, "../../go.mod")) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], "v") || strings.Contains(line, "// indirect") ||
			strings.HasPrefix(f[0], strings.TrimSuffix(module, "/")) {
			continue
		}
		name := strings.TrimPrefix(f[0], "github.com/")
		if !strings.Contains(page, "`"+name) && !strings.Contains(page, "`"+name+"/") {
			t.Errorf("docs/rationale.md does not say why %s", f[0])
		}
	}
}

// What `make test` leaves out is named as it is called, so that a test which gets another name does
// not come back there, and nothing is left out by an old one.
func TestShapeTheTestsThatMakeTestLeavesOutExist(t *testing.T) {
	_, after, _ := strings.Cut(read(t, "../../Makefile"), "\nLONG := ")
	line, _, _ := strings.Cut(after, "\n")
	all := ""
	for _, file := range sources(t, "*_test.go") {
		all += read(t, file)
	}
	names := strings.Split(line, "|")
	if len(names) < 10 {
		t.Fatalf("%d names", len(names))
	}
	for _, name := range names {
		if !strings.Contains(all, "\nfunc "+name) {
			t.Errorf("the Makefile's LONG has %q, which begins the name of no test", name)
		}
	}
}

// TestAnOperationIsNamedInFiveFiles counts the files that must change for another operation of a
// part of the input that exists, on the example of sftp_list, of which no other feature knows. What
// go generate and make docs write follows from the first of them.
func TestAnOperationIsNamedInFiveFiles(t *testing.T) {
	name := regexp.MustCompile(`\bsftp_list\b|\bSFTPList\b`)
	var found []string
	for _, f := range sources(t, "host", "sdk", "policies/*.rego") {
		src := read(t, f)
		if strings.Contains(f, "_test.") || strings.Contains(src, "Code generated by") ||
			strings.Contains(src, "make docs writes this file") ||
			strings.Contains(src, "go generate ./abi writes") {
			continue
		}
		if name.MatchString(src) {
			found = append(found, strings.TrimPrefix(f, "../../"))
		}
	}
	want := []string{"host/offline/execute.go", "host/remote/execute.go", "sdk/abi/operation.go",
		"sdk/ops.go", "sdk/sdktest/answer.go"}
	if !slices.Equal(found, want) {
		t.Errorf("sftp_list is named in %q, want %q", found, want)
	}
}

package test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
)

// floors are the programs of Proxmox that successful calls of each tool ran on the nodes, the
// fewest: each takes a start of Perl, which no host can make faster.
type floors map[string][]string

// note takes what reached the nodes in a call.
func (f floors) note(tool string, reached []pvelab.Effect) {
	run := []string{}
	for _, e := range reached {
		// a command of sudo or of a shell is one word there, quoted
		text := strings.TrimPrefix(strings.ReplaceAll(e.Text, "'", ""), "sudo -n ")
		program, _, _ := strings.Cut(text, " ")
		if e.Kind == "exec" && e.Via == "" && slices.Contains(
			[]string{"pct", "qm", "pvesh", "pvesm", "pvecm"}, program) {
			run = append(run, program)
		}
	}
	slices.Sort(run)
	if fewest, known := f[tool]; !known || len(run) < len(fewest) {
		f[tool] = run
	}
}

// table returns the table of docs/operating.md.
func (f floors) table() string {
	lines := []string{"| tool | commands of Proxmox, at least |", "|---|---|"}
	for _, tool := range slices.Sorted(maps.Keys(f)) {
		of := map[string]int{}
		for _, program := range f[tool] {
			of[program]++
		}
		var each []string
		for _, program := range slices.Sorted(maps.Keys(of)) {
			each = append(each, fmt.Sprintf("%d × `%s`", of[program], program))
		}
		if len(each) > 0 {
			lines = append(lines, fmt.Sprintf("| `%s` | %s |", tool, strings.Join(each, ", ")))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// documented compares with docs/operating.md.
func (f floors) documented(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../docs/operating.md")
	must(t, err)
	if !strings.Contains(string(page), "\n"+f.table()+"\n") {
		t.Errorf("docs/operating.md does not have the table\n%s", f.table())
	}
}

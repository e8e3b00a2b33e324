// Package doctor examines an installation: configuration, this machine, nodes. It changes nothing:
// it writes no file and runs only fixed commands that read.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

// Level says what a finding means. Every level but OK and Warn is a failure, the zero value too.
type Level string

const (
	OK   Level = "ok"
	Warn Level = "warn" // works, and could be better
	Fail Level = "fail" // some tool will not work, or none
)

// Finding is the result of one check. Fix is a line for a shell, on the machine that its comment
// names or else on this one, that changes the finding. It is empty when the level is OK.
type Finding struct {
	Check string `json:"check"` // one of a fixed set of words (docs/first-node.md)
	Node  string `json:"node,omitempty"`
	Level Level  `json:"level"`
	Note  string `json:"note"`
	Fix   string `json:"fix,omitempty"`
}

// Findings are the results of an examination, in its order.
type Findings []Finding

func (f *Findings) found(check string, level Level, fix, format string, args ...any) {
	*f = append(*f, Finding{Check: check, Level: level, Note: fmt.Sprintf(format, args...),
		Fix: fix})
}

// try reports whether err is nil. It adds a finding in both cases.
func (f *Findings) try(check string, err error, fix, format string, args ...any) bool {
	if err != nil {
		f.found(check, Fail, fix, "%v", err)
		return false
	}
	f.found(check, OK, "", format, args...)
	return true
}

// Count returns how many findings are failures and how many are warnings.
func (f Findings) Count() (failed, warned int) {
	for _, x := range f {
		switch x.Level {
		case OK:
		case Warn:
			warned++
		default:
			failed++
		}
	}
	return failed, warned
}

// Print writes the findings, one a line with its fix below, and their number. The text is safe for
// a terminal: nodes have a say in some of it.
func (f Findings) Print(w io.Writer) error {
	line := func(s string) string { return strings.ReplaceAll(plaintext.Clean(s), "\n", " ") }
	for _, x := range f {
		mark := cmp.Or(map[Level]string{OK: "ok", Warn: "warn"}[x.Level], "FAIL")
		what := x.Check
		if x.Node != "" {
			what = x.Node + ": " + what
		}
		fmt.Fprintf(w, "%-4s  %-20s %s\n", mark, what, line(x.Note))
		if x.Fix != "" {
			fmt.Fprintf(w, "      %-20s → %s\n", "", line(x.Fix))
		}
	}
	failed, warned := f.Count()
	_, err := fmt.Fprintf(w, "%d failed, %d warned, %d ok\n", failed, warned, len(f)-failed-warned)
	return err
}

package audit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Report is the result of Verify.
type Report struct {
	Files    []FileReport `json:"files"`
	Problems []Problem    `json:"problems"` // the journal is not what was written
	// killed processes, full disks, file modes: worth a look, but no sign of a change
	Warnings []Problem `json:"warnings"`
	// operations that a process allowed and began and that have no outcome although the process
	// has ended; without their inputs
	Unfinished []terms.Record `json:"unfinished"`
}

// OK reports whether everything that the files refer to is there, unchanged and in order. The
// chains have no key: a person who can write to the directory can also compute them anew.
func (r Report) OK() bool { return len(r.Problems) == 0 }

// FileReport describes one file.
type FileReport struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // running, closed, or killed: it has no close record
	Entries int64     `json:"entries"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Problem is a finding in one file. Line is 0 when it concerns the file as a whole.
type Problem struct {
	File string `json:"file"`
	Line int64  `json:"line,omitempty"`
	What string `json:"what"`
}

func (p Problem) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("%s line %d: %s", p.File, p.Line, p.What)
	}
	return p.File + ": " + p.What
}

// chain is what is known of a file after reading it.
type chain struct {
	head  *Entry
	last  Entry // Seq, Hash and Close of the last good entry
	empty bool
	alive bool   // its process ran when it was read, so it may be longer by now
	root  string // first file of its process
	bad   bool   // a problem in it was reported, so that what follows from its end is not
}

type intent struct {
	terms.Record
	root string
}

type verifier struct {
	dir     string
	report  Report
	chains  map[string]*chain
	wanted  map[string]map[string]string // file → hash → who saw it
	open    map[string]intent            // without an outcome, by decision
	alive   map[string]bool              // first files of running processes
	revs    map[string]Problem           // policy revision → where it is named
	kept    map[string]string            // policy revision → digest of its bundle
	endless map[string]bool              // files without a close record
	begun   map[string]bool              // files that hold nothing yet
}

func (v *verifier) problem(file string, line int64, format string, a ...any) {
	v.report.Problems = append(v.report.Problems, Problem{file, line, fmt.Sprintf(format, a...)})
	if c := v.chains[file]; c != nil {
		c.bad = true
	}
}

func (v *verifier) warn(file string, line int64, format string, a ...any) {
	v.report.Warnings = append(v.report.Warnings, Problem{file, line, fmt.Sprintf(format, a...)})
}

func (v *verifier) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(v.dir, name))
	return err == nil
}

// Print writes the report for people.
func (r Report) Print(w io.Writer, took time.Duration) {
	for _, p := range r.Warnings {
		fmt.Fprintln(w, "warning:", p)
	}
	for _, u := range r.Unfinished {
		fmt.Fprintf(w, "warning: call %s: %s %s was allowed and begun, and its outcome was never "+
			"written: look at the node\n", u.CallID, u.Tool, u.Op)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "CHANGED:", p)
	}
	records := int64(0)
	for _, f := range r.Files {
		records += f.Entries
	}
	verdict := "every chain holds"
	if !r.OK() {
		verdict = "the journal is NOT what was written"
	}
	fmt.Fprintf(w, "%s: %d records in %d files, checked in %s\n", verdict, records, len(r.Files),
		took)
}

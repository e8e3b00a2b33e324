package pvelab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// line is one line of testdata/pve: a run (id, exit, stdout, stderr) or a verdict of the option
// parser (ok, resolves, err).
type line struct {
	ID             string
	Argv           []string
	Exit           int
	Stdout, Stderr string
	OK             *int
	Resolves, Err  string
}

func readLines(t *testing.T, name string) []line {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "pve", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []line
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.Argv != nil {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s holds no lines", name)
	}
	return out
}

func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	if o.State == "" {
		o.State = t.TempDir()
	}
	l, err := open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (l *Lab) try(argv []string, in string) result {
	var out, errw bytes.Buffer
	uid := 0
	if argv[0] == "(as uid 65534)" {
		uid, argv = 65534, argv[1:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var stdin io.Reader
	if in != "" {
		stdin = strings.NewReader(in)
	}
	code := l.run(ctx, "pve1", argv, loginEnv(nil), uid, stdin, &out, &errw)
	return result{code, out.String(), errw.String()}
}

var anyUPID = regexp.MustCompile(
	`UPID:[^:]+:[0-9A-F]{8}:[0-9A-F]{8,9}:[0-9A-F]{8}:[^:]+:[^:]*:[^:]+:`,
)

// notSimulated are recorded lines that the lab answers differently, with the reason. The test fails
// when one of them starts to be answered the same.
var notSimulated = map[string]string{
	"08-no-quorum/write": "what a shell itself opens is a file of the tree, never of /etc/pve",
}

func TestEveryRecordedRunIsReplayedTheSame(t *testing.T) {
	for _, rec := range recordings() {
		t.Run(rec.file, func(t *testing.T) {
			l := newLab(t, Options{Inventory: rec.state()})
			for key, files := range rec.files {
				tr := l.nodeTree("pve1")
				if key != "nodes/pve1" {
					tr = l.ctTree(101, "pve1")
				}
				if err := l.fill(tr, files); err != nil {
					t.Fatal(err)
				}
			}
			for _, argv := range rec.setup {
				if r := l.try(argv, ""); r.exit != 0 {
					t.Fatalf("setup %q: %+v", argv, r)
				}
			}
			upids := map[string]string{} // a recorded one to the lab's
			for _, ln := range readLines(t, rec.file) {
				if fn := rec.change[ln.ID]; fn != nil {
					if err := l.db.update(func(s *State) error { fn(s); return nil }); err != nil {
						t.Fatal(err)
					}
				}
				for _, argv := range rec.before[ln.ID] {
					l.try(argv, "")
				}
				argv := append([]string(nil), ln.Argv...)
				for i := range argv {
					for old, its := range upids {
						argv[i] = strings.ReplaceAll(argv[i], old, its)
					}
				}
				got := l.try(argv, rec.stdin[ln.ID])
				if a, b := anyUPID.FindString(ln.Stdout), anyUPID.FindString(got.stdout); a != "" &&
					b != "" {
					upids[a] = b
				}
				d := diff(result{ln.Exit, ln.Stdout, ln.Stderr}, got)
				if why := notSimulated[rec.file+"/"+ln.ID]; (why != "") != (d != "") {
					t.Errorf("%s %q (%s)\n%s", ln.ID, argv, why, d)
				}
			}
		})
	}
}

func TestEveryRecordedVerdictOfTheOptionParserIsTheSame(t *testing.T) {
	l := newLab(t, Options{Inventory: base()})
	for _, ln := range readLines(t, "10-argv-accept") {
		resolves, err := l.Check(ln.Argv)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (err == nil) != (*ln.OK == 1) || got != ln.Err || resolves != ln.Resolves {
			t.Errorf(
				"%q:\n want ok=%d %q %q\n  got %q %q",
				ln.Argv,
				*ln.OK,
				ln.Resolves,
				ln.Err,
				resolves,
				got,
			)
		}
	}
}

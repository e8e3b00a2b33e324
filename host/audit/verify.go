package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"golang.org/x/sys/unix"
)

// Seen is an end of a chain that somebody saw, such as a published anchor.
type Seen struct {
	Tip
	By string // for people
}

// Verify checks every file in dir: each line's hash, the order of the lines, how files continue
// each other, what later files and others saw of earlier ones, file modes, and that the policy
// revisions are kept. It may run while processes write. The error says that it could not read the
// directory.
func Verify(dir string, seen ...Seen) (Report, error) {
	v := verifier{dir: dir, chains: map[string]*chain{}, wanted: map[string]map[string]string{},
		open: map[string]intent{}, alive: map[string]bool{}, revs: map[string]Problem{},
		kept: map[string]string{}, endless: map[string]bool{},
		begun: map[string]bool{}}
	names, err := v.list()
	if err != nil {
		return Report{}, fmt.Errorf("reading the journal: %w", err)
	}
	for _, s := range seen {
		v.want(s.File, s.Hash, s.By)
	}
	for _, name := range names {
		if err := v.witness(name); err != nil {
			return Report{}, fmt.Errorf("reading the journal: %w", err)
		}
	}
	for _, name := range names {
		if err := v.file(name); err != nil {
			return Report{}, fmt.Errorf("verifying %s: %w", name, err)
		}
	}
	for _, name := range names {
		v.links(name)
	}
	v.unseen()
	v.ends()
	v.policies()
	for _, id := range slices.Sorted(maps.Keys(v.open)) {
		if o := v.open[id]; !v.alive[o.root] {
			v.report.Unfinished = append(v.report.Unfinished, o.Record)
		}
	}
	return v.report, nil
}

// list returns the names of the journal files.
func (v *verifier) list() (names []string, err error) {
	info, err := os.Stat(v.dir)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		v.warn(v.dir, 0, "has the mode %04o, want 0700", info.Mode().Perm())
	}
	all, err := os.ReadDir(v.dir)
	for _, f := range all {
		switch {
		case !strings.HasSuffix(f.Name(), ".jsonl"):
		case !fileName.MatchString(f.Name()) || !f.Type().IsRegular():
			v.problem(f.Name(), 0, "is not a file that a journal makes")
		default:
			names = append(names, f.Name())
		}
	}
	return names, err
}

// unseen reports entries that the head of a later file saw and that are gone.
func (v *verifier) unseen() {
	for _, name := range slices.Sorted(maps.Keys(v.wanted)) {
		for hash, by := range v.wanted[name] {
			if c := v.chains[name]; c == nil {
				v.problem(name, 0,
					"is missing, but %s saw it: it was deleted, or moved to an archive",
					by)
			} else if !c.bad {
				v.problem(name, 0,
					"was cut or replaced: %s saw the entry %.12s… in it, which is gone", by, hash)
			}
			break // one is enough
		}
	}
}

// ends warns of files without a close record, and of files that were begun and hold nothing.
func (v *verifier) ends() {
	v.group(v.endless, "has no end: its process was killed, or it was cut",
		"have no end: their processes were killed, or the files were cut; --json shows each of "+
			"them as killed")
	v.group(v.begun, "is empty: its process was killed as it began the file, or it was emptied",
		"are empty: their processes were killed as they began the files, or they were emptied")
}

func (v *verifier) group(files map[string]bool, one, many string) {
	names := slices.Sorted(maps.Keys(files))
	if n := len(names); n > 3 {
		v.warn(names[0], 0, "and %d more files up to %s %s", n-1, names[n-1], many)
		return
	}
	for _, name := range names {
		v.warn(name, 0, "%s", one)
	}
}

func (v *verifier) policies() {
	for _, rev := range slices.Sorted(maps.Keys(v.revs)) {
		at := v.revs[rev]
		bundle, err := Policy(v.dir, rev)
		switch {
		case err != nil && v.kept[rev] == "":
			v.warn(at.File, at.Line, "names the policy revision %s, which was never kept", rev)
		case err != nil:
			v.problem(at.File, at.Line, "the bundle of policy revision %s is gone: %v", rev, err)
		case v.kept[rev] != "" && v.kept[rev] != digest(bundle):
			v.problem(at.File, at.Line, "the bundle of policy revision %s was changed", rev)
		}
	}
}

// witness notes what the head of a file saw. Whether the head is good is checked later.
func (v *verifier) witness(name string) error {
	f, err := os.Open(filepath.Join(v.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	line, err := readLine(bufio.NewReader(f))
	if err != nil {
		return nil
	}
	if e, err := decode(line); err == nil && e.Head != nil {
		for file, hash := range e.Head.Seen {
			v.want(file, hash, name)
		}
	}
	return nil
}

func (v *verifier) want(file, hash, by string) {
	if v.wanted[file] == nil {
		v.wanted[file] = map[string]string{}
	}
	v.wanted[file][hash] = by
}

func (v *verifier) file(name string) error {
	c := &chain{root: name}
	v.chains[name] = c
	f, err := os.Open(filepath.Join(v.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm() != 0o600 {
		v.warn(name, 0, "has the mode %04o, want 0600", info.Mode().Perm())
	}
	r := FileReport{Name: name, State: "killed"}
	// asked before reading: a process that ends meanwhile has written everything
	if errors.Is(probe(f), unix.EWOULDBLOCK) {
		r.State, c.alive = "running", true
	}
	if err := v.lines(c, &r, bufio.NewReaderSize(f, 64<<10)); err != nil {
		return err
	}
	c.empty = r.Entries == 0
	switch {
	case c.last.Close != nil:
		r.State = "closed"
	case r.State == "running":
		v.alive[c.root] = true
	case !c.bad:
		v.endless[name] = true
	}
	v.report.Files = append(v.report.Files, r)
	return nil
}

// lines reads a file up to its end or its first bad line.
func (v *verifier) lines(c *chain, r *FileReport, lines *bufio.Reader) error {
	for {
		line, err := readLine(lines)
		if err == io.EOF {
			return nil
		}
		if err == errTorn {
			if r.State == "killed" {
				v.warn(r.Name, r.Entries+1,
					"ends within an entry: its process was killed or its disk was full")
			}
			return nil
		}
		var e Entry
		if err == nil {
			e, err = decode(line)
		} else if !errors.Is(err, errLong) {
			return err
		}
		if err == nil {
			err = follows(c, r.Name, e)
		}
		if err != nil {
			v.problem(r.Name, r.Entries+1, "%v", err)
			return nil
		}
		if r.Entries++; r.Entries == 1 {
			c.head, r.First = &e, e.when()
			if from := v.chains[e.Head.From]; from != nil {
				c.root = from.root
			}
		}
		r.Last = e.when()
		c.last = Entry{Seq: e.Seq, Hash: e.Hash, Close: e.Close}
		delete(v.wanted[r.Name], e.Hash)
		if p := e.Policy; p != nil {
			v.revs[p.Revision], v.kept[p.Revision] = Problem{File: r.Name,
				Line: r.Entries}, p.SHA256
		}
		if e.Record != nil {
			v.note(r.Name, r.Entries, c.root, e.Record)
		}
	}
}

// follows returns an error if an entry cannot come after what was read of its file.
func follows(c *chain, name string, e Entry) error {
	last := c.last
	switch {
	case c.head == nil && e.Head == nil:
		return errors.New("does not begin a file: the lines before it are missing")
	case c.head == nil && e.Head.File != name:
		return fmt.Errorf("belongs to the file %s", e.Head.File)
	case c.head == nil && e.Head.From == "" && (e.Seq != 0 || e.Prev != ""):
		return errors.New("continues a file that it does not name")
	case c.head == nil:
		return nil
	case last.Close != nil:
		return errors.New("comes after the end")
	case e.Seq <= last.Seq:
		return fmt.Errorf("entry %d comes after entry %d: lines were moved or repeated",
			e.Seq, last.Seq)
	case e.Seq > last.Seq+1:
		return fmt.Errorf("entries %d to %d are missing before it", last.Seq+1, e.Seq-1)
	case e.Prev != last.Hash:
		return errors.New("does not continue the line before it: one of them was replaced")
	case e.Head != nil:
		return errors.New("begins a file in the middle of one")
	}
	return nil
}

func (v *verifier) note(name string, line int64, root string, r *terms.Record) {
	for _, rev := range []string{r.Revision, r.CallRev} {
		if _, known := v.revs[rev]; rev != "" && !known {
			v.revs[rev] = Problem{File: name, Line: line}
		}
	}
	switch r.Type {
	case "intent":
		kept := *r
		kept.Input = nil
		v.open[r.ID] = intent{kept, root}
	case "outcome":
		delete(v.open, r.ID)
	}
}

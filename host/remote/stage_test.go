package remote

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// ledger records what a Remote makes and removes, as a store does.
type ledger struct {
	sync.Mutex
	left map[terms.StageDir]bool
}

func (l *ledger) options(o *Options) {
	l.left = map[terms.StageDir]bool{}
	o.HostID = "0123abcd"
	o.Made = func(node, name string) error {
		l.Lock()
		defer l.Unlock()
		l.left[terms.StageDir{Node: node, Dir: name}] = true
		return nil
	}
	o.Removed = func(node, name string) {
		l.Lock()
		defer l.Unlock()
		delete(l.left, terms.StageDir{Node: node, Dir: name})
	}
	o.Dead = func(context.Context) (all []terms.StageDir, err error) {
		return l.names(), nil
	}
}

// discard removes a leftover as an operation does.
func discard(t *testing.T, r *Remote, node, name string) error {
	t.Helper()
	_, err := do(t.Context(), r, abi.Discard{OnNode: on(node), Path: name}, yellow)
	return err
}

func (l *ledger) names() (all []terms.StageDir) {
	l.Lock()
	defer l.Unlock()
	return slices.Collect(maps.Keys(l.left))
}

func TestWhatADeadProcessLeftIsRemovedByTheNextOne(t *testing.T) {
	root, place := t.TempDir(), t.TempDir()
	var book ledger
	s := sshtest.New(t, sshtest.Options{})
	var o Options
	first := newRemote(t, s, func(opts *Options) {
		book.options(opts)
		opts.StageRoot = root
		o = *opts
	})
	res, err := do(t.Context(), first, abi.Stage{OnNode: on("n1")}, yellow)
	if err != nil {
		t.Fatal(err)
	}
	write(t, res.Stage.Dir+"/sub/file", []byte("x"))
	hex := func(c string) string { return strings.Repeat(c, 16) }
	partial := func(c string) string {
		return files.PartialPrefix + "0123abcd" + "00000000" +
			hex(c)
	}
	os.Mkdir(filepath.Join(place, partial("1")), 0o700) // of an upload
	write(t, filepath.Join(place, partial("1"), "data"), []byte("half"))
	local := filepath.Join("agent-a", partial("2")) // of a download
	write(t, filepath.Join(o.Workspace, local), []byte("half"))
	o.Made("n1", filepath.Join(place, partial("1")))
	o.Made("", local)
	first.Close() // as a process that is killed: nothing is removed
	if n := len(book.names()); n != 3 {
		t.Fatalf("recorded: %v", book.names())
	}

	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for _, left := range book.names() {
		if err := discard(t, second, left.Node, left.Dir); err != nil {
			t.Errorf("%v: %v", left, err)
		}
	}
	if left := book.names(); len(left) != 0 {
		t.Errorf("still recorded: %v", left)
	}
	for _, dir := range []string{root, place, filepath.Join(o.Workspace, "agent-a")} {
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	refused(t, discard(t, second, "n1", res.Stage.Dir), "not_found", terms.Failed)
	o.Made("n1", res.Stage.Dir)
	if err := discard(t, second, "n1", res.Stage.Dir); err != nil {
		t.Errorf("what is gone already: %v", err)
	}

	mine, err := do(t.Context(), second, abi.Stage{OnNode: on("n1")}, yellow)
	if err != nil {
		t.Fatal(err)
	}
	victim := t.TempDir()
	write(t, victim+"/f", []byte("precious"))
	linked := filepath.Join(root, "caponier-0123abcd00000000"+hex("3"))
	os.Symlink(victim, linked)
	plain := filepath.Join(root, "caponier-0123abcd00000000"+hex("4"))
	write(t, plain, []byte("a file"))
	unrecorded := filepath.Join(root, "caponier-0123abcd00000000"+hex("6"))
	os.Mkdir(unrecorded, 0o700)
	for _, at := range []terms.StageDir{{Node: "n1", Dir: linked}, {Node: "n1", Dir: plain},
		{Dir: "../" + partial("5")}, {Node: "n9", Dir: linked}} {
		o.Made(at.Node, at.Dir)
		defer o.Removed(at.Node, at.Dir)
	}
	for name, c := range map[string]struct{ node, path, code string }{
		"the stage of a running call": {"n1", mine.Stage.Dir, "bad_input"},
		"another host's": {"n1", root + "/caponier-ffffffff00000000" + hex("1"),
			"bad_input"},
		"a name that is not ours":       {"n1", root + "/caponier-backup", "bad_input"},
		"a name with more behind it":    {"n1", linked + "/..", "bad_input"},
		"a link":                        {"n1", linked, "changed"},
		"a file":                        {"n1", plain, "changed"},
		"what is not recorded":          {"n1", unrecorded, "not_found"},
		"a path beside the workspace":   {"", "../" + partial("5"), "not_a_path"},
		"an absolute path here":         {"", "/" + partial("5"), "bad_input"},
		"a relative path on a node":     {"n1", partial("5"), "bad_input"},
		"a node that nobody configured": {"n9", linked, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			err := discard(t, second, c.node, c.path)
			if c.code == "not_a_path" {
				if err == nil || !strings.Contains(err.Error(), "escapes") {
					t.Errorf("%v", err)
				}
				return
			}
			refused(t, err, c.code, terms.Failed)
		})
	}
	if _, err := os.Stat(victim + "/f"); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	second.End(t.Context(), &terms.Call{Stages: []terms.StageDir{*mine.Stage}})
	if left := book.names(); len(left) != 4 {
		t.Errorf("recorded after the end of the call: %v", left)
	}
}

func TestNothingIsMadeThatCannotBeRecorded(t *testing.T) {
	root := t.TempDir()
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s, func(o *Options) {
		o.StageRoot = root
		o.Made = func(string, string) error { return errors.New("the store is away") }
	})
	write(t, root+"/f", []byte("x"))
	for name, op := range map[string]abi.Op{
		"a stage": abi.Stage{OnNode: on("n1")},
		"an upload": abi.SFTPWrite{OnNode: on("n1"), Path: root + "/new",
			Data: abi.Data{Text: "x"}},
		"a download": abi.SFTPGet{OnNode: on("n1"), Path: root + "/f", Local: "f"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(t.Context(), r, op, yellow)
			refused(t, err, "internal", terms.Failed, "the store is away", "nothing was done")
		})
	}
	if left, _ := os.ReadDir(root); len(left) != 1 {
		t.Errorf("made: %v", left)
	}
}

func TestStageOfACallThatIsCancelledDoesNotStay(t *testing.T) {
	leakless(t)
	root := t.TempDir()
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s, func(o *Options) { o.StageRoot = root })
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		res, err := do(ctx, r, abi.Stage{OnNode: on("n1")}, yellow)
		cancel()
		if err == nil {
			r.End(t.Context(), &terms.Call{Stages: []terms.StageDir{*res.Stage}})
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, _ := os.ReadDir(root)
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %v", left)
		}
	}
}

func TestEndRemovesOnlyItsOwn(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	d := t.TempDir()
	write(t, d+"/f", nil)
	r.End(
		t.Context(),
		&terms.Call{Stages: []terms.StageDir{{Node: "n1", Dir: d}, {Node: "nowhere", Dir: d}}},
	)
	if _, err := os.Stat(d + "/f"); err != nil {
		t.Error(err)
	}
}

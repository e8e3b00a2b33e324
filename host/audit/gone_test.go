package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// hostile is a host whose journal is damaged while it runs. Every effect looks for its own intent
// in the journal's directory: an effect without one is unrecorded.
type hostile struct {
	t          *testing.T
	j          *Journal
	tier       terms.Tier
	damage     func() // run before the next effect's decision, once
	effects    int
	unrecorded int
	inCall     bool // damage when the plugin runs, not before the call
}

func (h *hostile) Decide(context.Context, terms.Question) (terms.Decision, error) {
	return terms.Decision{Allow: true, Tier: h.tier, Revision: "r1"}, nil
}

func (h *hostile) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}

func (h *hostile) Script(string) terms.Command { return terms.Command{} }
func (h *hostile) Argv([]string) terms.Command { return terms.Command{} }

func (h *hostile) Ready(context.Context, *terms.Call, func(string)) error { return nil }

func (h *hostile) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	h.effect(func(rec *terms.Record) bool { return rec.Kind == "call" && rec.CallID == r.Call.ID })
	h.strike()
	var err error
	for range 2 {
		op, bad := abi.ParseOp("blob_read", []byte(`{"blob":"b"}`))
		if bad != nil {
			h.t.Fatal(bad)
		}
		_, err = r.Operate(ctx, op)
	}
	return terms.Output{JSON: json.RawMessage(`{}`)}, err
}

func (h *hostile) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{}, nil
}

func (h *hostile) Execute(
	_ context.Context, q terms.Question, _ terms.Decision,
) (terms.Result, error) {
	h.effect(func(rec *terms.Record) bool { return rec.ID == q.ID })
	return terms.Result{}, nil
}

func (h *hostile) End(context.Context, *terms.Call) {}

func (h *hostile) strike() {
	if h.damage != nil {
		h.damage()
		h.damage = nil
	}
}

func (h *hostile) effect(mine func(*terms.Record) bool) {
	h.effects++
	for e, err := range Records(h.j.opt.Dir) {
		if err == nil && e.Record != nil && e.Record.Type == "intent" && mine(e.Record) {
			return
		}
	}
	h.unrecorded++
}

// call makes one call with two operations.
func (h *hostile) call() terms.Answer {
	door := gate.New(gate.Options{Throttle: &fair.Refusals{},
		Decider: h, Journal: h.j, Ledger: h, Lowerer: h,
		Executors: map[string]terms.Executor{"blob_read": h},
		Mode:      func(context.Context) terms.Mode { return terms.Mode{} },
	}, h)
	tool := &terms.Tool{
		Kind: "tool", Name: "t", Imports: []string{"blob_read"}, Budget: time.Minute,
		Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText, error) {
			return terms.Targets{}, nil, nil
		},
	}
	if !h.inCall {
		h.strike()
	}
	return door.Call(bg, terms.Request{Source: "cli", Tool: tool,
		Principal: terms.Principal{ID: "a"}})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// damages are the ways in which a journal file stops to be what was written while its host runs.
// Each returns what undoes it, which may be nil, and may need the current file's path.
var damages = map[string]struct {
	do      func(t *testing.T, dir, path string) (undo func())
	refused bool   // nothing can be written until it is undone
	found   string // what verify says afterwards, as a problem
	warned  string // or as a warning
}{
	"the file is deleted": {
		do:    func(t *testing.T, _, path string) func() { must(t, os.Remove(path)); return nil },
		found: "but that is missing: the journal file .* was deleted or moved while in use"},
	"the file is moved away": {
		do: func(t *testing.T, dir, path string) func() {
			must(t, os.Rename(path, filepath.Join(filepath.Dir(dir), "moved")))
			return nil
		},
		found: "was deleted or moved while in use",
	},
	"the file is moved and comes back": {
		do: func(t *testing.T, dir, path string) func() {
			away := filepath.Join(filepath.Dir(dir), "moved")
			must(t, os.Rename(path, away))
			return func() { must(t, os.Rename(away, path)) }
		},
		warned: "which is whole now: .* was deleted or moved while in use",
	},
	"the file is replaced by a copy": {
		do: func(t *testing.T, _, path string) func() {
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path+".new", data, 0o600))
			must(t, os.Rename(path+".new", path))
			return nil
		},
		warned: "was replaced while in use",
	},
	"the file is replaced by a link to where it went": {
		do: func(t *testing.T, dir, path string) func() {
			away := filepath.Join(filepath.Dir(dir), "moved")
			must(t, os.Rename(path, away))
			must(t, os.Symlink(away, path))
			return nil
		},
		found: "is not a file that a journal makes",
	},
	"the file is copied and emptied": {
		do: func(t *testing.T, _, path string) func() {
			must(t,
				os.Truncate(path, 0))
			return nil
		},
		found: "was cut from [0-9]+ to 0 bytes while in use"},
	"the file is cut": {
		do: func(t *testing.T, _, path string) func() {
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.Truncate(path, info.Size()-10))
			return nil
		},
		found: "was cut from",
	},
	"another process appends to the file": {
		do: func(t *testing.T, _, path string) func() {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString("hello\n")
			must(t, errors.Join(err, f.Close()))
			return nil
		},
		found: "another process appended 6 bytes",
	},
	"the directory is moved away": {
		do: func(t *testing.T, dir, _ string) func() {
			must(t, os.Rename(dir, dir+".old"))
			return func() { must(t, os.Rename(dir+".old", dir)) }
		},
		refused: true,
		warned:  "which is whole now: .* was deleted or moved while in use",
	},
	"the directory is deleted": {
		do: func(t *testing.T, dir, _ string) func() {
			must(t,
				os.RemoveAll(dir))
			return nil
		},
		refused: true},
	"the directory is replaced": {
		do: func(t *testing.T, dir, _ string) func() {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Mkdir(dir, 0o700))
			return nil
		},
		found: "but that is missing: the journal file .* was deleted or moved while in use",
	},
	"the directory is replaced by one that others may write to": {
		do: func(t *testing.T, dir, _ string) func() {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.Chmod(dir, 0o777))
			return nil
		},
		refused: true,
	},
}

func TestNothingRunsUnrecordedWhenTheFileIsDamaged(t *testing.T) {
	for name, c := range damages {
		for _, tier := range []terms.Tier{terms.Green, terms.Yellow} {
			for _, inCall := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, in call %v", name, tier, inCall), func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "journal")
					h := &hostile{t: t, j: open(t, Options{Dir: dir}), tier: tier, inCall: inCall}
					must(t, h.j.KeepPolicy("r1", []byte("bundle")))
					if a := h.call(); a.Err != nil || h.effects != 3 {
						t.Fatalf("before: %v, %d effects", a.Err, h.effects)
					}
					h.j.mu.Lock()
					path := h.j.seg.path
					h.j.mu.Unlock()
					var undo func()
					h.damage = func() { undo = c.do(t, dir, path) }
					a := h.call()
					want := 6
					if c.refused {
						want = 3
						if inCall {
							want = 4
						}
						if !strings.Contains(fmt.Sprint(a.Err), "journal.unavailable") {
							t.Errorf("it is not refused for the journal: %v", a.Err)
						}
						if err := h.j.Ready(); err == nil {
							t.Error("the journal says that it is ready")
						}
					} else if a.Err != nil {
						t.Errorf("the call failed: %v", a.Err)
					}
					if h.effects != want || h.unrecorded != 0 {
						t.Errorf("%d effects, want %d; %d unrecorded", h.effects, want,
							h.unrecorded)
					}
					if undo != nil {
						undo()
						if a := h.call(); a.Err != nil || h.unrecorded != 0 {
							t.Errorf("when it is back: %v, %d unrecorded", a.Err, h.unrecorded)
						}
					}
					h.j.Close()
					if _, err := Policy(dir, "r1"); err != nil && (!c.refused || undo != nil) {
						t.Errorf("the policy that decided is not in the directory: %v", err)
					}
					if c.found+c.warned == "" {
						return
					}
					r := verify(t, dir)
					problems, warnings := fmt.Sprint(r.Problems), fmt.Sprint(r.Warnings)
					if c.found != "" && !matches(problems, c.found) {
						t.Errorf("verify does not name the gap %q: %s", c.found, problems)
					}
					if c.found == "" && (!r.OK() || !matches(warnings, c.warned)) {
						t.Errorf("verify: problems %s, warnings %s", problems, warnings)
					}
				})
			}
		}
	}
}

// A disk that is full or read-only refuses green calls and reads too, and the journal is not ready
// until something was written.
func TestNothingRunsOnADiskThatTakesNothing(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
		for _, tier := range []terms.Tier{terms.Green, terms.Yellow} {
			t.Run(fmt.Sprintf("%v, %s", fault, tier), func(t *testing.T) {
				j, f := openFaulty(t, Options{})
				h := &hostile{t: t, j: j, tier: tier}
				if a := h.call(); a.Err != nil {
					t.Fatal(a.Err)
				}
				f.set(func() { f.write = fault })
				if a := h.call(); !strings.Contains(fmt.Sprint(a.Err), "journal.unavailable") {
					t.Errorf("a call: %v", a.Err)
				}
				if err := j.Ready(); !errors.Is(err, fault) {
					t.Errorf("ready: %v", err)
				}
				if h.effects != 3 || h.unrecorded != 0 {
					t.Errorf("%d effects, %d unrecorded", h.effects, h.unrecorded)
				}
				f.set(func() { f.write = nil })
				if err := j.Ready(); err != nil {
					t.Errorf("ready when the disk takes writes again: %v", err)
				}
				if a := h.call(); a.Err != nil || h.unrecorded != 0 {
					t.Errorf("a call then: %v", a.Err)
				}
			})
		}
	}
}

// A directory that takes no new files is noticed when the next file has to begin.
func TestADirectoryThatTakesNoFiles(t *testing.T) {
	if os.Getuid() == 0 { // root may write everywhere
		asNobody(t)
		return
	}
	h := &hostile{t: t, j: open(t, Options{}), tier: terms.Green}
	path := h.j.seg.path
	h.damage = func() {
		must(t, os.Remove(path))
		must(t, os.Chmod(h.j.opt.Dir, 0o500))
	}
	a := h.call()
	must(t, os.Chmod(h.j.opt.Dir, 0o700))
	if h.effects != 0 || !errors.Is(a.Err, os.ErrPermission) &&
		!strings.Contains(fmt.Sprint(a.Err), "permission denied") {
		t.Errorf("%d effects, %v", h.effects, a.Err)
	}
}

// asNobody runs the test once more, in a process without root's rights.
func asNobody(t *testing.T) {
	t.Helper()
	const nobody = 65534
	dir, err := os.MkdirTemp("/tmp", "nobody")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	must(t, err)
	program, err := os.ReadFile(self) // which lies where nobody may look
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "test"), program, 0o700))
	for _, name := range []string{dir, filepath.Join(dir, "test")} {
		must(t, os.Chown(name, nobody, nobody))
	}
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// An intent that waits for the disk is not on it when the file goes away meanwhile.
func TestAFileThatGoesAwayDuringASync(t *testing.T) {
	j, f := openFaulty(t, Options{})
	f.set(func() { f.syncing = func() { os.Remove(j.seg.path) } })
	err := j.Intent(bg, rec("a", "intent"), true)
	if err == nil || !strings.Contains(err.Error(), "was deleted or moved while in use") {
		t.Errorf("the intent is reported as durable: %v", err)
	}
	f.set(func() { f.syncing = nil })
	if err := j.Intent(bg, rec("b", "intent"), true); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// The process may die after the trial of Ready was written: that is not tampering.
func TestATrialThatStaysIsNotTampering(t *testing.T) {
	j, f := openFaulty(t, Options{})
	must(t, j.Intent(bg, rec("a", "intent"), true))
	f.set(func() { f.truncate = syscall.EIO })
	if err := j.Ready(); err == nil {
		t.Error("ready although its trial stayed")
	}
	data, err := os.ReadFile(j.seg.path)
	must(t, err)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, j.seg.name), data, 0o600))
	if r := verify(t, dir); !r.OK() || !strings.Contains(fmt.Sprint(r.Warnings),
		"within an entry") {
		t.Errorf("%+v", r)
	}
	f.set(func() { f.truncate = nil })
	must(t, j.Intent(bg, rec("b", "intent"), true))
	if got := ids(all(t, j.opt.Dir)); got != "a b" {
		t.Errorf("the journal has %q", got)
	}
}

func matches(s, pattern string) bool { return regexp.MustCompile(pattern).MatchString(s) }

package test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/rogpeppe/go-internal/testscript"
)

var bin, plugins, guests string

// TestMain builds the real binary and the modules once; `make test` has built them already, so that
// this only looks.
func TestMain(m *testing.M) {
	for _, name := range []string{"CAPONIER_CALLS", "CAPONIER_CHAOS", "CAPONIER_SOAK"} {
		settings[name] = os.Getenv(name)
		_ = os.Unsetenv(name)
	}
	root, err := filepath.Abs("..")
	if err == nil {
		cmd := exec.Command("make", "-s", "all", "modules", "build/pvelab")
		cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stderr, os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building what the scripts drive:", err)
		os.Exit(1)
	}
	bin, plugins, guests = filepath.Join(
		root,
		"build/caponier",
	), filepath.Join(
		root,
		"build/plugins",
	), filepath.Join(
		root,
		"build/modules",
	)
	pvelab.Program = filepath.Join(root, "build/pvelab")
	os.Exit(m.Run())
}

// settings are the variables of the environment that are for tests. They are taken out of it: the
// host refuses variables that name no key of its configuration.
var settings = map[string]string{}

// TestScripts runs testdata/*.txtar against the real binary. Commands besides testscript's own:
//
// lab [MODULE…] starts a simulated cluster and writes config.toml for it; plugins beside
// containers, and modules of test/modules, are
//
//	locked too, the guests' tools yellow;
//	full=VMID:DIR:BYTES leaves that much room in a container's directory
//
// configure OLD NEW replaces text (a regular expression) in config.toml; fails when nothing matches
//
// effects none fails when anything reached a node since the lab started, or since the last `effects
// forget`
//
//	effects some REGEXP   fails when nothing that reached a node matches
//	effects not REGEXP    fails when something does
//	maxrss MIB COMMAND…   runs a command and fails when its peak memory is larger
//	tmpfs DIR SIZE        mounts a small file system until the script ends; only root can
//	journal REGEXP        fails when no record of the journal matches
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(bin)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("PLUGINS", filepath.Join(filepath.Dir(bin), "plugins"))
			e.Setenv("HOME", e.WorkDir)
			// instead of 45s: a script has no person
			e.Setenv("CAPONIER_APPROVAL_WAIT", "100ms")
			// compiled once for all scripts
			e.Setenv("CAPONIER_SANDBOX_CACHE_DIR", filepath.Join(filepath.Dir(bin), "cache"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"lab": startLab, "configure": configure, "effects": effects, "maxrss": maxrss,
			"journal": journal, "tmpfs": tmpfs,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Getuid() == 0, nil
			}
			if cond == "shells" { // a machine without namespaces runs none for the lab
				err := pvelab.Shells()
				if err != nil && os.Getenv("CI") == "true" {
					return false, err
				}
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		RequireExplicitExec: true,
	})
}

var guestTools = map[string][]string{
	"rogue": {"rogue_exec", "rogue_snapshot", "rogue_text"},
	"broken": {
		"broken_trap",
		"broken_loop",
		"broken_memory",
		"broken_exit",
		"broken_undeclared",
		"broken_stats",
	},
	"bench": {"bench_true", "bench_nothing"},
	"steps": {"steps_run", "steps_ask"},

	"callers": {
		"callers_keep",
		"callers_show",
		"callers_long",
		"callers_last",
		"callers_list",
		"callers_search",
	},
}

func startLab(ts *testscript.TestScript, neg bool, args []string) {
	work := ts.Getenv("WORK")
	modules := filepath.Join(work, "plugins")
	ts.Check(os.MkdirAll(modules, 0o755))
	copyFile := func(from string) {
		data, err := os.ReadFile(from)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(modules, filepath.Base(from)), data, 0o644))
	}
	copyFile(filepath.Join(plugins, "containers.wasm"))
	inventory, tiers := pvelab.DemoInventory(time.Now()), ""
	for _, a := range args {
		if rest, ok := strings.CutPrefix(a, "full="); ok {
			var vmid int
			var room int64
			parts := strings.Split(rest, ":")
			_, err := fmt.Sscan(parts[0]+" "+parts[2], &vmid, &room)
			ts.Check(err)
			for i := range inventory.Guests {
				if inventory.Guests[i].VMID == vmid {
					inventory.Guests[i].Full = map[string]int64{parts[1]: room}
				}
			}
			continue
		}
		from := guests
		if guestTools[a] == nil {
			from = plugins // one of those that we ship; the site knows its tools
		}
		copyFile(filepath.Join(from, a+".wasm"))
		for _, tool := range guestTools[a] {
			tiers += "  \"tool:" + tool + "\": yellow\n"
		}
	}
	ts.Check(os.CopyFS(filepath.Join(work, "site"), os.DirFS("../examples/lab/site")))
	site := filepath.Join(work, "site", "data.yaml")
	data, err := os.ReadFile(site)
	ts.Check(err)
	ts.Check(
		os.WriteFile(
			site,
			bytes.Replace(data, []byte("\ntiers:\n"), []byte("\ntiers:\n"+tiers), 1),
			0o644,
		),
	)
	ts.Check(lockFor(modules, filepath.Join(work, "plugins.lock")))
	ctx, cancel := context.WithCancel(context.Background())
	lab, err := pvelab.Start(
		ctx,
		pvelab.Options{
			State:     filepath.Join(work, "lab"),
			Effects:   filepath.Join(work, "effects.jsonl"),
			Config:    filepath.Join(work, "config.toml"),
			Plugins:   modules,
			Lock:      filepath.Join(work, "plugins.lock"),
			Site:      filepath.Join(work, "site"),
			Inventory: inventory,
		},
	)
	ts.Check(err)
	ts.Defer(func() { lab.Close(); cancel() })
}

// locked is a plugins.lock.
type locked struct {
	Schema  string            `json:"schema"`
	Plugins []json.RawMessage `json:"plugins"`
}

func readLock(file string) (l locked, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l, err
}

// of locks, by the digests of their modules: describing compiles, and all tests use the same
// modules
var entries sync.Map

// lockFor writes the lock of the modules in dir. The committed lock says what ours are; each other
// one is described once.
func lockFor(dir, file string) error {
	modules, err := filepath.Glob(filepath.Join(dir, "*.wasm"))
	if err != nil {
		return err
	}
	all, err := readLock("../plugins.lock")
	if err != nil {
		return err
	}
	ours := all.Plugins
	all.Plugins = nil
	for _, module := range modules {
		wasm, err := os.ReadFile(module)
		if err != nil {
			return err
		}
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(wasm))
		once, _ := entries.LoadOrStore(digest, sync.OnceValues(func() (json.RawMessage, error) {
			for _, e := range ours {
				if bytes.Contains(e, []byte(digest)) {
					return e, nil
				}
			}
			return describe(module)
		}))
		entry, err := once.(func() (json.RawMessage, error))()
		if err != nil {
			return err
		}
		all.Plugins = append(all.Plugins, entry)
	}
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	if err := to.Encode(all); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// describe is the entry that `plugin lock` makes for a module.
func describe(module string) (json.RawMessage, error) {
	dir, err := os.MkdirTemp("", "lock")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plugins.lock")
	name := strings.TrimSuffix(filepath.Base(module), ".wasm")
	if out, err := exec.Command(bin, "plugin", "lock", "--lock", file, "--dir",
		filepath.Dir(module), name).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("plugin lock: %w\n%s", err, out)
	}
	l, err := readLock(file)
	if err != nil || len(l.Plugins) != 1 {
		return nil, fmt.Errorf("the lock of %s alone has %d entries: %w", name, len(l.Plugins), err)
	}
	return l.Plugins[0], nil
}

func configure(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: configure OLD NEW")
	}
	file := ts.MkAbs("config.toml")
	data, err := os.ReadFile(file)
	ts.Check(err)
	re := regexp.MustCompile("(?m)" + args[0])
	if !re.Match(data) {
		ts.Fatalf("config.toml has nothing that matches %q:\n%s", args[0], data)
	}
	ts.Check(
		os.WriteFile(
			file,
			re.ReplaceAll(data, []byte(strings.ReplaceAll(args[1], `\n`, "\n"))),
			0o600,
		),
	)
}

func reached(ts *testscript.TestScript) (lines []string) {
	f, err := os.Open(ts.MkAbs("effects.jsonl"))
	if os.IsNotExist(err) {
		return nil
	}
	ts.Check(err)
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e struct {
			Node, Kind, Op, Path string
			Argv                 []string
		}
		ts.Check(json.Unmarshal(s.Bytes(), &e))
		lines = append(
			lines,
			strings.TrimSpace(
				fmt.Sprintf(
					"%s %s %s %s%s",
					e.Node,
					e.Kind,
					e.Op,
					e.Path,
					strings.Join(e.Argv, " "),
				),
			),
		)
	}
	return lines
}

func effects(ts *testscript.TestScript, neg bool, args []string) {
	lines := reached(ts)
	all := strings.Join(lines, "\n")
	switch {
	case len(args) == 1 && args[0] == "none":
		if len(lines) > 0 {
			ts.Fatalf("something reached a node:\n%s", all)
		}
	case len(args) == 1 && args[0] == "forget":
		ts.Check(os.Truncate(ts.MkAbs("effects.jsonl"), 0))
	case len(args) == 2 && args[0] == "some":
		if !regexp.MustCompile("(?m)" + args[1]).MatchString(all) {
			ts.Fatalf("nothing that reached a node matches %q:\n%s", args[1], all)
		}
	case len(args) == 2 && args[0] == "not":
		if regexp.MustCompile("(?m)" + args[1]).MatchString(all) {
			ts.Fatalf("something that reached a node matches %q:\n%s", args[1], all)
		}
	default:
		ts.Fatalf("usage: effects none | forget | some REGEXP | not REGEXP")
	}
}

func maxrss(ts *testscript.TestScript, neg bool, args []string) {
	var mib int64
	if _, err := fmt.Sscan(args[0], &mib); err != nil {
		ts.Fatalf("usage: maxrss MIB COMMAND…")
	}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir, cmd.Env = ts.MkAbs(
		".",
	), append(
		os.Environ(),
		"GOGC=100",
		"HOME="+ts.Getenv("WORK"),
		"CAPONIER_SANDBOX_CACHE_DIR="+ts.Getenv("CAPONIER_SANDBOX_CACHE_DIR"),
	)
	if args[1] == "caponier" {
		cmd.Path, cmd.Err = bin, nil
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	peak, err := peakOf(cmd)
	ts.Logf("%s", out.Bytes()[:min(out.Len(), 2000)])
	if (err != nil) != neg {
		ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
	}
	if peak == 0 {
		ts.Fatalf("no peak memory was read")
	}
	ts.Logf("peak memory %d MiB", peak)
	if peak > mib {
		ts.Fatalf("peak memory %d MiB is over %d", peak, mib)
	}
}

// peakOf runs a command and returns its peak resident memory in MiB. ru_maxrss counts what this
// process held when it started the child (getrusage(2)); VmHWM does not.
func peakOf(cmd *exec.Cmd) (mib int64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return mib, err
		case <-time.After(2 * time.Millisecond):
			mib = max(mib, highWater(cmd.Process.Pid))
		}
	}
}

// highWater returns the peak resident memory of a running process in MiB, 0 when it has ended.
func highWater(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib)
	return kib / 1024
}

func journal(ts *testscript.TestScript, neg bool, args []string) {
	files, err := filepath.Glob(filepath.Join(ts.MkAbs("lab/journal"), "*.jsonl"))
	ts.Check(err)
	found := false
	for _, f := range files {
		data, err := os.ReadFile(f)
		ts.Check(err)
		found = found || regexp.MustCompile("(?m)"+args[0]).Match(data)
	}
	if found == neg {
		ts.Fatalf("journal matches %q: %v", args[0], found)
	}
}

func tmpfs(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]))
	ts.Defer(func() { ts.Check(syscall.Unmount(dir, 0)) })
}

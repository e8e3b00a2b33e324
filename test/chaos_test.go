package test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/test/needs"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "modernc.org/sqlite"
)

// writers are clients that write at the same time: the first half over stdio, each with its own
// host process, the others over HTTP to one host.
const writers = 8

// chaos is a lab whose parts fail while clients write.
type chaos struct {
	*site
	proxy *sshtest.Proxy
	port  int    // of the HTTP host
	small bool   // journal and store are on a disk that can be filled
	clock *clock // nil: the true one
	bin   string // the host; "" for that of all tests

	mu    sync.Mutex
	procs []*os.Process // hosts that run
	acked map[string]bool
	tried map[string]bool
	count map[string]int // faults, by name
}

// TestChaosLosesNothingAndDoesNothingTwice runs writing clients while hosts are killed, hung up and
// terminated, the network is cut, the store is locked, fdatasync fails, the disk is full, and
// journal files are removed. Afterwards the node holds every acknowledged write once, no write
// twice, and none without an intent; and a host that lives through such faults grows neither in
// memory nor in descriptors. No stage of an upload is left on a node. CAPONIER_CHAOS is how many
// faults to inject, 12 without it; make chaos injects 3,000, and sets the clock of the hosts as
// well, which takes a host that is built for it.
func TestChaosLosesNothingAndDoesNothingTwice(t *testing.T) {
	needs.Minutes(t, "it takes a minute: run without -short")
	faults := 12
	if v := settings["CAPONIER_CHAOS"]; v != "" {
		n, err := strconv.Atoi(v)
		must(t, err)
		faults = n
	}
	c := newChaos(t, faults)
	if faults > 12 {
		c.clock, c.bin = newClock(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	clients.Go(func() { c.keepHTTP(ctx, t) })
	clients.Go(func() { c.approve(ctx, t) })
	for w := range writers {
		clients.Go(func() { c.write(ctx, t, w) })
	}
	clients.Go(func() { c.lifecycle(ctx, t) })
	clients.Go(func() { c.upload(ctx, t) })
	for range faults {
		c.progress(2 * time.Second)
		c.fault(t)
		time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
	}
	for c.progress(5*time.Minute) < enough && !t.Failed() {
	}
	stop()
	clients.Wait()
	if c.clock != nil {
		c.clock.step(t, 0)
	}
	c.examine(t)
	c.steady(t)
}

// steady holds that a host which is not killed does not grow under faults.
func (c *chaos) steady(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // only Linux tells
	}
	t.Setenv("GOGC", "50") // so that what is held shows through what is garbage
	url := c.serveHTTP(t)
	pid := c.host.Pid
	calls := func(n int) (done int) {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "steady", Version: "1"},
			nil).Connect(
			t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1,
				HTTPClient: &http.Client{}}, nil)
		must(t, err)
		defer session.Close()
		for range n {
			res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
				Name:      "proxmox_container_exec_command",
				Arguments: map[string]any{"vmid": 101, "command": "echo fine"}})
			must(t, err)
			if !res.IsError {
				done++
			}
		}
		return done
	}
	faults := []func(*testing.T){c.lockStore, c.fillDisk, c.removeJournal,
		func(*testing.T) { c.proxy.Reset() },
		func(*testing.T) { c.host.Signal(syscall.SIGHUP) }}
	suffer := func(rounds int) (mib, open int) {
		for range rounds {
			for _, fault := range faults {
				var beside sync.WaitGroup
				beside.Go(func() { fault(t) })
				calls(3)
				beside.Wait()
			}
		}
		if calls(5) == 0 {
			t.Error("after the faults no call succeeds")
		}
		time.Sleep(time.Second)
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		must(t, err)
		return resident(t, pid), len(entries)
	}
	mib, open := suffer(3)
	mib2, open2 := suffer(3)
	for more := 0; more < 3 && mib2 > mib+32; more++ { // garbage goes, what leaks stays
		mib2, open2 = suffer(1)
	}
	t.Logf("%d MiB and %d descriptors after 15 faults, then %d MiB and %d", mib, open, mib2, open2)
	if mib2 > mib+32 || open2 > open+4 {
		t.Error("the host grows under faults")
	}
}

// resident returns the memory of a process in MiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	kib, err := strconv.Atoi(string(m[1]))
	must(t, err)
	return kib >> 10
}

// smallDisk puts the state of hosts on a file system of their own, where this process may mount
// one. It has room for what they write under so many faults, and is only full when fillDisk fills
// it.
func (c *chaos) smallDisk(t *testing.T, faults int) {
	t.Helper()
	dir := filepath.Join(c.dir, "state")
	must(t, os.Mkdir(dir, 0o700))
	c.replace(t, c.config, `dir = "[^"]*/lab/journal"`, "dir = \""+dir+"/journal\"")
	size := fmt.Sprintf("size=%dm,mode=0700", 64+faults)
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", size, "none", dir).
		CombinedOutput()
	if c.small = err == nil; !c.small {
		t.Logf("the disk is never full, since it cannot be mounted: %v %s", err, out)
		return
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
}

// fillDisk leaves no byte on the disk of journal and store for a moment.
func (c *chaos) fillDisk(t *testing.T) {
	if !c.small {
		return
	}
	name := filepath.Join(c.dir, "state/filler")
	f, err := os.Create(name)
	if err != nil {
		return // it is full
	}
	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
	f.Close()
	must(t, os.Remove(name))
}

func newChaos(t *testing.T, faults int) *chaos {
	t.Helper()
	s := newSite(t)
	c := &chaos{site: s, acked: map[string]bool{}, tried: map[string]bool{},
		count: map[string]int{}}
	c.proxy = sshtest.NewProxy(t, s.lab.Addr)
	_, port := sshtest.HostPort(c.proxy.Addr)
	s.replace(t, s.config, `port = \d+`, "port = "+strconv.Itoa(port))
	data := filepath.Join(s.dir, "site/data.yaml")
	s.replace(t, data, `calls_per_minute: \d+`, "calls_per_minute: 1000000")
	s.append(t, "\n[identity]\nhttp = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n"+
		"[approval]\nwait = \"2s\"\napprovers = [\"ann\"]\n")
	_, c.port = sshtest.HostPort(freeAddress(t))
	c.smallDisk(t, faults)
	return c
}

// enough is how many writes have to be acknowledged beside the faults, for them to prove something.
const enough = 20

// progress waits until another write is acknowledged, so that faults on a slow machine do not
// prevent every call, or until the time is over. It returns how many are acknowledged.
func (c *chaos) progress(most time.Duration) int {
	acked := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.acked)
	}
	before := acked()
	for end := time.Now().Add(most); acked() == before && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	return acked()
}

// command runs the host of this chaos.
func (c *chaos) command(args ...string) *exec.Cmd {
	cmd := c.site.command(args...)
	if c.bin != "" {
		cmd.Path, cmd.Args[0] = c.bin, c.bin
	}
	return cmd
}

// keepHTTP starts the HTTP host again whenever it ends, as a service manager does.
func (c *chaos) keepHTTP(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		cmd := c.command("serve", "--http", fmt.Sprintf("127.0.0.1:%d", c.port))
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		c.adopt(cmd.Process)
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			cmd.Process.Signal(syscall.SIGTERM)
			<-done
		}
		c.disown(cmd.Process)
	}
}

func (c *chaos) adopt(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.procs = append(c.procs, p)
}

func (c *chaos) disown(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.procs = slices.DeleteFunc(c.procs, func(o *os.Process) bool { return o == p })
}

// connect starts a client, and for one over stdio its host. The fourth host over stdio runs under
// strace, which makes every twentieth fdatasync fail.
func (c *chaos) connect(ctx context.Context, w int) (*mcp.ClientSession, func(), error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "writer", Version: "1"}, nil)
	if w >= writers/2 {
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{MaxRetries: -1,
			Endpoint: fmt.Sprintf("http://127.0.0.1:%d/mcp", c.port), HTTPClient: &http.Client{}}, nil)
		return session, func() {}, err
	}
	cmd := c.command("serve")
	if strace, err := exec.LookPath("strace"); err == nil && w == writers/2-1 {
		cmd.Args = append([]string{strace, "-f", "-qq", "-o", "/dev/null",
			"-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=20+20"}, cmd.Args...)
		cmd.Path = strace
	}
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if cmd.Process == nil {
		return session, func() {}, err
	}
	c.adopt(cmd.Process)
	return session, func() { c.disown(cmd.Process) }, err
}

// write makes calls until ctx ends, each with a unique mark, and connects again after a failure.
func (c *chaos) write(ctx context.Context, t *testing.T, w int) {
	for n := 0; ctx.Err() == nil; {
		session, gone, err := c.connect(ctx, w)
		for err == nil && ctx.Err() == nil {
			mark := fmt.Sprintf("mark-%d%06d-end", w, n)
			n++
			c.mu.Lock()
			c.tried[mark] = true
			c.mu.Unlock()
			each, cancel := context.WithTimeout(ctx, 30*time.Second)
			var res *mcp.CallToolResult
			res, err = session.CallTool(each, &mcp.CallToolParams{
				Name: "proxmox_container_exec_command", Arguments: map[string]any{"vmid": 101,
					"command": fmt.Sprintf("echo %s >> /tmp/marks", mark)}})
			cancel()
			if err == nil && res.IsError {
				t.Logf("writer %d: %s", w, res.Content[0].(*mcp.TextContent).Text)
				time.Sleep(100 * time.Millisecond) // 600 refusals a minute are the end of it
			}
			if err == nil && !res.IsError {
				c.mu.Lock()
				c.acked[mark] = true
				c.mu.Unlock()
			}
		}
		if session != nil {
			session.Close()
		}
		gone()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// lifecycle stops and starts a guest that needs an approval, by separate commands.
func (c *chaos) lifecycle(ctx context.Context, t *testing.T) {
	for n := 0; ctx.Err() == nil; n++ {
		tool := []string{"proxmox_stop_container", "proxmox_start_container"}[n%2]
		cmd := c.command("call", tool, `{"vmid":102}`)
		_ = cmd.Run() // waiting, done, already, or unknown; the journal says which
	}
}

// approve approves every request that waits.
func (c *chaos) approve(ctx context.Context, t *testing.T) {
	id := regexp.MustCompile(`"id": ?"([A-Z0-9]+)"`)
	for ctx.Err() == nil {
		out, _ := c.command("approvals", "list", "--json", "--as", "ann").Output()
		for _, m := range id.FindAllSubmatch(out, -1) {
			_ = c.command("approvals", "approve", string(m[1]), "--as", "ann").Run()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// fault injects one fault at random.
func (c *chaos) fault(t *testing.T) {
	kinds := map[string]func(*testing.T){
		"kill -9":         func(*testing.T) { c.signal(syscall.SIGKILL) },
		"SIGTERM":         func(*testing.T) { c.signal(syscall.SIGTERM) },
		"SIGHUP":          func(*testing.T) { c.signal(syscall.SIGHUP) },
		"network cut":     func(*testing.T) { c.proxy.Reset() },
		"store locked":    c.lockStore,
		"journal removed": c.removeJournal,
		"disk full":       c.fillDisk,
		"stopped":         c.pause,
	}
	if c.clock != nil {
		kinds["clock step"] = c.stepClock
	}
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[rand.IntN(len(names))]
	if rand.IntN(2) == 0 { // half of the faults are the hardest
		name = "kill -9"
	}
	c.count[name]++
	kinds[name](t)
}

func (c *chaos) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.procs) > 0 {
		c.procs[rand.IntN(len(c.procs))].Signal(s)
	}
}

// pause stops a host for a moment, as a suspended machine does.
func (c *chaos) pause(*testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.procs) == 0 {
		return
	}
	p := c.procs[rand.IntN(len(c.procs))]
	p.Signal(syscall.SIGSTOP)
	time.AfterFunc(300*time.Millisecond, func() { p.Signal(syscall.SIGCONT) })
}

// lockStore holds the write lock of the store for a moment.
func (c *chaos) lockStore(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(c.dir, "state/store/*.db"))
	if len(files) == 0 {
		t.Error("there is no store to lock")
	}
	for _, f := range files {
		db, err := sql.Open("sqlite", "file:"+f+"?mode=rw")
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := db.Exec("BEGIN IMMEDIATE"); err == nil {
			time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		}
		db.Close()
	}
}

// removeJournal moves a journal file away from under its host. The records are kept beside it,
// because this test reads them at the end.
func (c *chaos) removeJournal(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(c.dir, "state/journal/*.jsonl"))
	if len(files) == 0 {
		return
	}
	f := files[rand.IntN(len(files))]
	_ = os.MkdirAll(filepath.Join(c.dir, "state/removed"), 0o700) // fails on a full disk
	_ = os.Rename(f, filepath.Join(c.dir, "state/removed", filepath.Base(f)))
}

// examine compares the answers to clients, the commands on the node, and the journal.
func (c *chaos) examine(t *testing.T) {
	time.Sleep(time.Second) // a cut command may still write
	marks, err := c.lab.GuestFile(101, "/tmp/marks")
	must(t, err)
	did := map[string]int{}
	mark := regexp.MustCompile(`mark-\d+-end`)
	for _, m := range mark.FindAllString(string(marks), -1) {
		did[m]++
	}
	intents := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(c.dir, "state/journal/*.jsonl"))
	removed, _ := filepath.Glob(filepath.Join(c.dir, "state/removed/*.jsonl"))
	for _, f := range append(files, removed...) {
		data, err := os.ReadFile(f)
		must(t, err)
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, `"type":"intent"`) &&
				strings.Contains(line, `"op":"ssh_exec"`) {
				if m := mark.FindString(line); m != "" {
					intents[m]++
				}
			}
		}
	}
	for m, n := range did {
		if n > 1 {
			t.Errorf("%s was written %d times", m, n)
		}
		if intents[m] == 0 {
			t.Errorf("%s was written without an intent in the journal", m)
		}
	}
	for m := range c.acked {
		if did[m] == 0 {
			t.Errorf("%s was acknowledged and is not there", m)
		}
	}
	t.Logf("faults: %v; %d writes tried, %d acknowledged, %d done, %d intents", c.count,
		len(c.tried), len(c.acked), len(did), len(intents))
	if len(c.acked) < enough || len(c.acked) == len(c.tried) {
		t.Error("the faults proved nothing")
	}
	c.last(t)
	c.swept(t, append(files, removed...))
	c.wasStepped(t, append(files, removed...))
}

// last checks that a host still works, and that the journal verifies with the files that were
// removed.
func (c *chaos) last(t *testing.T) {
	out, err := c.command("call", "proxmox_container_exec_command",
		`{"vmid":101,"command":"echo fine"}`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "fine") {
		t.Errorf("a call afterwards: %v\n%s", err, out)
	}
	removed, err := filepath.Glob(filepath.Join(c.dir, "state/removed/*.jsonl"))
	must(t, err)
	for _, f := range removed {
		must(t, os.Rename(f, filepath.Join(c.dir, "state/journal", filepath.Base(f))))
	}
	out, err = c.command("audit", "verify").CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

package bench

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call may cost this much. The bounds are a tenth over what was measured, or more where the
// number moves from run to run.
var bounds = map[string]struct{ allocs, syscalls, bytes float64 }{
	"green":  {allocs: 1600, syscalls: 40, bytes: 7500},
	"yellow": {allocs: 1600, syscalls: 41, bytes: 7500},
}

// The Go runtime makes these as the machine's load wants it, so that no bound on them holds.
const scheduler = " futex nanosleep sched_yield epoll_pwait tgkill getpid rt_sigreturn madvise " +
	"restart_syscall rt_sigprocmask munmap mmap "

// What a call costs does not depend on the machine: allocations, transactions, syncs, bytes in the
// journal, and system calls over those of a raw exec.
func TestACallStaysWithinItsCosts(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // strace
	}
	p := newPlace(t)
	raw, ours := p.raw(t), p.start(t, "caponier", "stdio")
	const n = 40
	for tier, bound := range bounds {
		calls := func(s *subject) func() {
			return func() {
				for range n {
					s.call(t, tier)
				}
			}
		}
		for range 10 { // connections and caches warm
			calls(raw)
			ours.call(t, tier)
		}
		allocs, bytes, frames := ours.allocations(t), p.journal(t), p.commits(t)
		calls(ours)()
		allocs, bytes = (ours.allocations(t)-allocs)/n, (p.journal(t)-bytes)/n
		// the log is forgotten once a second, in a transaction of its own
		commits := p.commits(t) - frames
		if allocs > bound.allocs || bytes > bound.bytes || commits < n || commits > 2*n {
			t.Errorf(
				"%s: %.0f allocations, %.0f bytes of journal a call, %d transactions of %d calls",
				tier,
				allocs,
				bytes,
				commits,
				n,
			)
		}
		counts := ours.syscalls(t, calls(ours))
		over := (own(counts) - own(raw.syscalls(t, calls(raw)))) / n
		if syncs := counts["fdatasync"] + counts["fsync"]; over > bound.syscalls ||
			syncs != map[string]float64{"green": 0, "yellow": n}[tier] {
			t.Errorf("%s: %.1f system calls over a raw exec, %v syncs of %d calls: %v",
				tier, over, syncs, n, counts)
		}
		t.Logf("%s: %.0f allocations, %.0f bytes, %.1f system calls over a raw exec", tier, allocs,
			bytes, over)
	}
}

// What a start costs in memory, and modules after it, does not depend on the machine either: what
// was allocated, the heap that the last collection left alive, and the machine code of modules,
// which no file backs. The bounds are a tenth over what was measured.
func TestAStartStaysWithinItsMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // smaps
	}
	t.Setenv("GOGC", "200") // so that the size of the next cycle tells what is alive
	p := newPlace(t)
	calls := func(s *subject) { // of two plugins; what the second needs is not on the node
		s.call(t, "green")
		_, _ = s.session.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "list_guests", Arguments: map[string]any{}})
	}
	calls(p.start(t, "caponier", "stdio")) // fills the caches of modules
	s := p.start(t, "caponier", "stdio")
	_, err := s.session.ListTools(t.Context(), nil)
	must(t, err)
	measure := func() map[string]float64 {
		return map[string]float64{
			"allocations": s.metric(t, "go_memstats_mallocs_total"),
			"MiB made":    s.metric(t, "go_memstats_alloc_bytes_total") / (1 << 20),
			// by GOGC, three times what was alive
			"MiB alive":   s.metric(t, "go_memstats_next_gc_bytes") / (3 << 20),
			"MiB of code": s.code(t),
		}
	}
	started := measure()
	calls(s)
	called := measure()
	for _, at := range []struct {
		what        string
		got, bounds map[string]float64
	}{
		{"a start", started, map[string]float64{"allocations": 1_870_000, "MiB made": 106,
			"MiB alive": 20, "MiB of code": 1}},
		{"a call of each of two plugins", called, map[string]float64{"allocations": 2_200_000,
			"MiB made": 170, "MiB alive": 31, "MiB of code": 43}},
	} {
		for name, bound := range at.bounds {
			if at.got[name] > bound {
				t.Errorf("%s: %.1f %s, want at most %v", at.what, at.got[name], name, bound)
			}
		}
		t.Logf("%s: %v", at.what, at.got)
	}
}

// code is how many MiB of machine code are in memory that no file backs.
func (s *subject) code(t testing.TB) (mib float64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", s.pid))
	must(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\S+ r-xp 00000000 00:00 0 *\nSize: +(\d+) kB`).
		FindAllSubmatch(text, -1) {
		kib, err := strconv.ParseFloat(string(m[1]), 64)
		must(t, err)
		mib += kib / 1024
	}
	return mib
}

// own sums the calls that are not the scheduler's.
func own(counts map[string]float64) (sum float64) {
	for name, n := range counts {
		if name != "" && !strings.Contains(scheduler, " "+name+" ") {
			sum += n
		}
	}
	return sum
}

// journal is how many bytes the journal has.
func (p *place) journal(t testing.TB) (sum float64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(p.dir, "state/journal/*.jsonl"))
	must(t, err)
	for _, name := range names {
		info, err := os.Stat(name)
		must(t, err)
		sum += float64(info.Size())
	}
	return sum
}

// commits counts the transactions in SQLite's log: the frames that end one.
func (p *place) commits(t testing.TB) (n int) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(p.dir, "state/store/store.db-wal"))
	must(t, err)
	const head, frame = 32, 24
	page := int(binary.BigEndian.Uint32(log[8:]))
	for at := head; at+frame+page <= len(log); at += frame + page {
		if binary.BigEndian.Uint32(log[at+4:]) != 0 {
			n++
		}
	}
	return n
}

// With a disk that takes 50 ms for a sync, a green call does not wait for it, and a yellow one
// waits once.
func TestOnlyWhatIsAboveGreenWaitsForASlowDisk(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		sshtest.Missing(t, "strace")
	}
	const sync = 50 * time.Millisecond
	p := newPlace(t)
	words := []string{
		"strace",
		"-f",
		"--seccomp-bpf",
		"-q",
		"-o",
		"/dev/null",
		"-e",
		"trace=fdatasync",
	}
	quick := p.start(t, "caponier", "stdio", words...)
	slow := p.start(
		t,
		"caponier",
		"stdio",
		append(words, "-e", "inject=fdatasync:delay_enter=50000")...)
	took := map[string]float64{}
	for i := range 25 {
		for _, tier := range []string{"green", "yellow"} {
			for name, s := range map[string]*subject{"quick": quick, "slow": slow} {
				began := time.Now()
				s.call(t, tier)
				if now := ms(time.Since(began)); i == 5 || i > 5 && now < took[name+tier] {
					took[name+tier] = now // the least: what else is slow is the machine
				}
			}
		}
	}
	t.Logf("green %.2f times as long, yellow %.1f ms longer", took["slowgreen"]/took["quickgreen"],
		took["slowyellow"]-took["quickyellow"])
	if took["slowgreen"]-took["quickgreen"] > ms(sync)/2 {
		t.Errorf("a green call waits for the disk: %v", took)
	}
	if more := took["slowyellow"] - took["quickyellow"]; more < ms(sync)*3/4 ||
		more > ms(sync)*7/4 {
		t.Errorf("a yellow call does not wait for one sync: %v", took)
	}
}

package test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// holdBodies holds back the last byte of 450 large bodies, sends pings of 200,000 keys, and opens
// what sessions it gets, up to 100. It returns how many those are; all stays open.
func holdBodies(t *testing.T, url, token string) (sessions int64) {
	address := strings.TrimPrefix(url, "http://")
	send := func(size int, body string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return nil
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		// the host may refuse it before the end
		_, _ = fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Content-Length: %d\r\n\r\n%s", address, token, size, body)
		return c
	}
	const size = 4_000_000
	large := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",` +
		`"arguments":{"a":"` + strings.Repeat("a", size)
	var keys strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&keys, `"k%d":1,`, i)
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{` + keys.String() +
		`"z":1}}}`
	var all sync.WaitGroup
	turns := make(chan struct{}, 64)
	for range 450 {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			send(size, large[:size-1])
		})
	}
	for range 30 {
		all.Go(func() {
			if c := send(len(ping), ping); c != nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(c, 1000))
				c.Close()
			}
		})
	}
	var open atomic.Int64
	for range 100 {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			session, err := dial(t, url, token)
			if err == nil {
				_, _ = session.ListTools(t.Context(), nil)
				open.Add(1)
			}
		})
	}
	all.Wait()
	return open.Load()
}

// One viewer holds back the last byte of 450 large bodies, sends pings of 200,000 keys and opens
// what sessions it gets, all from another process than the operator and the node. The host grows by
// the budget of bodies and 64 MiB at most, as the kernel counts its memory, and an operator is
// served meanwhile.
func TestAHostileViewerTakesNoMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // only Linux tells the peak of a process
	}
	const budget, slack = 64, 64 // MiB
	t.Setenv("GOGC", "")         // as installed, not as other tests
	s := newSite(t)
	s.unhurried(t)
	tokens := s.crowd(t)
	url := s.serveHTTP(t)
	call := s.operator(t, url, tokens["demo"])
	memory := func(what string) int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.host.Pid))
		must(t, err)
		m := regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(text)
		kib, err := strconv.Atoi(string(m[1]))
		must(t, err)
		return kib >> 10
	}
	var alone, beside latencies
	call()
	for range 40 {
		alone = append(alone, call())
	}
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.host.Pid), []byte("5"), 0))
	idle := memory("VmRSS")
	confine(t, s.host.Pid, budget+slack)
	clients := startHostile(t, url, tokens["eve"], "bodies")
	for n := 0; n < 40 || !clients.told(); n++ {
		beside = append(beside, call())
	}
	grown := memory("VmHWM") - idle
	t.Logf("idle %d MiB, grown by at most %d MiB; a call takes %s alone, %s meanwhile; %s", idle,
		grown, alone, beside, clients.end())
	if grown > budget+slack {
		t.Errorf("the host grew by %d MiB, want at most %d", grown, budget+slack)
	}
	call()
}

// confine moves a process to a cgroup with a memory limit in MiB. The kernel ends the process if it
// uses more. If no cgroup can be created, confine logs this, and only the peak counts.
func confine(t *testing.T, pid, mib int) {
	t.Helper()
	name := fmt.Sprintf("caponier-test-%d", pid)
	for root, file := range map[string]string{
		"/sys/fs/cgroup":        "memory.max",
		"/sys/fs/cgroup/memory": "memory.limit_in_bytes",
	} {
		dir := filepath.Join(root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		put := func(dir, file string, n int) error { // without making the file
			f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(strconv.Itoa(n))
				f.Close()
			}
			return err
		}
		t.Cleanup(func() {
			_ = put(root, "cgroup.procs", pid) // it may have ended
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if put(dir, file, mib<<20) != nil {
			continue
		}
		must(t, put(dir, "cgroup.procs", pid))
		t.Logf("%s holds the host to %d MiB more", dir, mib)
		return
	}
	t.Log("no cgroup can be made here: the host is not held to its memory, only measured")
}

package test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// One viewer holds back the last byte of 450 large bodies, sends pings of 200,000 keys and opens
// what sessions it gets. The host grows by the budget of bodies and 64 MiB at most, as the kernel
// counts its memory, and an operator is served meanwhile.
func TestAHostileViewerTakesNoMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // only Linux tells the peak of a process
	}
	const budget, slack = 64, 64 // MiB
	s := newSite(t)
	s.append(t, "\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"demo\"\n"+
		"[[identity.principals]]\nid = \"eve\"\n",
		filepath.Join(s.dir, "tokens.json"))
	const demo = "  demo: {auth: [config, token], roles: [operator]}"
	s.rewrite(t, demo, demo+"\n  eve: {auth: [token], roles: [viewer]}")
	tokens := map[string]string{}
	for _, name := range []string{"demo", "eve"} {
		out, err := s.command("token", "new", name).Output()
		must(t, err)
		tokens[name] = strings.TrimSpace(string(out))
	}
	url := s.serveHTTP(t)
	connect := func(name string) (*mcp.ClientSession, error) {
		return mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"},
			nil).Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1,
				HTTPClient: &http.Client{Transport: bearer(tokens[name])}}, nil)
	}
	good, err := connect("demo")
	must(t, err)
	defer good.Close()
	// The simulated node is in this process, beside the hostile clients: what a call of its costs
	// says more of them than of the host. So a list is timed too, which asks policy about every
	// tool and no node about anything.
	type took struct{ call, list time.Duration }
	call := func() (now took) {
		began := time.Now()
		r, err := good.CallTool(t.Context(), &mcp.CallToolParams{Name: "proxmox_container_status",
			Arguments: map[string]any{"vmid": 101}})
		if err != nil || r.IsError {
			t.Errorf("the operator's call: %v %+v", err, r)
		}
		now.call, began = time.Since(began), time.Now()
		if _, err := good.ListTools(t.Context(), nil); err != nil {
			t.Errorf("the operator's list: %v", err)
		}
		now.list = time.Since(began)
		return now
	}
	call()
	alone := call()
	memory := func(what string) int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.host.Pid))
		must(t, err)
		m := regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(text)
		kib, err := strconv.Atoi(string(m[1]))
		must(t, err)
		return kib >> 10
	}
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.host.Pid), []byte("5"), 0))
	idle := memory("VmRSS")
	confine(t, s.host.Pid, budget+slack)

	head := func(size int) string {
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Content-Length: %d\r\n\r\n",
			strings.TrimPrefix(url, "http://"), tokens["eve"], size)
	}
	send := func(size int, body string) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return nil
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(c, head(size)+body) // the host may refuse it before the end
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
	var held [450]net.Conn
	var hostile sync.WaitGroup
	turns := make(chan struct{}, 64)
	for i := range held {
		hostile.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			held[i] = send(size, large[:size-1])
		})
	}
	for range 30 {
		hostile.Go(func() {
			if c := send(len(ping), ping); c != nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(c, 1000))
				c.Close()
			}
		})
	}
	sessions := make(chan *mcp.ClientSession, 100)
	for range 100 {
		hostile.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if session, err := connect("eve"); err == nil {
				_, _ = session.ListTools(t.Context(), nil)
				sessions <- session
			}
		})
	}
	var worst took
	for range 10 {
		next := call()
		worst = took{max(worst.call, next.call), max(worst.list, next.list)}
	}
	hostile.Wait()
	grown := memory("VmHWM") - idle
	t.Logf("idle %d MiB, grown by at most %d MiB; %d sessions; a call on a node and a list "+
		"took %+v alone, meanwhile at most %+v", idle, grown, len(sessions), alone, worst)
	if grown > budget+slack {
		t.Errorf("the host grew by %d MiB, want at most %d", grown, budget+slack)
	}
	for _, c := range held {
		if c != nil {
			c.Close()
		}
	}
	close(sessions)
	for session := range sessions {
		session.Close()
	}
	call()
}

// confine moves a process to a cgroup that may charge so many MiB of memory from now on: the kernel
// ends it when it takes more. Where no cgroup can be made, it says so, and the peak is what counts.
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

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets a test start this program: the test binary is caponier when the variable says so.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_IS_CAPONIER") != "" {
		main()
	}
	os.Exit(m.Run())
}

// caponier is a process of this program with a configuration that needs no node and no module.
func caponier(t *testing.T, toml string, env []string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := fmt.Sprintf("accept_risks = true\n[cli]\nprincipal = 'local'\n"+
		"[plugin]\nlock = '%s/plugins.lock'\ndir = '%s'\n[policy]\nsite = '%s/policies/site'\n%s\n",
		root, dir, root, toml)
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := exec.Command(self, append([]string{"--config", file}, args...)...)
	c.Env = append(append(os.Environ(), "TEST_IS_CAPONIER=1"), env...)
	c.Stderr = &log
	return c, &log
}

// httpLocal lets every local caller over HTTP be one principal.
const httpLocal = "[identity]\nhttp = 'local'\n[[identity.principals]]\nid = 'local'"

func TestHangupWhileStartingDoesNotEndTheProcess(t *testing.T) {
	// what the kernel and the runtime take before main's first statement
	var beforeMain time.Duration
	for range 3 {
		c, log := caponier(t, httpLocal, nil, "version")
		if err := c.Run(); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		beforeMain = max(beforeMain, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	}
	for _, after := range []time.Duration{50, 100, 300, 600, 1000} {
		for _, args := range [][]string{{"serve"}, {"serve", "--http", "127.0.0.1:0"}} {
			t.Run(fmt.Sprintf("%d ms %d", after, len(args)), func(t *testing.T) {
				// One process at a time, so that their processor time compares.
				c, log := caponier(t, httpLocal, nil, args...)
				in, err := c.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(after * time.Millisecond)
				for until := time.Now().Add(20 * time.Second); processorTime(t,
					c.Process.Pid) < beforeMain+20*time.Millisecond &&
					time.Now().Before(until); {
					time.Sleep(5 * time.Millisecond)
				}
				if err := c.Process.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
				time.Sleep(200 * time.Millisecond)
				// does not end a process that SIGHUP has ended
				_ = c.Process.Signal(syscall.SIGTERM)
				_ = in.Close()
				if err := c.Wait(); err != nil {
					t.Errorf("after SIGHUP at %d ms and SIGTERM: %v\n%s", after, err, log)
				}
			})
		}
	}
}

// processorTime returns what a process has used, in steps of 10 ms (proc_pid_stat(5)).
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

func TestServiceManagerIsToldTheState(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, log := caponier(t, httpLocal, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=200000"},
		"serve", "--http", "127.0.0.1:0")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	await := func(state string) {
		t.Helper()
		for buf := make([]byte, 1024); ; {
			_ = l.SetReadDeadline(time.Now().Add(60 * time.Second))
			n, err := l.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %s: %v\n%s", state, err, log)
			}
			if got := string(buf[:n]); strings.HasPrefix(got, state) {
				return
			}
		}
	}
	await("READY=1")
	await("WATCHDOG=1")
	if err := c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await("RELOADING=1\nMONOTONIC_USEC=")
	await("READY=1")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await("STOPPING=1")
}

func TestMetricsPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	toml := fmt.Sprintf("[front]\nmetrics = '%s'\n", l.Addr()) + httpLocal
	stdio, log := caponier(t, toml, nil, "serve") // its standard input is at its end
	if err := stdio.Run(); err != nil || !strings.Contains(log.String(),
		"does not serve the metrics") {
		t.Errorf("stdio: %v\n%s\nwant a warning, and service", err, log)
	}
	http, log := caponier(t, toml, nil, "serve", "--http", "127.0.0.1:0")
	if err := http.Run(); err == nil || !strings.Contains(log.String(), "[front] metrics") {
		t.Errorf("HTTP: %v\n%s\nwant an error that names the key", err, log)
	}
}

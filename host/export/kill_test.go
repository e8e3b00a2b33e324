package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test's program is also a sender and a receiver, which can be killed.
func TestMain(m *testing.M) {
	role, args := os.Getenv("EXPORT_TEST_ROLE"), strings.Fields(os.Getenv("EXPORT_TEST_ARGS"))
	switch role {
	case "":
		os.Exit(m.Run())
	case "send":
		o := SinkOptions{Name: "x", Kind: args[1], URL: args[2]}
		x, err := New(Options{Dir: args[3], Every: 100 * time.Millisecond, Sinks: []SinkOptions{o}},
			args[0])
		if err != nil {
			panic(err)
		}
		x.every, x.to[0].first = time.Millisecond, time.Millisecond
		x.to[0].longest, x.to[0].limit = 10*time.Millisecond, 20
		x.Run(context.Background())
	case "full":
		fmt.Println(appendLimited(args[0], args[1], args[2]))
	case "receive":
		panic(receive(args[0], args[1], args[2]))
	}
}

// appendLimited exports once while no file may grow beyond a limit in bytes.
func appendLimited(dir, file, limit string) error {
	n, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		return err
	}
	x, err := New(Options{Dir: filepath.Join(filepath.Dir(dir), "export"),
		Sinks: []SinkOptions{{Name: "x", Kind: "jsonl", File: file}}}, dir)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		return err
	}
	return x.Once(context.Background())
}

// receive keeps the ids of events in a file, each on the disk before it is acknowledged.
func receive(kind, address, file string) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	var l net.Listener
	for end := time.Now().Add(10 * time.Second); l == nil; {
		if l, err = net.Listen("tcp", address); err != nil && time.Now().After(end) {
			return err
		}
	}
	keep := func(r *receiver) error {
		var text bytes.Buffer
		for id := range r.got {
			fmt.Fprintln(&text, id)
		}
		_, err := out.Write(text.Bytes())
		return errors.Join(err, out.Sync())
	}
	if kind == "opa" {
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r := newReceiver()
			text, err := body(req)
			if err = errors.Join(err, r.opa(text)); err == nil {
				err = keep(r)
			}
			if err != nil {
				http.Error(w, err.Error(), 500)
			}
		}))
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		// Until all is kept, the end of the connection is a reset, also that by a kill after the
		// last byte was read. One that was cut off is not kept.
		err = c.(*net.TCPConn).SetLinger(0)
		r := newReceiver()
		if err == nil && r.connection(c) == nil {
			time.Sleep(50 * time.Millisecond) // so that some kills come between reading and keeping
			err = errors.Join(keep(r), c.(*net.TCPConn).SetLinger(-1))
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
}

func start(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EXPORT_TEST_ROLE="+role, "EXPORT_TEST_ARGS="+
		strings.Join(args, " "))
	must(t, cmd.Start())
	return cmd
}

// Both sides are killed at any time, again and again: what the journal holds arrives. The receiver
// of syslog closes a connection in order only when it has kept everything.
func TestNothingIsLostWhenEitherSideIsKilled(t *testing.T) {
	for kind, scheme := range map[string]string{"opa": "http", "syslog": "tcp"} {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			dir, file := filepath.Join(root, "journal"), filepath.Join(root, "got")
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			address := l.Addr().String()
			must(t, l.Close())
			j := journal(t, dir)
			sends := []string{dir, kind, scheme + "://" + address, filepath.Join(root, "export")}
			receives := []string{kind, address, file}
			sender, receiving := start(t, "send", sends...), start(t, "receive", receives...)
			var ids []string
			kill := func(c *exec.Cmd) { must(t, c.Process.Kill()); _ = c.Wait() }
			count := func() int {
				text, _ := os.ReadFile(file)
				return bytes.Count(text, []byte("\n"))
			}
			for round := range 16 {
				ids = append(ids, write(t, j, fmt.Sprint("r", round), 40)...)
				before := count()
				if round > 1 { // until something went over; then while the next batches do
					eventually(t, func() bool { return count() > before })
				}
				if round%3 != 0 {
					kill(sender)
				}
				if round%3 != 1 {
					kill(receiving)
					receiving = start(t, "receive", receives...)
				}
				if round%3 != 0 {
					sender = start(t, "send", sends...)
				}
			}
			var missing []string
			defer func() {
				kill(sender)
				kill(receiving)
				if len(missing) > 0 {
					t.Errorf("%d of %d ids are missing, such as %s", len(missing), len(ids),
						missing[0])
				}
			}()
			eventually(t, func() bool {
				text, _ := os.ReadFile(file)
				got := map[string]bool{}
				for line := range strings.Lines(string(text)) {
					got[strings.TrimSuffix(line, "\n")] = true
				}
				missing = nil
				for _, id := range ids {
					if !got[id] {
						missing = append(missing, id)
					}
				}
				return len(missing) == 0
			})
		})
	}
}

// A sink that takes nothing, or a journal that is long, does not delay the end of a server.
func TestOnceEndsWithItsContext(t *testing.T) {
	folder, err := os.MkdirTemp("", "x") // names of sockets are short
	must(t, err)
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "s")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer c.Close() // nobody reads it
	for name, o := range map[string]SinkOptions{
		"a socket that nobody reads": {Kind: "syslog", URL: "unix://" + socket},
		"another":                    {Kind: "journald", URL: "unix://" + socket},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			write(t, journal(t, dir), "a", 500)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			if err := exporter(t, dir, o).Once(ctx); err == nil {
				t.Error("all of it was sent")
			}
			if took := time.Since(begin); took > sendTime/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
	dir := filepath.Join(t.TempDir(), "journal")
	write(t, journal(t, dir), "a", 1)
	o := SinkOptions{Kind: "jsonl", File: filepath.Join(t.TempDir(), "lines")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := exporter(t, dir, o).Once(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a file takes lines after the end: %v", err)
	}
}

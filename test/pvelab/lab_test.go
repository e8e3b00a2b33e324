package pvelab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
)

func startLab(t *testing.T, o Options) *Lab {
	t.Helper()
	o.State = t.TempDir()
	l, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l *Lab, addr string) *ssh.Client {
	t.Helper()
	b, err := os.ReadFile(l.Identity)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ssh.ParsePrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial(
		"tcp",
		addr,
		&ssh.ClientConfig{
			User:    "root",
			Auth:    []ssh.AuthMethod{ssh.PublicKeys(k)},
			Timeout: 10 * time.Second,
			HostKeyCallback: func(_ string, _ net.Addr, k ssh.PublicKey) error {
				for node, at := range l.Nodes {
					if at == addr && ssh.FingerprintSHA256(k) == l.HostKeys[node] {
						return nil
					}
				}
				return errors.New("another host key")
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask runs a text on a node and answers its exit code and outputs.
func ask(t *testing.T, c *ssh.Client, text, in string) result {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out, errw bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader(in), &out, &errw
	err = s.Run(text)
	r := result{0, out.String(), errw.String()}
	var x *ssh.ExitError
	if errors.As(err, &x) {
		r.exit = x.ExitStatus()
	} else if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func TestTheLoginShellOfANode(t *testing.T) {
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	for _, tt := range []struct {
		claim, text, in string
		want            result
	}{
		{"runs one command with its exit code", "sh -c 'exit 7'", "", result{7, "", ""}},
		{"begins in root's home", "pwd; hostname", "", result{0, "/root\npve1\n", ""}},
		{"knows pipes, substitutions and globs",
			`echo "$(cat /etc/hostname)" | tr a-z A-Z; cd /etc; echo host*`, "",
			result{0, "PVE1\nhostname hosts\n", ""}},
		{"passes its input on into a container",
			"pct exec 105 --keep-env 0 -- sh -c 'cat > \"$1\"; wc -c \"$1\"' sh /root/in", "12345",
			result{0, "5 /root/in\n", ""}},
		{"says which command it does not know", "nosuch", "",
			result{127, "", "bash: line 1: nosuch: command not found\n"}},
		{"has no program of the machine's", "perl -e 1; /usr/bin/perl", "",
			result{127, "", "bash: line 1: perl: command not found\nbash: line 1: /usr/bin/perl: " +
				"No such file or directory\n"}},
		{"refuses a syntax error before running anything", "hostname; if", "",
			result{2, "", "syntax error"}},
		{"shows its programs no process substitution", "cat <(hostname)", "",
			result{1, "", "cat: /dev/fd/63: No such file or directory\n"}},
		{"ends a writer that nobody reads", "yes | head -n 2", "", result{0, "y\ny\n", ""}},
		{"gives timeout its own code", "timeout 0.05 sleep 5", "", result{124, "", ""}},
		{"gives a container's timeout busybox's code", "pct exec 105 -- timeout 0.05 sleep 5", "",
			result{143, "", ""}},
		{"stats like GNU", "stat -c '%F %s %a' /etc/hostname /tmp", "",
			result{0, "regular file 5 644\ndirectory 4096 755\n", ""}},
		{"reads temperatures", "cat /sys/class/thermal/thermal_zone*/temp 2>/dev/null", "",
			result{0, "47000\n41500\n", ""}},
		{"finds and counts", "mkdir -p /opt/a/b; echo x > /opt/a/f; cd /opt; find . -type f | " +
			"xargs wc -c; find /opt -maxdepth 1 -name 'a'", "", result{0, "2 ./a/f\n/opt/a\n", ""}},
		{"restarts services", "systemctl restart -- nginx.service && systemctl is-active nginx", "",
			result{0, "active\n", ""}},
		{"does not know unknown services", "systemctl restart nope", "",
			result{5, "", "Failed to restart nope.service: Unit nope.service not found.\n"}},
	} {
		got := ask(t, c, tt.text, tt.in)
		if strings.HasPrefix(tt.claim, "stats") {
			got.stdout = strings.Replace(
				got.stdout,
				"directory "+strings.Fields(got.stdout)[5],
				"directory 4096",
				1,
			)
		}
		if strings.Contains(got.stderr, tt.want.stderr) &&
			strings.HasPrefix(tt.claim, "refuses a syntax error") {
			got.stderr = tt.want.stderr // each bash has its own words
		}
		if got != tt.want {
			t.Errorf("%s: %s\n want %+v\n  got %+v", tt.claim, tt.text, tt.want, got)
		}
	}
}

func TestTheEnvironmentOfASessionReachesAContainerUnlessToldNotTo(t *testing.T) {
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	for text, want := range map[string]string{
		`pct exec 105 -- sh -c 'echo "[$SECRET_ON_HOST]"'`:              "[s3]\n",
		`pct exec 105 --keep-env 0 -- sh -c 'echo "[$SECRET_ON_HOST]"'`: "[]\n",
	} {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Setenv("SECRET_ON_HOST", "s3"); err != nil {
			t.Fatal(err)
		}
		if out, err := s.Output(text); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", text, out, err, want)
		}
		s.Close()
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestACommandInAContainerOutlivesItsChannelAndItsSignals(t *testing.T) {
	l := startLab(t, Options{})
	for _, tt := range []struct {
		claim string
		end   func(*ssh.Client, *ssh.Session) error
	}{
		{"channel closed", func(_ *ssh.Client, s *ssh.Session) error { return s.Close() }},
		{"connection closed", func(c *ssh.Client, _ *ssh.Session) error { return c.Close() }},
		{"signal TERM", func(_ *ssh.Client, s *ssh.Session) error { return s.Signal(ssh.SIGTERM) }},
		{"signal KILL", func(_ *ssh.Client, s *ssh.Session) error { return s.Signal(ssh.SIGKILL) }},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			c := dial(t, l, l.Addr)
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Start("pct exec 105 -- sleep 300"); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the command's start", func() bool { return len(l.Running(105)) == 1 })
			if err := tt.end(c, s); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if strings.HasPrefix(tt.claim, "signal") {
				eof := make(chan struct{})
				go func() { io.Copy(io.Discard, out); close(eof) }()
				select {
				case <-eof:
					t.Error("the channel's output ended though the command goes on")
				case <-time.After(50 * time.Millisecond):
				}
			}
			if n := len(l.Running(105)); n != 1 {
				t.Errorf("%d commands run in the container, want 1", n)
			}
			for _, p := range l.processes("ct/105") {
				p.signal(sigKILL)
			}
			waitFor(t, "the command's end", func() bool { return len(l.Running(105)) == 0 })
		})
	}
}

func TestTimeoutOnTheNodeEndsACommandInAContainerUnlessItIgnoresTERM(t *testing.T) {
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	if got := ask(t, c, "timeout 0.2 pct exec 105 -- sleep 300", ""); got.exit != 124 {
		t.Errorf("plain command: %+v", got)
	}
	waitFor(t, "the plain command's end", func() bool { return len(l.Running(105)) == 0 })
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(
		`timeout 3 pct exec 105 -- sh -c "trap '' TERM; echo up; sleep 300"`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("up\n"))); err != nil {
		t.Fatalf("the command does not ignore SIGTERM in time: %v", err)
	}
	waitFor(t, "the end of pct, which the signal ends too", func() bool {
		return !slices.ContainsFunc(l.processes(l.nodeTree("pve1").key), func(p *process) bool {
			return p.argv[0] == "pct"
		})
	})
	time.Sleep(400 * time.Millisecond)
	if got := l.Running(105); len(got) != 1 {
		t.Errorf("the command that ignores SIGTERM: %q, want it to go on", got)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	for _, text := range []string{"pct exec 105 -- sleep 300", "sleep 300", "cat",
		"pct exec 105 -- cat", "tail -f /etc/hostname", "while true; do echo x; done",
		"cat /dev/zero"} {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(text); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the start of both commands", func() bool { return len(l.Running(105)) == 2 })
	done := make(chan struct{})
	go func() { l.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("Close still waits after 30 s")
	}
	c.Close()
}

func TestEffectsHoldWhatReachedANode(t *testing.T) {
	file := t.TempDir() + "/effects"
	l := startLab(t, Options{Effects: file})
	c := dial(t, l, l.Addr)
	if e := l.Effects(); len(e) != 0 {
		t.Fatalf("effects of a connection alone: %+v", e)
	}
	ask(t, c, `pct exec 105 -- sh -c "echo 'a b'" && X=1 true; hostname | cat`, "")
	ask(t, c, "X=1", "")
	ask(t, c, "pvesh get /nodes/pve2/lxc --output-format json", "")
	var got []string
	for _, e := range l.Effects() {
		got = append(got, fmt.Sprintf("%s %s%q", e.Node, e.Via, e.Argv))
	}
	slicesSort(got[2:4]) // the two sides of a pipe begin together
	want := []string{
		`pve1 ["pct" "exec" "105" "--" "sh" "-c" "echo 'a b'"]`,
		`pve1 ["true"]`,
		`pve1 ["cat"]`,
		`pve1 ["hostname"]`,
		`pve1 []`,
		`pve1 ["pvesh" "get" "/nodes/pve2/lxc" "--output-format" "json"]`,
		`pve2 pve1["pvesh" "--noproxy" "get" "/nodes/pve2/lxc" "--output-format" "json"]`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("effects:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n != len(want) {
		t.Errorf("the effects file has %d lines, want %d", n, len(want))
	}
}

func slicesSort(s []string) {
	if len(s) == 2 && s[0] > s[1] {
		s[0], s[1] = s[1], s[0]
	}
}

func TestSFTPMovesFilesInTheNodesTree(t *testing.T) {
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	f, err := sftp.NewClient(c, sftp.UseConcurrentWrites(true))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	w, err := f.OpenFile("/tmp/.part", os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReadFrom(bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Chmod(0o640), w.Close(),
		f.PosixRename("/tmp/.part", "/tmp/file")); err != nil {
		t.Fatal(err)
	}
	if fi, err := f.Stat("/tmp/file"); err != nil || fi.Size() != int64(len(body)) ||
		fi.Mode().Perm() != 0o640 {
		t.Errorf("stat: %+v, %v", fi, err)
	}
	sum := fmt.Sprintf("%x  /tmp/file\n", sha256.Sum256(body))
	if got := ask(t, c, "sha256sum -- /tmp/file", ""); got.stdout != sum {
		t.Errorf("sha256sum: %+v, want %s", got, sum)
	}
	if _, err := f.OpenFile("/tmp/file", os.O_WRONLY|os.O_CREATE|os.O_EXCL); err == nil {
		t.Error("an exclusive open of an existing file succeeded")
	}
	if _, err := f.Stat("/nope"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of a missing file: %v", err)
	}
	if p, err := f.RealPath("."); err != nil || p != "/root" {
		t.Errorf("real path of .: %q, %v", p, err)
	}
	if err := f.Remove("/tmp/file"); err != nil {
		t.Error(err)
	}
	var wrote int64
	for _, e := range l.Effects() {
		if e.Kind == "sftp" && e.Op == "write" {
			wrote += e.Bytes
		}
	}
	if wrote != int64(len(body)) {
		t.Errorf("the effects count %d written bytes, want %d", wrote, len(body))
	}
}

func TestAConnectionWithoutTheKeyIsRefused(t *testing.T) {
	l := startLab(t, Options{})
	other, err := key(t.TempDir()+"/k", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = ssh.Dial(
		"tcp",
		l.Addr,
		&ssh.ClientConfig{
			User:            "root",
			Auth:            []ssh.AuthMethod{ssh.PublicKeys(other)},
			HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		},
	)
	if err == nil || !strings.Contains(err.Error(), "unable to authenticate") {
		t.Errorf("dial with another key: %v", err)
	}
}

func TestAnEleventhSessionOfAConnectionIsRefused(t *testing.T) {
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	for range maxSessions {
		if _, err := c.NewSession(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.NewSession(); err == nil || !strings.Contains(err.Error(), "open failed") {
		t.Errorf("the eleventh session: %v", err)
	}
}

func TestFaults(t *testing.T) {
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	check := func(claim, text string, want result) {
		t.Helper()
		if got := ask(t, c, text, ""); got != want {
			t.Errorf("%s: %s\n want %+v\n  got %+v", claim, text, want, got)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.FillDisk(105, "/root", 3))
	check(
		"a full disk is an error inside",
		"pct exec 105 -- sh -c 'dd if=/dev/zero of=/root/x bs=10 count=1 2>&1; wc -c /root/x'",
		result{0, "dd: error writing '/root/x': No space left on device\n3 /root/x\n", ""},
	)
	must(l.FillDisk(105, "/root", 3))
	check(
		"and silent for push",
		"pct push 105 /etc/hosts /root/y; pct exec 105 -- wc -c /root/y",
		result{0, "3 /root/y\n", ""},
	)
	must(l.Lock(105, "snapshot"))
	check(
		"a locked guest does not stop",
		"pct stop 105",
		result{255, "", "CT is locked (snapshot)\n"},
	)
	must(l.Lock(105, ""))
	must(l.Stubborn(105, true))
	check(
		"a stubborn guest does not shut down",
		"pct shutdown 105 --timeout 1",
		result{
			255,
			"command 'lxc-stop -n 105 --nokill --timeout 1' failed: exit code 1\n",
			"container did not stop\n",
		},
	)
	release, err := l.HoldConfigLock(105)
	must(err)
	check(
		"a held lock times out",
		"pct stop 105",
		result{
			255,
			"trying to acquire lock...\n",
			"can't lock file '/run/lock/lxc/pve-config-105.lock' - got timeout\n",
		},
	)
	release()
	must(l.SetHA(105, true))
	check(
		"under HA a stop is a request",
		"pct stop 105; pct status 105",
		result{0, "Requesting HA stop for CT 105\nstatus: running\n", ""},
	)
	waitFor(
		t,
		"the stop that was requested",
		func() bool { return ask(t, c, "pct status 105", "").stdout == "status: stopped\n" },
	)
	must(l.LoseQuorum(true))
	check(
		"no quorum: starting fails",
		"pct start 104",
		result{255, "", "cluster not ready - no quorum?\n"},
	)
	check("no quorum: reading works", "pct status 104", result{0, "status: stopped\n", ""})
	check("no quorum: pvecm says so", "pvecm status >/dev/null", result{2, "", ""})
	must(l.LoseQuorum(false))
	must(l.SetDown("pve2", true))
	check(
		"a node that is down cannot be asked",
		"pvesh get /nodes/pve2/lxc --output-format json",
		result{
			255,
			"",
			"proxy handler failed: ssh: connect to host 10.99.0.2 port 22: No route to host\n",
		},
	)
	check(
		"its guests are unknown",
		"pvesh get /cluster/resources --type vm --output-format json | grep -o "+
			"'lxc/110\",\"node\":\"pve2\",\"status\":\"[a-z]*'",
		result{0, "lxc/110\",\"node\":\"pve2\",\"status\":\"unknown\n", ""},
	)
	if nc, err := net.Dial("tcp", l.Nodes["pve2"]); err == nil {
		nc.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a node that is down answered: %d bytes, %v", n, err)
		}
		nc.Close()
	}
	check(
		"it can be woken",
		"pvenode wakeonlan pve2",
		result{0, "Wake on LAN packet send for 'AA:BB:CC:DD:EE:FF'\n", ""},
	)
	if got := ask(t, dial(t, l, l.Nodes["pve2"]), "hostname", ""); got.stdout != "pve2\n" {
		t.Errorf("after waking: %+v", got)
	}
	l.SetLatency(100 * time.Millisecond)
	begin := time.Now()
	ask(t, c, "pct status 101", "")
	if d := time.Since(begin); d < 100*time.Millisecond {
		t.Errorf("with a latency of 100 ms a command took %v", d)
	}
}

func TestManyProcessesShareOneState(t *testing.T) {
	dir := t.TempDir()
	first := newLab(t, Options{State: dir})
	second, err := open(context.Background(), Options{State: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	var wg sync.WaitGroup
	const n = 20
	for i := range n {
		for j, l := range []*Lab{first, second} {
			wg.Go(func() {
				if r := l.try([]string{"pct", "snapshot", "104", fmt.Sprintf("s%d-%d", i, j)},
					""); r.exit != 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
	wg.Wait()
	_ = first.db.view(func(s *State) {
		if got := len(s.guest(104).Snapshots); got != 2*n {
			t.Errorf("%d snapshots, want %d: an update was lost", got, 2*n)
		}
		seen := map[string]bool{}
		for _, task := range s.Tasks {
			if seen[task.UPID] {
				t.Errorf("UPID %s twice", task.UPID)
			}
			seen[task.UPID] = true
		}
	})
}

func TestListsComeInAnyOrder(t *testing.T) {
	l := newLab(t, Options{})
	seen := map[string]bool{}
	for range 40 {
		seen[l.try([]string{"pvesh", "get", "/cluster/resources", "--type", "vm", "--output-format",
			"json"}, "").stdout] = true
	}
	if len(seen) < 2 {
		t.Error("40 lists came in the same order")
	}
}

func BenchmarkCommand(b *testing.B) {
	l, err := Start(b.Context(), Options{State: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	pem, err := os.ReadFile(l.Identity)
	if err != nil {
		b.Fatal(err)
	}
	k, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		b.Fatal(err)
	}
	c, err := ssh.Dial(
		"tcp",
		l.Addr,
		&ssh.ClientConfig{
			User:            "root",
			Auth:            []ssh.AuthMethod{ssh.PublicKeys(k)},
			HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		},
	)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for _, text := range []string{"true", "pct status 105", "pct exec 105 -- true",
		"pvesh get /cluster/resources --type vm --output-format json"} {
		b.Run(strings.ReplaceAll(text, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				s, err := c.NewSession()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Output(text); err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

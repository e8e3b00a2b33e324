package sshtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
	"golang.org/x/crypto/ssh"
)

// OpenSSH is a real sshd on the loopback, with its own keys and configuration. It logs in the user
// who runs the test.
type OpenSSH struct {
	Addr       string
	User       string
	ClientFile string // private key that it accepts
	Dir        string // of its files

	t       testing.TB
	sshd    []string
	hostKey ssh.PublicKey
	client  ssh.PublicKey
	cmd     *exec.Cmd
	log     *os.File
}

// StartOpenSSH starts sshd with lines added to its configuration. Without an installed sshd the
// test is skipped, but fails where CI=true.
func StartOpenSSH(t testing.TB, lines ...string) *OpenSSH {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return StartOpenSSHFor(t, me.Username, nil, lines...)
}

// StartOpenSSHFor is StartOpenSSH for another user. wrap comes before sshd's own command line, such
// as the words of unshare(1).
func StartOpenSSHFor(t testing.TB, login string, wrap []string, lines ...string) *OpenSSH {
	t.Helper()
	const sshd = "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		Missing(t, "openssh-server")
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // privilege separation needs it
			t.Fatal(err)
		}
	}
	// not t.TempDir: sshd expands % in paths, and test names may hold it
	dir, err := os.MkdirTemp("", "sshtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &OpenSSH{
		t:    t,
		sshd: append(wrap[:len(wrap):len(wrap)], sshd, "-D", "-e", "-f"),
		User: login,
		Dir:  dir,
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the other user reads authorized_keys
		t.Fatal(err)
	}
	o.ClientFile, o.client = NewKeyFile(t)
	keys := ssh.MarshalAuthorizedKey(o.client)
	if err := os.WriteFile(o.file("authorized_keys"), keys, 0o644); err != nil {
		t.Fatal(err)
	}
	o.configure(lines)
	if o.log, err = os.Create(o.file("log")); err != nil {
		t.Fatal(err)
	}
	o.Start()
	t.Cleanup(func() {
		o.Kill()
		o.log.Close()
		if t.Failed() {
			log, _ := os.ReadFile(o.file("log"))
			t.Logf("sshd: %s", bytes.TrimSpace(log[max(0, len(log)-2000):]))
		}
	})
	return o
}

// configure picks a free port and writes the host key and the configuration.
func (o *OpenSSH) configure(lines []string) {
	o.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	o.Addr = l.Addr().String()
	l.Close()
	_, port := HostPort(o.Addr)
	o.NewHostKey()
	// SHLVL keeps bash from reading the user's own ~/.bashrc, which would be measured too.
	config := fmt.Sprintf("ListenAddress 127.0.0.1\nPort %d\nHostKey %s\nPidFile none\n"+
		"AuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"+
		"PasswordAuthentication no\nUseDNS no\nPrintMotd no\nAllowTcpForwarding yes\n"+
		"Subsystem sftp internal-sftp\nSetEnv SHLVL=3\nMaxStartups 100\nLogLevel VERBOSE\n",
		port, o.file("host"), o.file("authorized_keys"))
	// sshd takes the first value of a keyword, so what the test asks for goes first.
	config = strings.Join(lines, "\n") + "\n" + config
	if err := os.WriteFile(o.file("config"), []byte(config), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// Missing skips a test for want of a program, or fails it where CI=true: there every program is
// installed.
func Missing(t testing.TB, program string) {
	t.Helper()
	needs.Skip(t, program+" is not installed")
}

func (o *OpenSSH) file(name string) string { return filepath.Join(o.Dir, name) }

// NewHostKey gives the server another key at its next start.
func (o *OpenSSH) NewHostKey() {
	o.t.Helper()
	file, pub := NewKeyFile(o.t)
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(o.file("host"), data, 0o600)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	o.hostKey = pub
}

// Pin is the fingerprint of the host key.
func (o *OpenSSH) Pin() string { return ssh.FingerprintSHA256(o.hostKey) }

// HostKey is the key that the server proves.
func (o *OpenSSH) HostKey() ssh.PublicKey { return o.hostKey }

// HostPort splits Addr.
func (o *OpenSSH) HostPort() (string, int) { return HostPort(o.Addr) }

// Start starts the server and waits until it listens.
func (o *OpenSSH) Start() {
	o.t.Helper()
	o.cmd = exec.Command(o.sshd[0], append(o.sshd[1:len(o.sshd):len(o.sshd)], o.file("config"))...)
	o.cmd.Stderr = o.log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := o.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", o.Addr); err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(o.file("log"))
			o.t.Fatalf("sshd does not listen: %s", log)
		}
	}
}

// Kill ends the server, its sessions and what runs in them.
func (o *OpenSSH) Kill() {
	if o.cmd == nil {
		return
	}
	// sessions leave the process group, so that they are found by their parents
	family := descendants(o.cmd.Process.Pid)
	syscall.Kill(-o.cmd.Process.Pid, syscall.SIGKILL)
	for _, pid := range family {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	o.cmd.Wait()
	o.cmd = nil
}

func descendants(pid int) (all []int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range strings.Fields(string(data)) {
		if child, err := strconv.Atoi(f); err == nil {
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

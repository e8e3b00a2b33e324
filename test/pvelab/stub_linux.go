package pvelab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stub passes its arguments, its environment and its three files to the lab, and ends as the lab
// says.
func stub() int {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 126
	}
	fds := []int{pair[1]}
	for fd := range 3 {
		if _, err := fdFlags(fd); err != nil {
			_, _ = syscall.Open("/dev/null", syscall.O_RDWR, 0) // the lowest free one
		}
		fds = append(fds, fd)
	}
	err = syscall.Sendmsg(controlFD, []byte{0}, syscall.UnixRights(fds...), nil, 0)
	if err != nil {
		fmt.Fprintf(os.Stderr, "pvelab: %s: the lab is gone: %v\n", os.Args[0], err)
		return 126
	}
	syscall.Close(pair[1])
	lab := os.NewFile(uintptr(pair[0]), "lab")
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	c := stubCall{Argv: os.Args, Env: os.Environ(), Dir: dir}
	c.Argv[0] = strings.TrimPrefix(c.Argv[0], inside+"/bin/")
	var code int
	if json.NewEncoder(lab).Encode(c) != nil || json.NewDecoder(lab).Decode(&code) != nil {
		return 128 + sigKILL
	}
	if code >= selfKill {
		_ = syscall.Kill(os.Getppid(), syscall.Signal(code-selfKill))
		time.Sleep(50 * time.Millisecond)
	}
	return code & 0xff
}

func fdFlags(fd int) (uintptr, error) {
	flags, _, no := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	if no != 0 {
		return 0, no
	}
	return flags, nil
}

// A running is a shell that was started.
type running struct {
	cmd     *exec.Cmd
	orders  *os.File
	control *net.UnixConn
	mu      sync.Mutex // guards writing orders
}

// start starts the first process, which runs the shell.
func (j *jail) start(in *os.File, out, errw io.Writer) (*running, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC,
		0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "lab"), os.NewFile(uintptr(pair[1]), "shell")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		c.Close()
		return nil, err
	}
	defer pr.Close()
	r := &running{orders: pw, control: c.(*net.UnixConn)}
	r.cmd = &exec.Cmd{Path: self, Args: []string{sandboxName}, Env: []string{}, Dir: "/",
		Stdout: out, Stderr: errw, ExtraFiles: []*os.File{theirs, pr},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
				syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		}}
	if in != nil {
		r.cmd.Stdin = in
	}
	if err := r.cmd.Start(); err != nil {
		c.Close()
		pw.Close()
		return nil, err
	}
	if err := r.order(j); err != nil {
		r.kill()
	}
	return r, nil
}

// order tells the first process what to run, or a signal's number.
func (r *running) order(v any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.NewEncoder(r.orders).Encode(v)
}

func (r *running) kill() { _ = r.cmd.Process.Kill() }

// wait answers the shell's exit code once it and all that it left have ended.
func (r *running) wait() int {
	_ = r.cmd.Wait()
	r.orders.Close()
	r.control.Close()
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return r.cmd.ProcessState.ExitCode()
}

// next waits for a stub: its files, and the connection on which it says what it is.
func (r *running) next() (conn *os.File, files [3]*os.File, err error) {
	oob := make([]byte, syscall.CmsgSpace(4*4))
	n, oobn, _, _, err := r.control.ReadMsgUnix(make([]byte, 16), oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, files, err
	}
	var fds []int
	msgs, err := syscall.ParseSocketControlMessage(oob[:oobn])
	for _, m := range msgs {
		got, _ := syscall.ParseUnixRights(&m)
		fds = append(fds, got...)
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	if err != nil || len(fds) != 4 {
		for _, fd := range fds {
			syscall.Close(fd)
		}
		return nil, files, nil // written by the text itself
	}
	_ = syscall.SetNonblock(fds[0], true)
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		files[i] = os.NewFile(uintptr(fds[i+1]), name)
	}
	if fi, err := files[0].Stat(); err == nil && fi.Mode()&os.ModeNamedPipe != 0 {
		// a handle of its own can be given a deadline, without a change of what the shell holds
		own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fds[1]),
			os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			files[0].Close()
			files[0] = own
		}
	}
	return os.NewFile(uintptr(fds[0]), "stub"), files, nil
}

// shellsWork reports whether this machine lets the lab run shells.
var shellsWork = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "pvelab")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, d := range append([]string{"/dev"}, shellDirs...) {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	var why strings.Builder
	r, err := (&jail{Root: dir}).start(nil, io.Discard, &why)
	if err != nil {
		return err
	}
	if r.wait() != 0 {
		return errors.New(strings.TrimSpace(why.String()))
	}
	return nil
})

// openFiles names the files that a stub holds beside its three, by descriptor.
func openFiles(stub *os.File, root string) map[string]string {
	out := map[string]string{}
	if stub == nil {
		return out
	}
	raw, err := stub.SyscallConn()
	pid := 0
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			if c, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET,
				syscall.SO_PEERCRED); err == nil {
				pid = int(c.Pid)
			}
		})
	}
	for fd := 3; fd <= 9; fd++ {
		n := strconv.Itoa(fd)
		to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + n)
		if rest, ok := strings.CutPrefix(to, root+"/"); err == nil && ok {
			out[n] = "/" + rest
		}
	}
	return out
}

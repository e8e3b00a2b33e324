package pvelab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A real shell runs in namespaces of its own: it is root of nothing but one file tree of the lab,
// it has no network, and every program that it starts is the stub, which asks the lab to do the
// work. This file is what runs inside: the first process, and the stub.

const (
	sandboxName = "pvelab:sandbox" // argv[0] of the first process
	inside      = "/dev/pvelab"    // its own directory, below the tree's root
	stubFile    = inside + "/stub"
	controlFD   = 199 // how a stub reaches the lab
	brokenCode  = 253 // exit code of a first process that could not set itself up
)

// jail is what the first process is told.
type jail struct {
	Root, Dir, Host string
	Shell           string // the machine's file
	Libraries       bool   // the shell is linked with the machine's libraries
	RC              string // text of inside/rc
	Argv, Env       []string
	Names           []string // of the programs that there are
}

// stubCall is what a stub asks for.
type stubCall struct {
	Argv, Env []string
	Dir       string
}

func init() {
	if os.Args[0] == sandboxName {
		os.Exit(firstProcess())
	}
	if _, err := os.Lstat(stubFile); err == nil {
		os.Exit(stub())
	}
}

// firstProcess sets the tree up, runs the shell and waits for it and for all that it left.
func firstProcess() int {
	orders := os.NewFile(4, "orders")
	dec := json.NewDecoder(orders)
	var j jail
	err := dec.Decode(&j)
	if err == nil {
		err = j.enter()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pvelab: setting up a shell: %v\n", err)
		return brokenCode
	}
	if len(j.Argv) == 0 {
		return 0 // only tried out
	}
	files := make([]*os.File, controlFD+1)
	files[0], files[1], files[2] = os.Stdin, os.Stdout, os.Stderr
	files[controlFD] = os.NewFile(3, "control")
	child, err := os.StartProcess(inside+"/sh", j.Argv,
		&os.ProcAttr{Dir: j.Dir, Env: j.Env, Files: files})
	if errors.Is(err, syscall.E2BIG) {
		fmt.Fprintf(os.Stderr, "%s: Argument list too long\n", j.Argv[0])
		return 126
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "pvelab: starting the shell: %v\n", err)
		return brokenCode
	}
	files[controlFD].Close()
	go func() { // signals as numbers; the end of the lab ends everything
		for {
			var num int
			if dec.Decode(&num) != nil {
				os.Exit(128 + sigKILL)
			}
			if handles(child.Pid, num) {
				_ = syscall.Kill(child.Pid, syscall.Signal(num))
				continue
			}
			os.Exit(128 + num)
		}
	}()
	code := 0
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return code
		case pid == child.Pid && ws.Signaled():
			code = 128 + int(ws.Signal())
		case pid == child.Pid:
			code = ws.ExitStatus()
		}
	}
}

// handles reports whether a process ignores or catches a signal.
func handles(pid, num int) bool {
	b, err := os.ReadFile(fmt.Sprintf("%s/proc/%d/status", inside, pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		name, mask, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "SigIgn" && name != "SigCgt" {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err == nil && bits>>(num-1)&1 == 1 {
			return true
		}
	}
	return false
}

// enter makes the tree the root directory. What it mounts is seen in this namespace only.
func (j *jail) enter() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(j.Root, name) }
	mount := func(from, to, kind string, flags uintptr) {
		if err == nil {
			if err = syscall.Mount(from, to, kind, flags, ""); err != nil {
				err = fmt.Errorf("mounting %s: %w", to, err)
			}
		}
	}
	bind := func(from, to string) {
		if err == nil {
			err = os.WriteFile(to, nil, 0o755)
		}
		mount(from, to, "", syscall.MS_BIND)
	}
	mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE)
	mount("pvelab", at("/dev"), "tmpfs", 0)
	if err == nil {
		err = os.MkdirAll(at(inside+"/bin"), 0o755)
	}
	for _, d := range []string{"null", "zero", "urandom", "full"} {
		bind("/dev/"+d, at("/dev/"+d))
	}
	bind(self, at(stubFile))
	if j.Libraries {
		for _, d := range []string{"/lib", "/lib64", "/usr/lib"} {
			if real, e := filepath.EvalSymlinks(d); e == nil {
				mount(real, at(d), "", syscall.MS_BIND|syscall.MS_REC)
			}
		}
	}
	if j.Shell != "" {
		bind(j.Shell, at(inside+"/sh"))
	}
	if err == nil {
		err = os.WriteFile(at(inside+"/rc"), []byte(j.RC), 0o644)
	}
	for _, name := range j.Names {
		if err == nil {
			err = os.Symlink(stubFile, at(inside+"/bin/"+name))
		}
	}
	for _, d := range shellDirs {
		mount(at(inside+"/bin"), at(d), "", syscall.MS_BIND)
	}
	if err == nil && os.Mkdir(at(inside+"/proc"), 0o755) == nil &&
		syscall.Mount("proc", at(inside+"/proc"), "proc", 0, "") == nil {
		for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1",
			"stderr": "/2"} {
			_ = os.Symlink(inside+"/proc/self/fd"+to, at("/dev/"+name))
		}
	}
	if err == nil {
		err = syscall.Chroot(j.Root)
	}
	_ = syscall.Sethostname([]byte(j.Host))
	return err
}

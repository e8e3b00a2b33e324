package test

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A clock is the source of the time of day for processes of the host, so that a test can set it.
// The host has no hook for this. The program is built with another package time, which adds the
// number of seconds in a mapped file. A preloaded library would have no effect (Go asks the kernel
// directly), and Linux has no namespace for the time of day.
type clock struct{ file string }

const stepped = `package time

import (
	"sync"
	"syscall"
	"unsafe"
)

var steppedBy = sync.OnceValue(func() *int64 {
	name, _ := syscall.Getenv("CLOCK_STEP_FILE")
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("CLOCK_STEP_FILE: " + err.Error())
	}
	defer syscall.Close(fd)
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("CLOCK_STEP_FILE: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&page[0]))
})
`

// newClock builds the host with such a clock, and returns its path. It compiles everything again,
// including the standard library, which takes minutes.
func newClock(t *testing.T) (c *clock, host string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	dir := filepath.Join(strings.TrimSpace(string(out)), "src/time")
	source, err := os.ReadFile(filepath.Join(dir, "time.go"))
	must(t, err)
	const asks = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), asks) != 1 {
		t.Fatal("package time of this Go reads the clock in another way: change this test")
	}
	changed := strings.Replace(string(source), asks, asks+"\tsec += *steppedBy()\n", 1)
	tmp := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(tmp, name)
		must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(dir, "time.go"):    file("time.go", changed),
		filepath.Join(dir, "stepped.go"): file("stepped.go", stepped)}})
	must(t, err)
	host = filepath.Join(tmp, "caponier")
	build := exec.Command("go", "build", "-overlay", file("overlay.json", string(overlay)), "-o",
		host,
		"../host/cmd/caponier")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c = &clock{file: file("step", strings.Repeat("\x00", 8))}
	t.Setenv("CLOCK_STEP_FILE", c.file)
	return c, host
}

// step sets the clock of all hosts, relative to the true time.
func (c *clock) step(t *testing.T, by time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(by/time.Second))), 0)
	must(t, err)
}

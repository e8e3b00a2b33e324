package remote

import (
	"context"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// local runs a command with the shell of this machine.
func local(ctx context.Context, command string, stdout io.Writer) int {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.Stdout = stdout
	if c.Run() != nil {
		return 1
	}
	return 0
}

// watchMemory returns a function that ends the watch and says by how much the memory in use has
// grown at most.
func watchMemory(t testing.TB) func() int64 {
	t.Helper()
	percent := debug.SetGCPercent(100) // whatever GOGC says
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	use := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	runtime.GC()
	start, most := use(), int64(0)
	done := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				most = max(most, use()-start)
			}
		}
	})
	return func() int64 {
		close(done)
		w.Wait()
		return most
	}
}

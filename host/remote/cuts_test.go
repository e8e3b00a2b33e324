package remote

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// calls is how many calls the tests under random cuts make: CAPONIER_SOAK, or 500.
func calls(t *testing.T) int {
	if v := os.Getenv("CAPONIER_SOAK"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 500
}

// TestUnderRandomCutsNothingIsDoneTwiceOrLostInSilence is the property of the whole package: what
// is reported as succeeded was done once, what is reported as failed was not done, and only what is
// reported as unknown may be either.
func TestUnderRandomCutsNothingIsDoneTwiceOrLostInSilence(t *testing.T) {
	leakless(t)
	total := calls(t)
	dir := t.TempDir()
	_, o := openSSH(t)
	host := o.Nodes[0]
	p := sshtest.NewProxy(t, host.Addr())
	o.Nodes[0].Host, o.Nodes[0].Port = sshtest.HostPort(p.Addr)
	o.StepTimeout, o.StallTimeout, o.DialTimeout = 2*time.Second, 2*time.Second, 5*time.Second
	r := start(t, o)

	// The network is cut again and again, each time after some calls have succeeded, so that a slow
	// machine gets on, too.
	done, good := make(chan struct{}), make(chan struct{}, total)
	var cutter sync.WaitGroup
	cuts := 0
	cutter.Go(func() {
		for left := rand.IntN(30); ; {
			select {
			case <-done:
				return
			case <-good:
			}
			if left--; left > 0 {
				continue
			}
			left = rand.IntN(30)
			cuts++
			if rand.IntN(2) == 0 {
				p.Reset()
			} else {
				p.Set(sshtest.Weather{CutAfter: 1 + rand.Int64N(40_000)})
				time.Sleep(50 * time.Millisecond)
				p.Set(sshtest.Weather{})
			}
		}
	})
	outcomes := make([]terms.Outcome, total)
	next := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = terms.Succeeded
				var err error
				if i%2 == 0 {
					_, err = execute(
						t.Context(),
						r,
						"sh",
						"-c",
						fmt.Sprintf("echo call-%d >> %s/log", i, dir),
					)
				} else {
					_, err = do(t.Context(), r,
						abi.SFTPWrite{OnNode: on("n1"), Path: fmt.Sprintf("%s/file-%d", dir, i),
							Data: abi.Data{Text: fmt.Sprint("call-", i)}}, yellow)
				}
				if op := (*terms.OpError)(nil); errors.As(err, &op) {
					outcomes[i] = op.Outcome
					if op.Outcome == terms.Failed {
						// an agent thinks for a moment, too
						time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					}
				} else if err != nil {
					t.Errorf("call %d: %v is no *terms.OpError", i, err)
				} else {
					good <- struct{}{}
				}
			}
		})
	}
	for i := range total {
		next <- i
	}
	close(next)
	workers.Wait()
	close(done)
	cutter.Wait()
	p.Set(sshtest.Weather{})
	time.Sleep(300 * time.Millisecond) // commands of cut sessions end

	log, _ := os.ReadFile(dir + "/log")
	ran := map[string]int{}
	for line := range strings.Lines(string(log)) {
		ran[strings.TrimSpace(line)]++
	}
	count := map[terms.Outcome]int{}
	for i, outcome := range outcomes {
		count[outcome]++
		id := fmt.Sprint("call-", i)
		times := ran[id]
		if i%2 == 1 {
			if data, err := os.ReadFile(fmt.Sprintf("%s/file-%d", dir, i)); err == nil {
				times = 1
				if string(data) != id {
					t.Errorf("%s wrote %q", id, data)
				}
			}
		}
		switch {
		case times > 1:
			t.Errorf("%s was done %d times", id, times)
		case outcome == terms.Succeeded && times == 0:
			t.Errorf("%s was reported as done and was not", id)
		case outcome == terms.Failed && times == 1:
			t.Errorf("%s was reported as not done and was", id)
		}
	}
	t.Logf("%d calls, %d cuts: %v", total, cuts, count)
	if count[terms.Succeeded] < total/8 || cuts < total/200 || count[terms.Succeeded] == total {
		t.Errorf("this proves little: %d cuts, %v", cuts, count)
	}
	// What could not be removed while the network was down can be removed once it is up.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		abandoned, _ := r.Leftovers(t.Context())
		for _, at := range abandoned {
			discard(t, r, at.Node, at.Dir)
		}
		left, _ := filepath.Glob(dir + "/" + files.PartialPrefix + "*")
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %v", left)
		}
	}
}

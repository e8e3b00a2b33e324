package test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// upload sends a file into a guest again and again. What a killed host leaves of it on the node is
// for the next one to remove.
func (c *chaos) upload(ctx context.Context, t *testing.T) {
	c.mkdir(t, "lab/workspace/demo", 0o700)
	c.site.write(t, "lab/workspace/demo/a", "text\n")
	for n := 0; ctx.Err() == nil; n++ {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "uploader", Version: "1"},
			nil).Connect(
			ctx, &mcp.StreamableClientTransport{MaxRetries: -1, HTTPClient: &http.Client{},
				Endpoint: fmt.Sprintf("http://127.0.0.1:%d/mcp", c.port)}, nil)
		for err == nil && ctx.Err() == nil {
			_, err = session.CallTool(ctx, &mcp.CallToolParams{
				Name: "proxmox_upload_file_to_container", Arguments: map[string]any{"vmid": 101,
					"local_path": "a", "container_path": fmt.Sprintf("/root/upload-%d", n)}})
		}
		if session != nil {
			session.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// swept holds that the next host removes every stage and partial file, however those before it
// ended.
func (c *chaos) swept(t *testing.T, journal []string) {
	var left []string
	gone := func() bool {
		left = left[:0]
		for _, in := range []string{"lab/nodes", "lab/workspace"} {
			err := filepath.WalkDir(filepath.Join(c.dir, in),
				func(path string, _ fs.DirEntry, err error) error {
					if temporary.MatchString(filepath.Base(path)) {
						left = append(left, path)
					}
					return ignoreGone(err)
				})
			must(t, err)
		}
		return len(left) == 0
	}
	gone()
	t.Logf("when all hosts have ended: %q", left)
	c.serveHTTP(t)
	for end := time.Now().Add(30 * time.Second); !gone() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if len(left) == 0 {
		return
	}
	t.Errorf("30 s after the next host began: %q", left)
	name := filepath.Base(left[0])
	files, _ := filepath.Glob(filepath.Join(c.dir, "state/journal/*.jsonl"))
	for _, f := range slices.Compact(slices.Sorted(slices.Values(append(files, journal...)))) {
		data, _ := os.ReadFile(f) // may have been moved
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, name) {
				t.Logf("%s: %s", filepath.Base(f), line)
			}
		}
	}
}

// temporary matches what the host makes on nodes and in the workspace for a time.
var temporary = regexp.MustCompile(`^(caponier-|\.caponier-partial-)[0-9a-f]{32}$`)

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// stepClock sets the clock of all hosts forward or back, and at times right.
func (c *chaos) stepClock(t *testing.T) {
	steps := []time.Duration{0, 30 * time.Second, -30 * time.Second, time.Hour, -time.Hour,
		26 * time.Hour, -26 * time.Hour}
	c.clock.step(t, steps[rand.IntN(len(steps))])
}

// wasStepped holds that the journal has records of other hours than those of this test.
func (c *chaos) wasStepped(t *testing.T, journal []string) {
	if c.count["clock step"] < 10 {
		return // it may have been right for most of the time
	}
	stamp := regexp.MustCompile(`"time":"([^"]+)"`)
	other := 0
	for _, f := range journal {
		data, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue // was moved back
		}
		must(t, err)
		for _, m := range stamp.FindAllSubmatch(data, -1) {
			at, err := time.Parse(time.RFC3339Nano, string(m[1]))
			must(t, err)
			if time.Since(at).Abs() > 30*time.Hour {
				t.Errorf("a record of %s", at)
			} else if time.Since(at) < -30*time.Minute {
				other++
			}
		}
	}
	t.Logf("%d records were written while the clock was fast", other)
	if other == 0 {
		t.Error("the clock was never stepped")
	}
}

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkStart starts the real binary with the shipped plugins over and over, and asks for the
// list of tools at once: how long after the start of the process it comes, how long the list itself
// takes while plugins are being made ready, and what the process weighs when all are.
func BenchmarkStart(b *testing.B) {
	root, err := filepath.Abs("../..")
	check(b, err)
	dir := b.TempDir()
	check(b,
		os.CopyFS(filepath.Join(dir, "site"), os.DirFS(filepath.Join(root, "examples/lab/site"))))
	lab, err := pvelab.Start(
		b.Context(),
		pvelab.Options{
			State:   filepath.Join(dir, "lab"),
			Config:  filepath.Join(dir, "config.toml"),
			Plugins: filepath.Join(root, "build/plugins"),
			Lock:    filepath.Join(root, "plugins.lock"),
			Site:    filepath.Join(dir, "site"),
		},
	)
	check(b, err)
	b.Cleanup(func() { lab.Close() })
	for name, cache := range map[string]string{"cold": "", "warm": filepath.Join(dir, "cache")} {
		b.Run(name, func(b *testing.B) {
			var up, list []time.Duration
			resident := 0
			start := func(weigh bool) {
				if name == "cold" {
					cache = b.TempDir()
					check(b, os.Chmod(cache, 0o700))
				}
				serve := exec.Command(filepath.Join(root, "build/caponier"), "--config",
					filepath.Join(dir, "config.toml"), "serve")
				serve.Env = append(os.Environ(), "CAPONIER_SANDBOX_CACHE_DIR="+cache)
				var session *mcp.ClientSession
				up = append(up, timed(func() {
					session, err = mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"},
						nil).
						Connect(context.Background(), &mcp.CommandTransport{Command: serve}, nil)
					check(b, err)
				}))
				defer session.Close()
				list = append(list, timed(func() {
					if tools, err := session.ListTools(context.Background(), nil); err != nil ||
						len(tools.Tools) < 10 {
						b.Fatal(err)
					}
				}))
				if weigh {
					resident = settled(b, serve.Process.Pid)
				}
			}
			start(true) // in the warm case this one fills the cache
			up, list = nil, nil
			for b.Loop() {
				start(false)
			}
			start(true)
			b.ReportMetric(at(up, 50)/1000, "up-p50-ms")
			b.ReportMetric(at(list, 50)/1000, "list-p50-ms")
			b.ReportMetric(at(list, 100)/1000, "list-worst-ms")
			b.ReportMetric(float64(resident), "resident-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// settled is what a process weighs, in MiB, when it has used no processor for a second.
func settled(b *testing.B, pid int) int {
	ticks := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		check(b, err)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
		return fields[12-1] + " " + fields[13-1]
	}
	for before := ""; before != ticks(); time.Sleep(time.Second) {
		before = ticks()
		time.Sleep(time.Second)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(b, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kb int
	fmt.Sscan(rest, &kb)
	return kb >> 10
}

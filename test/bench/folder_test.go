package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkFolder downloads a folder of 1,000 small files by one call, and with scp -r, in turn.
func BenchmarkFolder(b *testing.B) {
	p := newPlace(b)
	from := filepath.Join(b.TempDir(), "folder")
	for i := range 1000 {
		dir := filepath.Join(from, fmt.Sprint(i%10))
		must(b, os.MkdirAll(dir, 0o755))
		name := filepath.Join(dir, fmt.Sprint("f", 10_000+i))
		must(b, os.WriteFile(name, bytes.Repeat([]byte("x"), 1024), 0o644))
	}
	file := filepath.Join(p.dir, "site/data.yaml")
	data, err := os.ReadFile(file)
	must(b, err)
	for was, now := range map[string]string{
		"# \"tool:proxmox_download_directory": "\"tool:proxmox_download_directory",
		"\n  read: [":                         "\n  read: [" + from + ", ",
	} {
		if !bytes.Contains(data, []byte(was)) {
			b.Fatalf("%s is not in the site", was)
		}
		data = bytes.Replace(data, []byte(was), []byte(now), 1)
	}
	must(b, os.WriteFile(file, data, 0o644))
	s := p.start(b, "caponier", "stdio")
	s.call(b, "green")
	host, port := p.sshd.HostPort()
	least := [2]float64{1e9, 1e9}
	for i := range 3 {
		least[0] = min(least[0], timed(func() {
			r, err := s.session.CallTool(context.Background(), &mcp.CallToolParams{
				Name: "proxmox_download_directory_from_host", Arguments: map[string]any{
					"host_dir": from, "local_dir": fmt.Sprint("out", i), "node": "pve1"}})
			must(b, err)
			text := r.Content[0].(*mcp.TextContent).Text
			if r.IsError || !strings.Contains(text, `"files":1000,`) {
				b.Fatal(text)
			}
		}))
		least[1] = min(least[1], timed(func() {
			out, err := exec.Command("scp", "-q", "-r", "-P", fmt.Sprint(port), "-i",
				p.sshd.ClientFile, "-o", "StrictHostKeyChecking=no", "-o",
				"UserKnownHostsFile=/dev/null", p.sshd.User+"@"+host+":"+from,
				filepath.Join(b.TempDir(), "out")).CombinedOutput()
			if err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		}))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(least[0], "ms")
	b.ReportMetric(least[1], "scp-ms")
	b.ReportMetric(least[1]/least[0], "of-scp")
}

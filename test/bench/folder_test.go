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

// BenchmarkFolder copies a folder of 1,000 small files by one call and with scp -r, in turn, in
// both directions.
func BenchmarkFolder(b *testing.B) {
	p := newPlace(b)
	from, to := filepath.Join(b.TempDir(), "folder"), b.TempDir()
	thousand(b, from)
	thousand(b, filepath.Join(p.dir, "state/workspace/demo/folder"))
	file := filepath.Join(p.dir, "site/data.yaml")
	data, err := os.ReadFile(file)
	must(b, err)
	for was, now := range map[string]string{
		"# \"tool:proxmox_download_directory": "\"tool:proxmox_download_directory",
		"# \"tool:proxmox_upload_directory":   "\"tool:proxmox_upload_directory",
		"argument: false":                     "argument: true", // so that no person is asked
		"\n  read: [":                         "\n  read: [" + from + ", ",
		"\n  write: [":                        "\n  write: [" + to + ", ",
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
	node := p.sshd.User + "@" + host + ":"
	least := map[string]float64{}
	note := func(what string, do func()) {
		if took := timed(do); least[what] == 0 || took < least[what] {
			least[what] = took
		}
	}
	for i := range 3 {
		fresh := fmt.Sprint("out", i)
		note("get", func() {
			s.copies(b, "proxmox_download_directory_from_host", from, fresh)
		})
		note("scp-get", func() { scp(b, p, port, node+from, filepath.Join(b.TempDir(), "out")) })
		note("put", func() {
			s.copies(b, "proxmox_upload_directory_to_host", filepath.Join(to, fresh), "folder")
		})
		note("scp-put", func() { scp(b, p, port, from, node+filepath.Join(to, fresh+"-scp")) })
	}
	b.ReportMetric(0, "ns/op")
	for what, took := range least {
		b.ReportMetric(took, what+"-ms")
	}
	for _, way := range []string{"get", "put"} {
		b.ReportMetric(least["scp-"+way]/least[way], way+"-of-scp")
	}
}

// thousand makes 1,000 files of 1 KiB in ten directories.
func thousand(b *testing.B, top string) {
	b.Helper()
	for i := range 1000 {
		dir := filepath.Join(top, fmt.Sprint(i%10))
		must(b, os.MkdirAll(dir, 0o700))
		name := filepath.Join(dir, fmt.Sprint("f", 10_000+i))
		must(b, os.WriteFile(name, bytes.Repeat([]byte("x"), 1024), 0o600))
	}
}

// copies copies the folder by one call of a tool.
func (s *subject) copies(b *testing.B, tool, hostDir, localDir string) {
	b.Helper()
	args := map[string]any{"host_dir": hostDir, "local_dir": localDir, "node": "pve1"}
	if strings.Contains(tool, "upload") {
		args["confirmed"] = true
	}
	r, err := s.session.CallTool(context.Background(),
		&mcp.CallToolParams{Name: tool, Arguments: args})
	must(b, err)
	text := r.Content[0].(*mcp.TextContent).Text
	if r.IsError || !strings.Contains(text, `"files":1000,`) {
		b.Fatal(text)
	}
}

func scp(b *testing.B, p *place, port int, from, to string) {
	b.Helper()
	out, err := exec.Command("scp", "-q", "-r", "-P", fmt.Sprint(port), "-i", p.sshd.ClientFile,
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", from, to).
		CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bridged connects the official client to a URL through caponier connect.
func bridged(t *testing.T, url, token string) (*mcp.ClientSession, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	cmd := exec.Command(bin, "connect", url, "--token-file", file)
	cmd.Env, cmd.Stderr = []string{"HOME=" + t.TempDir()}, t.Output()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// The official client works through the bridge as it does without it, also after a restart of the
// host. It receives the reason if the host is down or refuses the token.
func TestConnectBridgesAClientToTheHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	l.Close()
	s.add(t, "\n[identity]\ntokens = \"tokens.json\"\n[[identity.principals]]\nid = \"demo\"\n")
	out, err := s.command("token", "new", "demo").Output()
	must(t, err)
	token := strings.TrimSpace(string(out))
	serve := func() (stop func()) {
		cmd := s.command("serve", "--http", addr)
		cmd.Stderr = t.Output()
		must(t, cmd.Start())
		for i := 0; ; i++ { // until it is up
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
				break
			} else if i > 1200 {
				t.Fatal("the host does not come up")
			}
			time.Sleep(100 * time.Millisecond)
		}
		ended := false
		stop = func() {
			if !ended {
				ended = true
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
			}
		}
		t.Cleanup(stop)
		return stop
	}
	url := "http://" + addr + "/mcp"
	stop := serve()
	session, err := bridged(t, url, token)
	must(t, err)
	call := func() (string, error) {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "proxmox_container_status", Arguments: map[string]any{"vmid": 101}})
		if err != nil {
			return "", err
		}
		return res.Content[0].(*mcp.TextContent).Text, nil
	}
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 7 {
		t.Fatalf("tools: %+v, %v", list, err)
	}
	if text, err := call(); err != nil || !strings.Contains(text, "running") {
		t.Fatalf("a call: %q %v", text, err)
	}
	stop()
	if _, err := call(); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("the host is away: %v", err)
	}
	stop = serve()
	if text, err := call(); err != nil || !strings.Contains(text, "running") {
		t.Errorf("the host was started again: %q %v", text, err)
	}
	if _, err := bridged(t, url, "cap_wrong"); err == nil ||
		!strings.Contains(err.Error(), "does not accept the token (401)") {
		t.Errorf("a wrong token: %v", err)
	}
	stop()
	if _, err := bridged(t, url, token); err == nil ||
		!strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("no host: %v", err)
	}
}

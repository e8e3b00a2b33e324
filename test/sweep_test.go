package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The host is killed while a file is on its way into a guest. The next one removes the stage of the
// dead one as the principal host: decided, journaled and done; but not while it is frozen.
func TestAKilledHostsStageIsRemovedThroughTheDoor(t *testing.T) {
	s := newSite(t)
	s.append(t, "\n[identity]\nhttp = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n")
	s.mkdir(t, "lab/workspace/demo", 0o700)
	s.write(t, "lab/workspace/demo/a", "text\n")
	url := s.serveHTTP(t)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(
		t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1}, nil)
	must(t, err)
	s.lab.SetLatency(2 * time.Second)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = session.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      "proxmox_upload_file_to_container",
			Arguments: map[string]any{"vmid": 101, "local_path": "a", "container_path": "/root/a"}})
	}()
	staged := func() bool {
		left, err := filepath.Glob(filepath.Join(s.dir, "lab/nodes/*/tmp/caponier-*"))
		must(t, err)
		return len(left) > 0
	}
	waitFor(t, "a stage", staged)
	must(t, s.host.Kill())
	<-ended
	session.Close()
	s.lab.SetLatency(0)
	if !staged() {
		t.Fatal("the killed host left no stage")
	}

	if out, err := s.command("freeze", "--reason", "a test").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.serveHTTP(t)
	s.journaled(t, `"type":"refused".*"tool":"remove_leftovers".*"failed":\["freeze"\]`)
	if !staged() {
		t.Error("a frozen host removed the stage")
	}
	must(t, s.host.Kill())
	if out, err := s.command("thaw").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	s.serveHTTP(t)
	waitFor(t, "the stage to go", func() bool { return !staged() })
	s.journaled(t, `"type":"outcome".*"op":"discard".*"outcome":"succeeded"`)
	call, op := false, false
	out, err := s.command("audit", "tail", "--json", "-n", "1000").Output()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		var r struct {
			Type, Kind, Op, Tool, Tier, Node, Principal, Source, Revision string
			Input                                                         struct {
				File struct{ Path string }
			}
		}
		must(t, json.Unmarshal([]byte(line), &r))
		if r.Type != "intent" || r.Tool != "remove_leftovers" {
			continue
		}
		if r.Principal != "host" || r.Source != "host" || r.Tier != "yellow" || r.Revision == "" {
			t.Errorf("decided as %+v", r)
		}
		call = call || r.Kind == "call"
		op = op || r.Op == "discard" && strings.HasPrefix(r.Input.File.Path, "/tmp/caponier-") &&
			r.Node != ""
	}
	if !call || !op {
		t.Errorf("the journal has the call: %v, the operation: %v", call, op)
	}
	for _, args := range [][]string{{"audit", "verify"},
		{"policy", "replay", filepath.Join(s.dir, "site")}} {
		if out, err := s.command(args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", args, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "lab/workspace/demo/a")); err != nil {
		t.Errorf("the caller's own file: %v", err)
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

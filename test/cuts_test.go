package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestTheJournalMatchesTheNodeUnderCuts calls through the real binary while the way to the
// node is cut at random, and then holds the node, counted by a mark in each call's command, against
// the journal: no mark twice, none without an intent, none that the journal calls succeeded and is
// not there. CAPONIER_SOAK is how many calls, 500 without it.
func TestTheJournalMatchesTheNodeUnderCuts(t *testing.T) {
	calls := 500
	if v := settings["CAPONIER_SOAK"]; v != "" {
		n, err := strconv.Atoi(v)
		must(t, err)
		calls = n
	}
	s := newSite(t)
	proxy := sshtest.NewProxy(t, s.lab.Addr)
	_, port := sshtest.HostPort(proxy.Addr)
	// both nodes: only pve1 is called
	s.replace(t, s.config, `port = \d+`, "port = "+strconv.Itoa(port))
	s.replace(
		t,
		filepath.Join(s.dir, "site/data.yaml"),
		`calls_per_minute: \d+`,
		"calls_per_minute: 1000000",
	)
	session := s.stdio(t)

	stop := make(chan struct{})
	var cutter, callers sync.WaitGroup
	cutter.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(20+rand.IntN(600)) * time.Millisecond):
				proxy.Reset()
			}
		}
	})
	for caller := range 4 {
		callers.Go(func() {
			for i := caller; i < calls; i += 4 {
				_, err := session.CallTool(
					t.Context(),
					&mcp.CallToolParams{Name: "proxmox_container_exec_command",
						Arguments: map[string]any{
							"vmid":    101,
							"command": fmt.Sprintf("echo mark-%d-end >> /tmp/marks", i),
						}},
				)
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	cutter.Wait()
	session.Close()
	time.Sleep(time.Second) // what a cut left behind in the container may still write

	marks, err := s.lab.GuestFile(101, "/tmp/marks")
	must(t, err)
	did := map[string]int{}
	// two writers' line ends may meet
	for _, m := range regexp.MustCompile(`mark-\d+-end`).FindAllString(string(marks), -1) {
		did[m]++
	}
	intents, outcomes := s.execs(t)
	tally := map[string]int{}
	for i := range calls {
		mark := fmt.Sprintf("mark-%d-end", i)
		ids := intents[mark]
		succeeded, unknown := 0, 0
		for _, id := range ids {
			tally[outcomes[id]]++
			switch outcomes[id] {
			case "succeeded":
				succeeded++
			case "unknown":
				unknown++
			}
		}
		switch n := did[mark]; {
		case n > 1:
			t.Errorf("%s was done %d times", mark, n)
		case n == 1 && succeeded+unknown == 0:
			t.Errorf("%s was done, and the journal says %v", mark, ids)
		case n == 0 && succeeded > 0:
			t.Errorf("%s was not done, and the journal says that it succeeded", mark)
		}
		delete(did, mark)
	}
	if len(did) > 0 {
		t.Errorf("done without a call: %v", did)
	}
	t.Logf("%d calls: %v", calls, tally)
	if tally["succeeded"] == 0 || tally["succeeded"] == calls {
		t.Errorf("the cuts proved nothing: %v", tally)
	}
	if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// execs reads the journal: the decision ids of the ssh_exec intents whose input holds each mark,
// and how each decision ended.
func (s *site) execs(t *testing.T) (intents map[string][]string, outcomes map[string]string) {
	t.Helper()
	cmd := s.command("audit", "tail", "--json", "-n", "1000000")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, t.Output()
	must(t, cmd.Run())
	intents, outcomes = map[string][]string{}, map[string]string{}
	mark := regexp.MustCompile(`mark-\d+-end`)
	for line := range bytes.Lines(out.Bytes()) {
		var r struct {
			Type, Op, Outcome string
			ID                string `json:"decision_id"`
			Input             json.RawMessage
		}
		must(t, json.Unmarshal(line, &r))
		switch {
		case r.Type == "intent" && r.Op == "ssh_exec":
			if m := mark.Find(r.Input); m != nil {
				intents[string(m)] = append(intents[string(m)], r.ID)
			}
		case r.Type == "outcome":
			outcomes[r.ID] = r.Outcome
		}
	}
	return intents, outcomes
}

func (s *site) replace(t *testing.T, file, old, with string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	re := regexp.MustCompile(old)
	if !re.Match(data) {
		t.Fatalf("%s has nothing that matches %s", file, old)
	}
	must(t, os.WriteFile(file, re.ReplaceAll(data, []byte(with)), 0o600))
}

package test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the alerts and the dashboard ask for is what a host serves, with the labels that they use;
// and each line of its log in JSON has a time with a zone, a level and a message.
func TestAlertsAndDashboardAskForWhatIsServed(t *testing.T) {
	s := newSite(t)
	addr := freeAddress(t)
	s.append(t, "[front]\nmetrics = %q\n[[export.sinks]]\nname = \"x\"\nkind = \"jsonl\"\nfile = "+
		"\"exported\"\n", addr)
	cmd := s.command("serve", "--log-format", "json")
	var log bytes.Buffer
	cmd.Stderr = &log
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	for _, vmid := range []int{101, 103} { // the latter is protected
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "proxmox_container_exec_command", Arguments: map[string]any{"vmid": vmid,
				"command": "ls"}})
		must(t, err)
	}
	res, err := http.Get("http://" + addr + "/metrics")
	must(t, err)
	served, err := io.ReadAll(res.Body)
	must(t, err)
	res.Body.Close()
	must(t, session.Close())

	labels := map[string][]string{ // of the first series of each name
		"caponier_spent_today_usd": {"principal", "instance"}, // served once something was spent
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? `).FindAllSubmatch(served,
		-1) {
		name := string(m[1])
		labels[name] = append(labels[name], "instance", "job") // Prometheus adds them
		for _, l := range regexp.MustCompile(`([a-z]+)="`).FindAllSubmatch(m[2], -1) {
			labels[name] = append(labels[name], string(l[1]))
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Targets []struct{ Expr string }
		}
	}
	data, err := os.ReadFile("../packaging/observability/caponier.dashboard.json")
	must(t, err)
	must(t, json.Unmarshal(data, &dashboard))
	rules, err := os.ReadFile("../packaging/observability/caponier.rules.yml")
	must(t, err)
	exprs := regexp.MustCompile(`(?ms)expr: (.*?)\n +(?:for|labels):`).FindAllStringSubmatch(
		string(rules), -1)
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %d is there twice, or shows nothing", p.ID)
		}
		ids[p.ID] = true
		for _, x := range p.Targets {
			exprs = append(exprs, []string{"", x.Expr})
		}
	}
	asks := regexp.MustCompile(`\b((?:caponier|process|go)_[a-z_]+)(?:\{([^}]*)\})?`)
	by := regexp.MustCompile(`by \(([a-z, ]+)\)`)
	for _, x := range exprs {
		for _, m := range asks.FindAllStringSubmatch(x[1], -1) {
			have, ok := labels[m[1]]
			if !ok {
				t.Errorf("%s is not served: %s", m[1], x[1])
			}
			text := m[2] + ","
			for _, b := range by.FindAllStringSubmatch(x[1], -1) {
				text += strings.ReplaceAll(b[1], ",", "=,") + "=,"
			}
			for _, l := range regexp.MustCompile(`([a-z]+)=`).FindAllStringSubmatch(text, -1) {
				if ok && !slices.Contains(have, l[1]) {
					t.Errorf("%s has no label %s: %s", m[1], l[1], x[1])
				}
			}
		}
	}
	if len(exprs) < 25 || len(labels) < 30 {
		t.Errorf("%d expressions and %d metrics were compared", len(exprs), len(labels))
	}

	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for _, line := range lines {
		var r struct{ Time, Level, Msg string }
		err := json.Unmarshal([]byte(line), &r)
		if _, bad := time.Parse(time.RFC3339Nano, r.Time); err != nil || bad != nil ||
			!slices.Contains([]string{"DEBUG", "INFO", "WARN", "ERROR"}, r.Level) || r.Msg == "" {
			t.Errorf("the log has the line %q: %v %v", line, err, bad)
		}
	}
}

package pvetest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

// ran is, by tool, which of the commands that it declares the tests saw it run.
var ran = map[string]map[string]bool{}

// Note keeps in mind what ran on a host, when its test is over, for [Main].
func Note(h *sdktest.Host) {
	for _, r := range h.Requests {
		if ran[r.Tool] == nil {
			ran[r.Tool] = map[string]bool{}
		}
		ran[r.Tool][r.Runs] = true
	}
}

// Main runs all tests of a plugin, and fails when a tool declares a command that none of them sees
// it run: it would be let do what it never does. That a tool runs nothing else than it declares is
// held by sdktest.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" &&
		flag.Lookup("test.fuzz").Value.String() == "" {
		code = idle()
	}
	os.Exit(code)
}

func idle() (code int) {
	var d struct {
		Tools []struct {
			Name     string
			Commands []string
		}
	}
	h := sdktest.New(&testing.T{})
	if err := json.Unmarshal(h.Describe(), &d); err != nil || len(d.Tools) == 0 {
		fmt.Println("FAIL: the plugin's description:", err)
		return 1
	}
	for _, t := range d.Tools {
		for _, c := range t.Commands {
			if c != "*" && !ran[t.Name][c] {
				fmt.Printf("FAIL: %s declares %q, and no test sees it run that\n", t.Name, c)
				code = 1
			}
		}
	}
	return code
}

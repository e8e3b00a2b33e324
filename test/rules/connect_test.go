package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheHostConnectsAheadOnlyForACall: a login is all that reaches a node outside an executor. One
// place asks for it, which the gate reaches when it has allowed a call.
func TestTheHostConnectsAheadOnlyForACall(t *testing.T) {
	asks := regexp.MustCompile(`remote\.Connect\(|\bh\.connect\(|\bn\.Connect\(`)
	var found []string
	err := filepath.WalkDir("../../host", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, call := range asks.FindAllString(string(text), -1) {
			found = append(found, strings.TrimPrefix(path, "../../host/")+" "+call)
		}
		return err
	})
	want := []string{"cmd/caponier/app.go h.connect(", "cmd/caponier/remote.go remote.Connect(",
		"remote/remote.go n.Connect("}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("these connect: %q, %v; want %q", found, err, want)
	}
}

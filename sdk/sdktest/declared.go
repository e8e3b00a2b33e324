package sdktest

import (
	"encoding/json"
	"slices"
	"strings"
)

// runs returns the declared command that a request runs. A command that the tool does not declare
// fails the test, because the host would refuse it. Only the host parses command text.
func (h *Host) runs(name string, request []byte) string {
	var r struct{ Argv []string }
	if name != "ssh_exec" || json.Unmarshal(request, &r) != nil ||
		slices.Contains(h.tool.Commands, "*") {
		return ""
	}
	best := ""
	for _, entry := range h.tool.Commands {
		if len(entry) > len(best) && names(entry, r.Argv) {
			best = entry
		}
	}
	if best == "" {
		h.t.Errorf("%s runs %q, which is not among its Commands: the host would refuse it",
			h.tool.Name, r.Argv)
	}
	return best
}

// names reports whether argv matches this entry of the command grammar: it begins with the words of
// the entry, with any segment for a placeholder in a path.
func names(entry string, argv []string) bool {
	words := strings.Split(entry, " ")
	if len(argv) < len(words) {
		return false
	}
	for i, w := range words {
		want, got := strings.Split(w, "/"), strings.Split(argv[i], "/")
		if !slices.EqualFunc(want, got,
			func(x, y string) bool { return x == y || strings.HasPrefix(x, "{") && y != "" }) {
			return false
		}
	}
	return true
}

package plugin

import (
	"fmt"
	"io"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Print writes what a module is for people.
func (e Entry) Print(w io.Writer) error {
	tools, err := e.Tools()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s %s\n  digest   %s\n  imports  %s\n", e.Name, e.Version, e.Digest,
		strings.Join(e.Imports, " "))
	if e.Signed != nil {
		fmt.Fprintf(w, "  signed   by %s (%s)\n", e.Signed.By, e.Signed.Signature)
	}
	for _, t := range tools {
		fmt.Fprintf(w, "  %s %s: %s\n    imports %s; targets %s; budget %s\n    runs %s\n",
			t.Kind, t.Name, t.Title, strings.Join(t.Imports, " "),
			strings.Join(t.TargetKinds, " "), t.Budget, t.Runs)
		if t.Kind == "tool" {
			fmt.Fprintf(w, "    claims %s\n", claimed(t.Hints))
		}
		if may := plaintext.Commands(t.Commands); len(may) > 0 {
			fmt.Fprintf(w, "    may run %s\n", strings.Join(may, ", "))
		}
	}
	return nil
}

// claimed lists the hints of a tool for people.
func claimed(h terms.Hints) string {
	words := []string{"not read-only"}
	if h.ReadOnly {
		words[0] = "read-only"
	}
	if !h.Destructive {
		words = append(words, "not destructive")
	} else {
		words = append(words, "destructive")
	}
	if h.Idempotent {
		words = append(words, "idempotent")
	}
	if h.OpenWorld {
		words = append(words, "open world")
	}
	return strings.Join(words, ", ")
}

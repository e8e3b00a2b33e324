package main

import (
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
)

// scrubbed is a log that cannot hold a secret of the configuration, whoever wrote it there and how:
// each record is one Write.
type scrubbed struct {
	to    io.Writer
	hides *strings.Replacer
}

func (s scrubbed) Write(p []byte) (int, error) {
	if _, err := s.hides.WriteString(s.to, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// scrub returns a writer that leaves out these values, which are shown as they are or quoted.
func scrub(to io.Writer, secrets []string) io.Writer {
	// one may begin with another
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) < 4 { // it would be in every other word
			continue
		}
		quoted := strconv.Quote(s)
		pairs = append(pairs, s, "[redacted]", quoted[1:len(quoted)-1], "[redacted]")
		if json, err := json.Marshal(s); err == nil {
			pairs = append(pairs, string(json[1:len(json)-1]), "[redacted]")
		}
	}
	return scrubbed{to, strings.NewReplacer(pairs...)}
}

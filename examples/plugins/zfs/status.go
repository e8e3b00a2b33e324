package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/sdk"
)

// section begins a part of what zpool status prints of a pool.
var section = regexp.MustCompile(`^ {0,6}([a-z]+): ?(.*)$`)

// details adds what zpool status -p says to the pools. A pool that it does not describe, or
// describes in part, is an error.
func details(text string, all []pool) error {
	var p *pool
	part := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := section.FindStringSubmatch(line)
		switch {
		case m != nil && m[1] == "pool":
			i := slices.IndexFunc(all, func(p pool) bool { return p.Name == m[2] })
			if i < 0 || all[i].Scan != "" {
				return bad(line)
			}
			p = &all[i]
			p.Scan = "never scrubbed"
		case p == nil:
			if line != "" {
				return bad(line)
			}
		case m != nil:
			part = m[1]
			p.set(part, m[2])
		case part == "config":
			if err := p.device(line); err != nil {
				return err
			}
		case strings.HasPrefix(line, "\t"):
			p.set(part, strings.TrimSpace(line))
		}
	}
	for _, p := range all {
		if p.Scan == "" || p.Errors == "" {
			return &sdk.Error{Code: "bad_output",
				Message:    "zpool status does not describe the pool " + p.Name,
				Suggestion: "Tell your user: the state is not known."}
		}
	}
	return nil
}

// set adds a line of a section.
func (p *pool) set(part, text string) {
	to := map[string]*string{"scan": &p.Scan, "errors": &p.Errors, "status": &p.Status}[part]
	if to == nil {
		return
	}
	if part == "scan" && *to == "never scrubbed" {
		*to = ""
	}
	*to = strings.TrimSpace(*to + " " + text)
}

// device keeps a line of the table of devices if something is wrong with it.
func (p *pool) device(line string) error {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] == "NAME" { // a heading such as logs, or the end
		return nil
	}
	d := device{Name: words[0], State: words[1]}
	fine := d.State == "ONLINE" || d.State == "AVAIL" || d.State == "INUSE" // spares
	if len(words) >= 5 {
		for i, to := range []*int64{&d.Read, &d.Write, &d.Sum} {
			n, err := strconv.ParseInt(words[i+2], 10, 64)
			if err != nil || n < 0 {
				return bad(line)
			}
			*to = n
		}
	} else if d.State == "ONLINE" {
		return bad(line)
	}
	if d.Name != p.Name && (!fine || d.Read+d.Write+d.Sum > 0) {
		p.Suspects = append(p.Suspects, d)
	}
	return nil
}

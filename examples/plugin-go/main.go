// Command diskspace is a plugin that lists the full file systems of a node.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	sdk.Serve("diskspace", "1.0.0",
		sdk.NewTool(
			"disk_space",
			"List the file systems of a node that are at least min_percent full. Example: "+
				"{\"min_percent\":80}",
			sdk.Hints{
				Title:      "Full file systems",
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"ssh_exec"},
				Commands:   []string{"df"},
				Budget:     15 * time.Second,
				Runs:       "df -P -k -l",
			},
			diskSpace,
		))
}

type in struct {
	Min  int    `json:"min_percent" doc:"Leave out what is less full" min:"0" max:"100" default:"0"`
	Node string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
}

type fileSystem struct {
	Mount   string `json:"mount"`
	KiB     int64  `json:"kib" doc:"Size"`
	FreeKiB int64  `json:"free_kib"`
	Percent int    `json:"percent" doc:"In use"`
}

type out struct {
	Node        string       `json:"node"`
	FileSystems []fileSystem `json:"file_systems"`
}

func (o out) Text() string {
	if len(o.FileSystems) == 0 {
		return "No file system of " + o.Node + " is that full."
	}
	var b strings.Builder
	for _, f := range o.FileSystems {
		fmt.Fprintf(&b, "%3d%%  %s  (%d MiB free)\n", f.Percent, f.Mount, f.FreeKiB>>10)
	}
	return strings.TrimRight(b.String(), "\n")
}

func diskSpace(c *sdk.Call, in in) (out, error) {
	o := out{Node: c.Node(in.Node)}
	r, err := sdk.SSHExec(c, o.Node, []string{"df", "-P", "-k", "-l"}, sdk.ExecOptions{})
	if err != nil {
		return out{}, err
	}
	if r.Exit != 0 {
		return out{}, &sdk.Error{
			Code:    "failed",
			Message: fmt.Sprintf("df on %s: exit code %d: %s", o.Node, r.Exit, r.Stderr),
		}
	}
	all, err := parse(string(r.Stdout))
	for _, f := range all {
		if f.Percent >= in.Min {
			o.FileSystems = append(o.FileSystems, f)
		}
	}
	return o, err
}

// parse reads the output of df -P. Only its last column may contain spaces.
func parse(text string) (all []fileSystem, err error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, line := range lines[1:] {
		var f fileSystem
		words := strings.Fields(line)
		ok := len(words) >= 6 && strings.HasSuffix(words[4], "%")
		if ok {
			kib, err1 := strconv.ParseInt(words[1], 10, 64)
			free, err2 := strconv.ParseInt(words[3], 10, 64)
			percent, err3 := strconv.Atoi(strings.TrimSuffix(words[4], "%"))
			f = fileSystem{strings.Join(words[5:], " "), kib, free, percent}
			ok = err1 == nil && err2 == nil && err3 == nil
		}
		if !ok {
			return nil, &sdk.Error{
				Code:    "bad_output",
				Message: fmt.Sprintf("df printed a line that is none of its own: %q", line),
			}
		}
		all = append(all, f)
	}
	return all, nil
}

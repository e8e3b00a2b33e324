// Command zfs is a plugin that says whether the ZFS pools of a node are healthy.
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
	sdk.Serve("zfs", "1.0.0",
		sdk.NewTool("zfs_health",
			"Say whether the ZFS pools of a node are healthy: state, space, the last scrub, and "+
				"each device with errors or out of service. Example: {\"full_percent\":80}",
			sdk.Hints{
				Title:      "Health of ZFS pools",
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"ssh_exec"},
				Commands:   []string{"zpool list", "zpool status"},
				Budget:     30 * time.Second,
				Runs:       "zpool list -H -p …, zpool status -p -P",
			}, health))
}

type healthIn struct {
	Node string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
	Full int    `json:"full_percent" doc:"Full from here on" min:"1" max:"100" default:"80"`
}

type healthOut struct {
	Node    string   `json:"node"`
	Healthy bool     `json:"healthy" doc:"No pool has a problem"`
	Pools   []pool   `json:"pools"`
	Wrong   []string `json:"problems" doc:"Sentences"`
}

type pool struct {
	Name     string   `json:"name"`
	State    string   `json:"state" doc:"ONLINE, DEGRADED, FAULTED …"`
	Size     int64    `json:"size" doc:"Bytes"`
	Free     int64    `json:"free" doc:"Bytes"`
	Percent  int      `json:"percent" doc:"In use"`
	Scan     string   `json:"scan" doc:"The last scrub or resilver, as zpool says it"`
	Errors   string   `json:"errors" doc:"As zpool says it"`
	Status   string   `json:"status,omitempty" doc:"What zpool complains of"`
	Suspects []device `json:"devices" doc:"Those with errors or out of service"`
}

type device struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Read  int64  `json:"read" doc:"Errors"`
	Write int64  `json:"write" doc:"Errors"`
	Sum   int64  `json:"checksum" doc:"Errors"`
}

// Text is for people.
func (o healthOut) Text() string {
	if len(o.Pools) == 0 {
		return o.Node + " has no ZFS pool."
	}
	var b strings.Builder
	for _, p := range o.Pools {
		fmt.Fprintf(&b, "%s: %s, %d%% of %d GiB in use; %s\n", p.Name, p.State, p.Percent,
			p.Size>>30, p.Scan)
	}
	for _, w := range o.Wrong {
		b.WriteString("! " + w + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func health(c *sdk.Call, in healthIn) (healthOut, error) {
	o := healthOut{Node: c.Node(in.Node)}
	list, err := zpool(c, o.Node, "list", "-H", "-p", "-o", "name,size,free,capacity,health")
	if err != nil {
		return o, err
	}
	if o.Pools, err = pools(list); err != nil || len(o.Pools) == 0 {
		o.Healthy = err == nil
		return o, err
	}
	status, err := zpool(c, o.Node, "status", "-p", "-P")
	if err == nil {
		err = details(status, o.Pools)
	}
	for _, p := range o.Pools {
		o.Wrong = append(o.Wrong, p.problems(in.Full)...)
	}
	o.Healthy = len(o.Wrong) == 0
	return o, err
}

// zpool runs one command and returns its output.
func zpool(c *sdk.Call, node string, words ...string) (string, error) {
	r, err := sdk.SSHExec(c, node, append([]string{"zpool"}, words...),
		sdk.ExecOptions{Timeout: 10 * time.Second, MaxBytes: 1 << 20})
	if err != nil {
		return "", err
	}
	said := strings.TrimSpace(string(r.Stderr))
	e := &sdk.Error{Code: "failed", Message: fmt.Sprintf("zpool %s on %s: exit code %d: %s",
		words[0], node, r.Exit, said)}
	switch {
	case r.Exit == 127 || strings.Contains(said, "modules cannot be auto-loaded"):
		e.Code, e.Suggestion = "no_zfs", "The node has no ZFS: look at its storages instead."
		return "", e
	case r.Exit != 0:
		e.Suggestion = "Tell your user: the state of the pools is not known."
		return "", e
	case r.Truncated:
		e.Code, e.Message = "too_long", fmt.Sprintf("zpool %s on %s printed over 1 MiB", words[0],
			node)
		return "", e
	}
	return string(r.Stdout), nil
}

// bad is output that zpool does not print: it must not be taken for health.
func bad(line string) error {
	return &sdk.Error{Code: "bad_output", Suggestion: "Tell your user: the state is not known.",
		Message: fmt.Sprintf("zpool printed a line that is none of its own: %.200q", line)}
}

// pools reads the output of zpool list -H -p.
func pools(text string) (all []pool, err error) {
	if text == "no pools available\n" {
		return nil, nil
	}
	for line := range strings.Lines(text) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(words) != 5 || words[0] == "" || words[4] == "" {
			return nil, bad(line)
		}
		p := pool{Name: words[0], State: words[4]}
		if p.State != "UNAVAIL" && p.State != "FAULTED" { // these have no figures
			for i, to := range []*int64{&p.Size, &p.Free} {
				if *to, err = strconv.ParseInt(words[i+1], 10, 64); err != nil || *to < 0 {
					return nil, bad(line)
				}
			}
			if p.Percent, err = strconv.Atoi(strings.TrimSuffix(words[3], "%")); err != nil {
				return nil, bad(line)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// problems are sentences about what is wrong.
func (p pool) problems(full int) (all []string) {
	say := func(format string, a ...any) {
		all = append(all, p.Name+": "+fmt.Sprintf(format, a...))
	}
	if p.State != "ONLINE" {
		say("the pool is %s", p.State)
	}
	if p.Percent >= full {
		say("%d%% are in use", p.Percent)
	}
	if p.Errors != "No known data errors" {
		say("errors: %s", p.Errors)
	}
	for _, d := range p.Suspects {
		say("%s is %s, errors %d read, %d write, %d checksum", d.Name, d.State, d.Read, d.Write,
			d.Sum)
	}
	if p.Status != "" && len(all) == 0 {
		say("%s", p.Status)
	}
	return all
}

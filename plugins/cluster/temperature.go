package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type temperatureOut struct {
	pve.Reply
	Node  string `json:"node"`
	Zones []zone `json:"zones"`
}

type zone struct {
	Zone    string  `json:"zone"`
	Type    string  `json:"type" doc:"What is measured, as the kernel calls it"`
	Celsius float64 `json:"celsius"`
}

const thermal = "/sys/class/thermal"

var zoneName = regexp.MustCompile(`^thermal_zone([0-9]{1,3})$`)

// nodeTemperature lists the zones first, because no shell expands a * here.
func nodeTemperature(c *sdk.Call, in nodeIn) (temperatureOut, error) {
	n := pve.On(c, in.Node)
	doing := "reading the temperatures of " + n.Name
	none := &sdk.Error{
		Code:       "not_found",
		Message:    doing + ": it has no thermal zones",
		Suggestion: "Virtual machines and some boards have none: try execute_ssh with sensors.",
	}
	list, err := sdk.SFTPList(c, n.Name, thermal, 256)
	if err := pve.Lost(err, doing); err != nil {
		if e, is := err.(*sdk.Error); is && e.Code == "not_found" {
			return temperatureOut{}, none
		}
		return temperatureOut{}, err
	}
	var zones []string
	for _, e := range list.Entries {
		if zoneName.MatchString(e.Name) {
			zones = append(zones, e.Name)
		}
	}
	slices.SortFunc(zones,
		func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	if len(zones) == 0 {
		return temperatureOut{}, none
	}
	temps, err := cat(n, zones, "temp")
	if err != nil {
		return temperatureOut{}, err
	}
	types, err := cat(n, zones, "type")
	if err != nil {
		return temperatureOut{}, err
	}
	out := temperatureOut{Node: n.Name, Zones: []zone{}}
	table := [][]string{{"ZONE", "TYPE", "CELSIUS"}}
	for i, name := range zones {
		milli, err := strconv.ParseInt(temps[i], 10, 64)
		if err != nil {
			continue // a sensor that is off cannot be read
		}
		out.Zones = append(out.Zones, zone{name, types[i], float64(milli) / 1000})
		table = append(table, []string{name, types[i], fmt.Sprintf("%.1f", float64(milli)/1000)})
	}
	out.Reply = pve.Human(pve.Table(table))
	return out, nil
}

// cat reads one short file of each zone. If the command fails it reads the files one by one, and
// the result of one that cannot be read is empty.
func cat(n pve.Node, zones []string, name string) ([]string, error) {
	argv := []string{"cat", "--"}
	for _, z := range zones {
		argv = append(argv, thermal+"/"+z+"/"+name)
	}
	r, err := n.Run(sdk.ExecOptions{Timeout: pve.Fast, MaxBytes: 64 << 10}, argv...)
	if err != nil {
		return nil, err
	}
	if lines := strings.Split(strings.TrimSuffix(string(r.Stdout), "\n"), "\n"); r.Exit == 0 &&
		len(lines) == len(zones) {
		return lines, nil
	}
	var all []string
	for _, path := range argv[2:] {
		r, err := n.Run(sdk.ExecOptions{Timeout: pve.Fast, MaxBytes: 4 << 10}, "cat", "--", path)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.TrimSpace(string(r.Stdout)))
	}
	return all, nil
}

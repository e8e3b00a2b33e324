package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type listIn struct {
	Node   string `json:"node,omitempty" target:"node"`
	Format string `json:"response_format" doc:"Text form" enum:"text,json" default:"text"`
}

// Docs describes what does not fit into a tag.
func (listIn) Docs() map[string]string {
	return map[string]string{
		"node": "Only containers of this node",
	}
}

type row struct {
	VMID     int     `json:"vmid"`
	Name     string  `json:"name"`
	Node     string  `json:"node"`
	Status   string  `json:"status"`
	Lock     string  `json:"lock,omitempty"`
	Tags     string  `json:"tags,omitempty"`
	Template bool    `json:"template,omitempty"`
	CPU      float64 `json:"cpu" doc:"Fraction of cpus in use"`
	CPUs     float64 `json:"cpus"`
	Mem      int64   `json:"mem" doc:"Bytes in use"`
	MaxMem   int64   `json:"maxmem" doc:"Bytes"`
	Uptime   int64   `json:"uptime" doc:"Seconds"`
}

// Docs describes what does not fit into a tag.
func (row) Docs() map[string]string {
	return map[string]string{
		"status": "running, stopped, or unknown when its node gives no figures",
	}
}

type listOut struct {
	pve.Reply
	Count      int   `json:"count"`
	Containers []row `json:"containers"`
}

func list(c *sdk.Call, in listIn) (listOut, error) {
	guests, err := pve.On(c, in.Node).Guests()
	if err != nil {
		return listOut{}, err
	}
	out := listOut{Containers: []row{}}
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %-9s %-12s %-10s %s\n", "VMID", "STATUS", "NODE", "LOCK", "NAME")
	for _, g := range guests {
		if g.Type != "lxc" || in.Node != "" && g.Node != in.Node {
			continue
		}
		out.Containers = append(
			out.Containers,
			row{int(g.VMID), g.Name, g.Node, g.Status, g.Lock, g.Tags, g.Template != 0,
				float64(g.CPU), float64(g.MaxCPU), int64(g.Mem), int64(g.MaxMem), int64(g.Uptime)},
		)
		fmt.Fprintf(&b, "%-10d %-9s %-12s %-10s %s\n", g.VMID, g.Status, g.Node, g.Lock, g.Name)
	}
	out.Count = len(out.Containers)
	if out.Count == 0 {
		b.Reset()
		b.WriteString("There are no containers.")
	}
	out.Reply = pve.Say(in.Format, out, strings.TrimRight(b.String(), "\n"))
	return out, nil
}

type statusIn struct {
	VMID   int    `json:"vmid" doc:"Container" min:"100" max:"999999999" target:"vmid"`
	Format string `json:"response_format" doc:"Text form" enum:"text,json" default:"text"`
	Node   string `json:"node,omitempty" doc:"Its node, if not the default" target:"node"`
}

type statusOut struct {
	pve.Reply
	VMID       int    `json:"vmid"`
	Node       string `json:"node"`
	Status     string `json:"status" doc:"running, stopped or unknown"`
	Name       string `json:"name"`
	Lock       string `json:"lock,omitempty"`
	Protection bool   `json:"protection"`
	Template   bool   `json:"template"`
	Tags       string `json:"tags,omitempty"`
	Cores      string `json:"cores,omitempty"`
	MemoryMiB  string `json:"memory_mib,omitempty"`
	OSType     string `json:"ostype,omitempty"`
}

func status(c *sdk.Call, in statusIn) (statusOut, error) {
	ct := at(c, in.Node, in.VMID)
	state, err := ct.status()
	if err != nil {
		return statusOut{}, err
	}
	r, err := ct.pct(pve.Fast, "config")
	if err != nil {
		return statusOut{}, err
	}
	if r.Exit != 0 {
		return statusOut{}, ct.FailGuest(ct.doing("reading the configuration of"), in.VMID, "lxc",
			r)
	}
	cfg := pve.KeyValues(string(r.Stdout))
	out := statusOut{
		VMID:       in.VMID,
		Node:       ct.Name,
		Status:     state,
		Name:       cfg["hostname"],
		Lock:       cfg["lock"],
		Protection: cfg["protection"] == "1",
		Template:   cfg["template"] == "1",
		Tags:       cfg["tags"],
		Cores:      cfg["cores"],
		MemoryMiB:  cfg["memory"],
		OSType:     cfg["ostype"],
	}
	human := fmt.Sprintf("Container %d (%s) on %s is %s.", out.VMID, out.Name, out.Node, out.Status)
	if out.Lock != "" {
		human += fmt.Sprintf(" It is locked (%s).", out.Lock)
	}
	if out.Protection {
		human += " It is protected."
	}
	out.Reply = pve.Say(in.Format, out, human)
	return out, nil
}

type startIn struct {
	VMID      int    `json:"vmid" doc:"Container" min:"100" max:"999999999" target:"vmid"`
	Format    string `json:"response_format" doc:"Text form" enum:"text,json" default:"text"`
	Node      string `json:"node,omitempty" doc:"Its node, if not the default" target:"node"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

type stopIn struct {
	VMID      int    `json:"vmid" doc:"Container" min:"100" max:"999999999" target:"vmid"`
	Graceful  bool   `json:"graceful,omitempty" doc:"Ask it to shut down first"`
	Timeout   int    `json:"timeout" min:"1" max:"300" default:"60"`
	Format    string `json:"response_format" doc:"Text form" default:"text" enum:"text,json"`
	Node      string `json:"node,omitempty" doc:"Its node, if not the default" target:"node"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (stopIn) Docs() map[string]string {
	return map[string]string{
		"timeout": "With graceful: seconds until it is stopped",
	}
}

func start(c *sdk.Call, in startIn) (pve.Changed, error) {
	return at(c, in.Node, in.VMID).change("running", in.Format, 90*time.Second, "start")
}

func stop(c *sdk.Call, in stopIn) (pve.Changed, error) {
	ct := at(c, in.Node, in.VMID)
	if !in.Graceful {
		return ct.change("stopped", in.Format, 90*time.Second, "stop")
	}
	// A shutdown that is ignored waits for its timeout, and up to twice as long again.
	limit := 2*time.Duration(in.Timeout)*time.Second + 25*time.Second
	return ct.change("stopped", in.Format, limit, "shutdown", "--timeout", fmt.Sprint(in.Timeout),
		"--forceStop", "1")
}

func (ct container) change(want, format string, limit time.Duration, verb string,
	options ...string) (pve.Changed, error) {
	argv := append([]string{"pct", verb, pve.ID(ct.vmid)}, options...)
	return pve.Change{
		Node:    ct.Node,
		VMID:    ct.vmid,
		Kind:    "lxc",
		Want:    want,
		Argv:    argv,
		Timeout: limit,
		Status: func() (pve.Seen, error) {
			state, err := ct.status()
			return pve.Seen{Status: state}, err
		},
	}.Do(format)
}

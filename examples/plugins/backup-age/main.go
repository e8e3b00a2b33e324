// Command backup-age is a plugin that says how old the latest backup of each guest is.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	sdk.Serve("backup-age", "1.0.0",
		sdk.NewTool("backup_age",
			"Say of each guest of a node how old its latest backup on a storage is, the worst "+
				"first: guests without one and with one older than max_days are named. "+
				"Example: {\"node\":\"pve1\",\"storage\":\"local\",\"max_days\":2}",
			sdk.Hints{
				Title:      "Age of backups",
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"ssh_exec"},
				Commands: []string{"pvesh get /cluster/resources",
					"pvesh get /nodes/{node}/storage/{storage}/content"},
				Budget: 40 * time.Second,
				Runs: "pvesh get /cluster/resources, …/storage/STORAGE/content --content " +
					"backup",
			}, age))
}

type ageIn struct {
	Node    string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
	Storage string `json:"storage" pattern:"^[a-zA-Z][\\w.-]{0,98}[a-zA-Z0-9]$" default:"local"`
	MaxDays int    `json:"max_days" doc:"Older is too old" min:"1" max:"3650" default:"2"`
}

type ageOut struct {
	Node    string  `json:"node"`
	Storage string  `json:"storage"`
	Good    bool    `json:"good" doc:"Each guest has a backup that is young enough"`
	Guests  []guest `json:"guests"`
}

type guest struct {
	VMID    int    `json:"vmid"`
	Name    string `json:"name"`
	State   string `json:"state" enum:"good,old,none"`
	Hours   int64  `json:"age_hours,omitempty"`
	Volume  string `json:"volid,omitempty" doc:"The latest backup"`
	Backups int    `json:"backups" doc:"How many there are"`
}

// Text is for people.
func (o ageOut) Text() string {
	if len(o.Guests) == 0 {
		return o.Node + " has no guests."
	}
	var b strings.Builder
	for _, g := range o.Guests {
		what := "has no backup on " + o.Storage
		if g.State != "none" {
			what = fmt.Sprintf("%s: %dd %dh, %s", g.State, g.Hours/24, g.Hours%24, g.Volume)
		}
		fmt.Fprintf(&b, "%d %s: %s\n", g.VMID, g.Name, what)
	}
	return strings.TrimRight(b.String(), "\n")
}

// row is what both lists have of a guest. What Proxmox always prints is checked by rows.
type row struct {
	VMID     int    `json:"vmid"`
	Name     string `json:"name"`
	Node     string `json:"node"`
	Template int    `json:"template"`
	VolID    string `json:"volid"`
	CTime    int64  `json:"ctime"`
}

var now = time.Now // of the host, which stamps nothing else here

func age(c *sdk.Call, in ageIn) (ageOut, error) {
	o := ageOut{Node: c.Node(in.Node), Storage: in.Storage, Good: true}
	guests, err := rows(c, o.Node, "/cluster/resources", "--type", "vm")
	if err != nil {
		return o, err
	}
	backups, err := rows(c, o.Node, "/nodes/"+o.Node+"/storage/"+in.Storage+"/content",
		"--content", "backup")
	if err != nil {
		return o, err
	}
	at := now().Unix()
	for _, g := range guests {
		if g.Node != o.Node || g.Template != 0 {
			continue
		}
		is := guest{VMID: g.VMID, Name: g.Name, State: "none"}
		latest := int64(0)
		for _, b := range backups {
			if b.VMID != g.VMID {
				continue
			}
			if is.Backups++; b.CTime > latest {
				latest, is.Volume = b.CTime, b.VolID
			}
		}
		if latest > at+3600 {
			return o, &sdk.Error{Code: "clock", Message: fmt.Sprintf("%s is from the future: "+
				"the clock of %s or of this host is wrong", is.Volume, o.Node),
				Suggestion: "Do not judge backups before a person has set it."}
		}
		if latest > 0 {
			is.Hours, is.State = max(at-latest, 0)/3600, "good"
			if is.Hours >= int64(in.MaxDays)*24 {
				is.State = "old"
			}
		}
		o.Good = o.Good && is.State == "good"
		o.Guests = append(o.Guests, is)
	}
	rank := map[string]int{"none": 0, "old": 1, "good": 2}
	slices.SortFunc(o.Guests, func(a, b guest) int {
		return cmp.Or(rank[a.State]-rank[b.State], cmp.Compare(b.Hours, a.Hours), a.VMID-b.VMID)
	})
	return o, nil
}

// rows asks the API of a node for a list. What is not a list of guests or backups is an error: a
// broken answer must not read as "there are no guests".
func rows(c *sdk.Call, node, path string, options ...string) (all []row, err error) {
	argv := append(append([]string{"pvesh", "get", path}, options...), "--output-format", "json")
	r, err := sdk.SSHExec(c, node, argv, sdk.ExecOptions{Timeout: 15 * time.Second,
		MaxBytes: 8 << 20})
	if err != nil {
		return nil, err
	}
	doing := fmt.Sprintf("asking %s for %s: ", node, path)
	switch said := strings.TrimSpace(string(r.Stderr)); {
	case r.Exit != 0 && strings.Contains(said, "does not exist"):
		return nil, &sdk.Error{Code: "not_found", Message: doing + said,
			Suggestion: "Check the name of the storage."}
	case r.Exit != 0:
		return nil, &sdk.Error{Code: "failed", Message: fmt.Sprintf("%sexit code %d: %s", doing,
			r.Exit, said)}
	case r.Truncated:
		return nil, &sdk.Error{Code: "too_long", Message: doing + "over 8 MiB"}
	}
	broken := &sdk.Error{Code: "bad_output", Message: doing + "it is no list of guests or backups",
		Suggestion: "Tell your user: the age of the backups is not known."}
	if err := json.Unmarshal(r.Stdout, &all); err != nil || all == nil {
		return nil, broken
	}
	for _, x := range all {
		if x.VMID < 100 && (x.VolID == "" || x.VMID != 0) || (x.VolID == "") == (x.Node == "") ||
			x.VolID != "" && x.CTime <= 0 {
			return nil, broken
		}
	}
	return all, nil
}

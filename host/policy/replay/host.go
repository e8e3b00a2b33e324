package replay

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

// remedies of refusals that are the host's own, by the beginning of their id.
var remedies = []struct{ id, remedy string }{
	{"arguments", "The caller must send arguments that fit the tool's schema: caponier tools " +
		"--json."},
	{"throttle", "The caller must send fewer calls that are refused, or wait a minute."},
	{"withheld", "Offer the tool: [tools] in config.toml, and the flags of the server."},
	{"journal.", "The journal must be writable: look at its directory and disk; caponier check."},
	{"ledger.", "The store must be writable: look at its directory and disk; caponier check."},
	{"policy.", "The site's rules must answer without an error: the message names the file and " +
		"line; test the rule with this question (caponier policy eval, input of the record)."},
	{"approval.denied", "A person said no. Another call can be asked for again."},
	{"approval.", "A person must be able to say yes: approval in data.yaml, [approval] in " +
		"config.toml."},
	{"credential", "The caller must sign in again."},
}

// ofHost explains a refusal that policy did not make, from the record alone.
func (x *Explanation) ofHost(r terms.Record) {
	x.Host, x.Same, x.Allowed = true, true, r.Type != "refused"
	x.Tier, x.Failed, x.Denied = r.Tier, append([]string{}, r.Failed...), r.Denied
	for _, id := range r.Failed {
		c := FailedCheck{ID: id, Says: says(id, terms.Decision{Failed: r.Failed, Denied: r.Denied}),
			Remedy: "The message says it; the log of the host at that time has more.",
			Rules:  []string{}, Stuck: []string{}, Entries: []Entry{}, Data: map[string]any{}}
		for _, known := range remedies {
			if strings.HasPrefix(id, known.id) {
				c.Remedy = known.remedy
				break
			}
		}
		x.Checks = append(x.Checks, c)
	}
}

// guests returns the guests that a recorded question is about, by number, and by name where the
// record has it.
func guests(input json.RawMessage) []string {
	var q struct {
		Targets struct{ VMIDs []string }
		Parent  struct{ Targets struct{ VMIDs []string } }
		Guests  map[string]struct{ Name string }
	}
	if json.Unmarshal(input, &q) != nil {
		return []string{}
	}
	all := slices.Concat(q.Targets.VMIDs, q.Parent.Targets.VMIDs)
	for i, vmid := range all {
		all[i] = strings.TrimSpace(vmid + " " + q.Guests[vmid].Name)
	}
	return append([]string{}, all...)
}

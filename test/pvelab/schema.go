package pvelab

import (
	"slices"
	"strings"
)

// The parameters that several methods share, as the real schemas have them.
var (
	pNode = param{
		Name:   "node",
		Type:   "string",
		Format: "pve-node",
		Desc:   "The cluster node name.",
	}
	pVMID = param{
		Name:   "vmid",
		Type:   "integer",
		Format: "pve-vmid",
		Desc:   "The (unique) ID of the VM.",
	}
	pSnap = param{
		Name:   "snapname",
		Type:   "string",
		Format: "pve-configid",
		MaxLen: 40,
		Desc:   "The name of the snapshot.",
	}
	pStorage = param{
		Name:   "storage",
		Type:   "string",
		Format: "pve-storage-id",
		Desc:   "The storage identifier.",
	}
	pUPID    = param{Name: "upid", Type: "string", Desc: "The task's unique ID."}
	pService = param{Name: "service", Type: "string", Enum: pveServices, Desc: "Service ID"}
	pTimeout = opt("timeout", "integer").min("0")
)

func opt(name, typ string) param { return param{Name: name, Type: typ, Optional: true} }

func (p param) min(n string) param          { p.Min = n; return p }
func (p param) format(f string) param       { p.Format = f; return p }
func (p param) enum(words string) param     { p.Enum = strings.Fields(words); return p }
func (p param) text(def, desc string) param { p.Default, p.Desc = def, desc; return p }
func (p param) optional() param             { p.Optional = true; return p }

func with(base []param, more ...param) []param {
	return append(append([]param(nil), base...), more...)
}

// bools, strs and ints are options that need no more than a name.
func bools(names string) []param { return named(names, "boolean") }
func strs(names string) []param  { return named(names, "string") }
func ints(names string) []param  { return named(names, "integer") }

func named(names, typ string) (out []param) {
	for _, n := range strings.Fields(names) {
		out = append(out, opt(n, typ))
	}
	return out
}

func join(lists ...[]param) (out []param) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// Parameters of many methods.
var (
	guestParams   = []param{pNode, pVMID}
	snapParams    = with(guestParams, pSnap)
	newSnapParams = with(snapParams, opt("description", "string"))
	skipParam     = opt("skiplock",
		"boolean").text("", "Ignore locks - only root is allowed to use this option.")
	remoteParams = join(strs("storage target-bridge target-storage"), bools("delete online"),
		ints("bwlimit"))
)

// apiMethods names every API method that the lab knows. Those without Run are there for their words
// only: the option parser treats them as the real one does, and running them says that they are not
// simulated.
func apiMethods() map[string]*method {
	byName := map[string]*method{}
	for _, m := range slices.Concat(containerMethods(), vmMethods(), nodeMethods()) {
		byName[m.Class+"::"+m.Name] = m
	}
	return byName
}

func rrdParams(base []param) []param {
	return with(
		base,
		param{
			Name: "timeframe",
			Type: "string",
			Enum: strings.Fields("hour day week month year decade"),
		},
		opt("cf", "string").enum("AVERAGE MAX"),
	)
}

package remote

import (
	"slices"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
)

// aliasesOf returns, by name, which other entries of the inventory are the same machine: those with
// the same address and way there, and those whose pinned or known host keys have one in common.
// Machines that were cloned with their host keys count as one, since nothing tells them apart.
// Files that cannot be read are left out. The names are sorted.
func aliasesOf(o Options) map[string][]string {
	o = o.withDefaults()
	signs := make([]map[string]bool, len(o.Nodes))
	db, _ := knownhosts.NewDB(o.KnownHosts...)
	for i, n := range o.Nodes {
		way := n.Addr()
		for _, j := range n.Jump {
			way += " through " + j.Addr()
		}
		signs[i] = map[string]bool{"at " + way: true}
		if n.HostKey != "" {
			signs[i][n.HostKey] = true
		}
		if db == nil {
			continue
		}
		for _, key := range db.HostKeys(n.Addr()) {
			if !key.Cert { // the key of an authority is no machine's
				signs[i][ssh.FingerprintSHA256(key.PublicKey)] = true
			}
		}
	}
	group := make([]int, len(o.Nodes)) // of each node; equal numbers are one machine
	for i := range group {
		group[i] = i
		for j := range i {
			for sign := range signs[i] {
				if signs[j][sign] && group[i] != group[j] {
					for k, from := 0, group[i]; k <= i; k++ {
						if group[k] == from {
							group[k] = group[j]
						}
					}
				}
			}
		}
	}
	all := map[string][]string{}
	for i, n := range o.Nodes {
		for j, other := range o.Nodes {
			if i != j && group[i] == group[j] {
				all[n.Name] = append(all[n.Name], other.Name)
			}
		}
		slices.Sort(all[n.Name])
	}
	return all
}

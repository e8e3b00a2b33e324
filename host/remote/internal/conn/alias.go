package conn

import (
	"maps"
	"slices"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
)

// machine is what several entries of the inventory may be.
type machine struct {
	names []string
	signs map[string]bool // by which it is known: its address and way there, its host keys
}

// Aliases returns, by name, which other entries of the inventory are the same machine: those with
// the same address and way there, and those whose pinned or known host keys have one in common.
// Machines that were cloned with their host keys count as one, since nothing tells them apart.
// Files that cannot be read are left out. The names are sorted.
func Aliases(knownHosts []string, nodes []NodeOptions) map[string][]string {
	db, _ := knownhosts.NewDB(knownHosts...)
	var machines []machine
	for _, n := range nodes {
		m := machine{[]string{n.Name}, signsOf(n, db)}
		machines = slices.DeleteFunc(machines, func(other machine) bool {
			for sign := range other.signs {
				if m.signs[sign] {
					m.names = append(m.names, other.names...)
					maps.Copy(m.signs, other.signs)
					return true
				}
			}
			return false
		})
		machines = append(machines, m)
	}
	aliases := map[string][]string{}
	for _, m := range machines {
		slices.Sort(m.names)
		for i, name := range m.names {
			aliases[name] = slices.Delete(slices.Clone(m.names), i, i+1)
		}
	}
	return aliases
}

func signsOf(n NodeOptions, db *knownhosts.HostKeyDB) map[string]bool {
	way := "at " + n.Addr()
	for _, hop := range n.Jump {
		way += " through " + hop.Addr()
	}
	signs := map[string]bool{way: true}
	if n.HostKey != "" {
		signs[n.HostKey] = true
	}
	if db == nil {
		return signs
	}
	for _, key := range db.HostKeys(n.Addr()) {
		if !key.Cert { // the key of an authority is no machine's
			signs[ssh.FingerprintSHA256(key.PublicKey)] = true
		}
	}
	return signs
}

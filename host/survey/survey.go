// Package survey reads what an operation touches: guests as they are, with what else depends on
// them, on a node, a storage or a unit. Everything that it runs on a node only reads.
package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Ask runs a command on the node and returns its output. It returns an error if the command fails.
// It must be safe for concurrent use.
type Ask func(ctx context.Context, argv ...string) ([]byte, error)

// maxKeys limits the number of keys of one operation.
const maxKeys = 64

// keys are the forms of [terms.Touched].About.
var keys = regexp.MustCompile(`^(guest:[1-9][0-9]{2,8}` +
	`|(node|storage):[A-Za-z0-9][A-Za-z0-9._-]{0,99}` +
	`|unit:[A-Za-z0-9_@:][A-Za-z0-9_@:.\\-]{0,254})$`)

// Of reads from the node what these keys are, in their order, each once. It fails if it cannot read
// a guest. If it cannot read a job or a dependency, it says so in Also, because a forced command of
// the node may not allow it.
func Of(ctx context.Context, ask Ask, node string, about []string) ([]terms.Touched, error) {
	if len(about) > maxKeys {
		return nil, fmt.Errorf("%d things are touched; %d at most can be looked up", len(about),
			maxKeys)
	}
	r := &reader{ctx: ctx, ask: ask, node: node}
	all := []terms.Touched{}
	for _, key := range about {
		if !keys.MatchString(key) {
			return nil, fmt.Errorf("%q cannot be looked up", key)
		}
		if slices.ContainsFunc(all, func(t terms.Touched) bool { return t.About == key }) {
			continue
		}
		t, err := r.read(key)
		if err != nil {
			return nil, fmt.Errorf("looking up %s: %w", key, err)
		}
		slices.Sort(t.Also)
		t.Also = append([]string{}, slices.Compact(t.Also)...)
		all = append(all, t)
	}
	return all, nil
}

// reader keeps what more than one key needs.
type reader struct {
	ctx    context.Context
	ask    Ask
	node   string
	guests cluster.List
	jobs   func(cluster.Guest, string) []string // once the jobs were read
}

func (r *reader) read(key string) (terms.Touched, error) {
	kind, name, _ := strings.Cut(key, ":")
	t := terms.Touched{About: key}
	if kind == "unit" {
		t.Also = r.dependents(name)
		return t, nil
	}
	if err := r.cluster(); err != nil {
		return t, err
	}
	switch kind {
	case "node":
		for _, g := range r.guests.Guests {
			if g.Node == name && (g.Status == "running" || !g.Known()) {
				t.Also = append(t.Also, named(g.VMID, g.Name))
			}
		}
		return t, nil
	case "storage":
		return t, r.storage(&t, name)
	}
	return t, r.guest(&t, name)
}

// word is a scalar of the API, which writes numbers as numbers or as text.
type word string

func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		if s = string(b); s == "null" {
			s = ""
		}
		if strings.ContainsAny(s, "[{") {
			return fmt.Errorf("%.40q is not a scalar", s)
		}
	}
	*w = word(s)
	return nil
}

// on reports whether a flag is set, as Perl sees it.
func (w word) on() bool { return w != "" && w != "0" && w != "false" }

// named is a guest for people.
func named(id, name string) string {
	return strings.TrimSpace(fmt.Sprintf("guest %s %s", id, name))
}

// get reads a path of the API. pvesh(1).
func (r *reader) get(path string, out any) error {
	b, err := r.ask(r.ctx, "pvesh", "get", path, "--output-format", "json")
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return fmt.Errorf("pvesh get %s: %w", path, err)
	}
	return nil
}

// cluster reads the list of guests and the jobs, once, at the same time.
func (r *reader) cluster() error {
	if r.jobs != nil {
		return nil
	}
	var backups []backup
	var replications []replication
	var noBackups, noReplications error
	var reads sync.WaitGroup
	reads.Go(func() { noBackups = r.get("/cluster/backup", &backups) })
	reads.Go(func() { noReplications = r.get("/cluster/replication", &replications) })
	list, err := r.ask(r.ctx, "pvesh", "get", "/cluster/resources", "--type", "vm",
		"--output-format", "json")
	reads.Wait()
	if err == nil {
		r.guests, err = cluster.Read(list)
	}
	if err != nil {
		return fmt.Errorf("pvesh get /cluster/resources: %w", err)
	}
	r.jobs = func(g cluster.Guest, storage string) (all []string) {
		for _, b := range backups {
			if b.of(g) || storage != "" && string(b.Storage) == storage {
				all = append(all, fmt.Sprintf("backup job %s to %s", b.ID, b.Storage))
			}
		}
		for _, j := range replications {
			if string(j.Guest) == g.VMID && g.VMID != "" && !j.Disable.on() {
				all = append(all, fmt.Sprintf("replication %s to %s", j.ID, j.Target))
			}
		}
		if noBackups != nil {
			all = append(all, "backup jobs, which the node did not report")
		}
		if noReplications != nil && g.VMID != "" {
			all = append(all, "replication jobs, which the node did not report")
		}
		return all
	}
	return nil
}

type replication struct{ ID, Guest, Target, Disable word }

type backup struct {
	ID, Enabled, All, VMID, Exclude, Pool, Storage, Node word
}

// of reports whether a backup job includes a guest. A job is enabled by default.
func (b backup) of(g cluster.Guest) bool {
	lists := func(ids word) bool {
		return slices.Contains(strings.FieldsFunc(string(ids), func(r rune) bool {
			return r == ',' || r == ' ' || r == ';'
		}), g.VMID)
	}
	switch {
	case g.VMID == "", b.Enabled != "" && !b.Enabled.on(), b.Node != "" && string(b.Node) != g.Node:
		return false
	case b.All.on():
		return !lists(b.Exclude)
	}
	return lists(b.VMID) || b.Pool != "" && string(b.Pool) == g.Pool
}

// guest reads the state and the configuration of a guest at the same time. The list of resources
// is of some seconds ago, and knows where it is.
func (r *reader) guest(t *terms.Touched, id string) error {
	g, is := r.guests.Guest(id)
	if !is {
		return nil
	}
	if !g.Known() {
		return fmt.Errorf("what the cluster lists of guest %s is not known to be so", id)
	}
	path := fmt.Sprintf("/nodes/%s/%s/%s/", g.Node, g.Kind, id)
	var now struct {
		Status, QMPStatus word
		HA                struct{ Managed, Group word }
	}
	var config struct{ Digest word }
	var noConfig error
	var reads sync.WaitGroup
	reads.Go(func() { noConfig = r.get(path+"config", &config) })
	err := r.get(path+"status/current", &now)
	reads.Wait()
	switch err = cmp.Or(err, noConfig); {
	case err != nil:
		return err
	case now.Status == "" || config.Digest == "":
		return fmt.Errorf("%s has no status, or no digest of its configuration", path)
	}
	t.Name, t.Kind, t.Node = g.Name, g.Kind, g.Node
	t.Status, t.Config = string(cmp.Or(now.QMPStatus, now.Status)), string(config.Digest)
	t.Also = r.jobs(g, "")
	if now.HA.Managed.on() {
		t.Also = append(t.Also, strings.TrimSpace("high availability "+
			string(now.HA.Group)))
	}
	return nil
}

// storage reads which guests have something on a storage, and which jobs write to it.
func (r *reader) storage(t *terms.Touched, name string) error {
	var volumes []struct{ VMID word }
	if err := r.get("/nodes/"+r.node+"/storage/"+name+"/content", &volumes); err != nil {
		return err
	}
	for _, v := range volumes {
		if g, _ := r.guests.Guest(string(v.VMID)); v.VMID != "" {
			t.Also = append(t.Also, named(string(v.VMID), g.Name))
		}
	}
	t.Also = append(t.Also, r.jobs(cluster.Guest{}, name)...)
	return nil
}

// dependents are the units that stop or restart with a unit. systemctl(1), systemd.unit(5).
func (r *reader) dependents(unit string) (all []string) {
	out, err := r.ask(r.ctx, "systemctl", "show", "--property=RequiredBy,BoundBy,ConsistsOf", "--",
		unit)
	if err != nil {
		return []string{"units that depend on it, which the node did not report"}
	}
	for line := range strings.Lines(string(out)) {
		_, names, _ := strings.Cut(strings.TrimSpace(line), "=")
		for _, n := range strings.Fields(names) {
			all = append(all, "unit "+n)
		}
	}
	return all
}

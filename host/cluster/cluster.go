// Package cluster reads lists of guests strictly: one that cannot be true is an error. It is pure.
package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of one list. A row is a flat object, except for some nested values.
const (
	maxRows  = 20_000
	maxDepth = 8
	maxText  = 2048 // bytes of a name, or of all tags
)

// Guest is a VM or a container.
type Guest struct {
	VMID     string // 100 to 999999999, in decimals
	Kind     string // lxc | qemu
	Node     string // that it is on
	Status   string // running, stopped …; "unknown" where Known reports false
	Name     string // "" if it has none, or its node sends nothing
	Pool     string // "" for none
	HA       string // state of its high availability, "" if that does not manage it
	Tags     []string
	Template bool
}

// Known reports whether the list describes the guest reliably. It does not if the guest's node
// sends nothing, if its name, tags or pool have a form that Proxmox never uses, or if its node is
// not in the list. Callers must not rely on such a guest.
func (g Guest) Known() bool { return g.Status != unknown }

// Node is a member of the cluster.
type Node struct{ Name, Status string }

// List is the output of `pvesh get /cluster/resources`, with or without `--type vm`. Guests are
// sorted by number, and nodes by name.
type List struct {
	Guests []Guest
	Nodes  []Node // none with --type vm
}

// Guest returns a guest of the list. If there is none, the cluster has no such guest, because
// [Read] returns only complete lists.
func (l List) Guest(id string) (Guest, bool) {
	i, is := slices.BinarySearchFunc(l.Guests, Guest{VMID: id}, byNumber)
	if !is {
		return Guest{}, false
	}
	return l.Guests[i], true
}

func byNumber(a, b Guest) int {
	return cmp.Or(len(a.VMID)-len(b.VMID), strings.Compare(a.VMID, b.VMID))
}

// Read reads a list. It returns an error if the input is not a list, is empty, or names something
// twice, or if a row lacks a required value, has a value of a wrong type or form, or contradicts
// itself or another row. A wrong value that others can write for a guest makes only it unknown.
func Read(data []byte) (List, error) {
	var l List
	err := rows(data, func(r row) error { return l.add(r) })
	switch {
	case err != nil:
		return List{}, fmt.Errorf("the list of guests: %w", err)
	case len(l.Guests) == 0 && len(l.Nodes) == 0:
		return List{}, errors.New("the list of guests has none, and no nodes: it says nothing")
	}
	slices.SortFunc(l.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(l.Guests, byNumber)
	if err := l.sound(); err != nil {
		return List{}, err
	}
	return l, nil
}

// Quorate reads the output of `pvesh get /cluster/status`. It returns an error if the node has no
// quorum, because its list of guests may then be old. A node without a cluster needs no quorum. A
// node that is known to be a member of a cluster must report the cluster.
func Quorate(data []byte, member bool) error {
	members, clusters := 0, []any{}
	err := rows(data, func(r row) error {
		switch r["type"] {
		case "node":
			members++
		case "cluster":
			clusters = append(clusters, r["quorate"])
		default:
			return fmt.Errorf("its type is %s", shown(r["type"]))
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("the state of the cluster: %w", err)
	case members == 0 || len(clusters) > 1:
		return fmt.Errorf("the state of the cluster has %d nodes and %d clusters", members,
			len(clusters))
	case len(clusters) == 0 && member:
		return errors.New("the node shows no cluster, and the inventory has others in its cluster")
	case len(clusters) == 1 && clusters[0] != json.Number("1"):
		return fmt.Errorf("the node has no quorum (quorate is %s), so what it lists may be old",
			shown(clusters[0]))
	}
	return nil
}

// sound reports contradictions between rows.
func (l *List) sound() error {
	for i := 1; i < len(l.Nodes); i++ {
		if l.Nodes[i].Name == l.Nodes[i-1].Name {
			return fmt.Errorf("the list of guests has node %s twice", l.Nodes[i].Name)
		}
	}
	for i, g := range l.Guests {
		if i > 0 && l.Guests[i-1].VMID == g.VMID {
			return fmt.Errorf("the list of guests has guest %s twice", g.VMID)
		}
		if len(l.Nodes) > 0 && !slices.ContainsFunc(l.Nodes, func(n Node) bool {
			return n.Name == g.Node
		}) {
			l.Guests[i].Status = unknown // its node has left the cluster
		}
	}
	return nil
}

// The forms of what rows hold. Proxmox has its own for each of them: pve-vmid, pve-node, pve-tag.
var (
	vmids  = regexp.MustCompile(`^[1-9][0-9]{2,8}$`)
	nodes  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	states = regexp.MustCompile(`^[a-z][a-z_-]{0,31}$`)
	pools  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}(/[A-Za-z0-9._-]{1,255}){0,2}$`)
	tags   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}$`)
)

const unknown = "unknown"

// row holds the members of a row that are read: text, or a number as it is written.
type row map[string]any

var members = []string{"id", "type", "vmid", "node", "name", "status", "pool", "tags", "template",
	"hastate", "quorate"}

func (l *List) add(r row) error {
	kind, err := r.text("type", states, true)
	if err != nil {
		return err
	}
	id, _ := r["id"].(string)
	of, _, _ := strings.Cut(id, "/")
	number, isGuest := r["vmid"]
	switch {
	case kind == "lxc" || kind == "qemu":
	case isGuest:
		return fmt.Errorf("guest %v is listed as %q", number, kind)
	case of == "lxc" || of == "qemu":
		return fmt.Errorf("%.60s is listed as %q", id, kind)
	case kind == "node":
		return l.addNode(r)
	default:
		return nil // a storage, a pool, a network
	}
	g, err := r.guest(kind)
	if err != nil {
		return err
	}
	l.Guests = append(l.Guests, g)
	return nil
}

func (l *List) addNode(r row) error {
	name, err := r.text("node", nodes, true)
	if err != nil {
		return err
	}
	status, err := r.text("status", states, true)
	if err == nil && r["id"] != "node/"+name {
		err = fmt.Errorf("node %s has the id %q", name, r["id"])
	}
	l.Nodes = append(l.Nodes, Node{name, status})
	return err
}

func (r row) guest(kind string) (g Guest, err error) {
	number, is := r["vmid"].(json.Number)
	if !is || !vmids.MatchString(string(number)) {
		return g, fmt.Errorf("%v is not the number of a guest", shown(r["vmid"]))
	}
	g.VMID, g.Kind = string(number), kind
	if r["id"] != kind+"/"+g.VMID {
		return g, fmt.Errorf("guest %s of type %s has the id %v", g.VMID, kind, shown(r["id"]))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("guest %s: %w", g.VMID, err)
		}
	}()
	var labels string
	odd := false
	for _, m := range []struct {
		name         string
		form         *regexp.Regexp
		must, others bool // others: who may write it may write no more than this guest
		to           *string
	}{{"node", nodes, true, false, &g.Node}, {"status", states, true, false, &g.Status},
		{"name", nil, false, true, &g.Name}, {"pool", pools, false, true, &g.Pool},
		{"hastate", states, false, false, &g.HA}, {"tags", nil, false, true, &labels}} {
		if *m.to, err = r.text(m.name, m.form, m.must); err != nil {
			if _, is := r[m.name].(string); !is || !m.others {
				return g, err
			}
			odd, err = true, nil
		}
	}
	g.Tags = strings.FieldsFunc(labels, func(c rune) bool { return strings.ContainsRune(";, ", c) })
	if odd || slices.ContainsFunc(g.Tags, func(t string) bool { return !tags.MatchString(t) }) {
		g.Status, g.Tags = unknown, []string{}
	}
	switch r["template"] {
	case nil, json.Number("0"):
	case json.Number("1"):
		g.Template = true
	default:
		return g, fmt.Errorf("template is %v, which is neither 0 nor 1", shown(r["template"]))
	}
	return g, nil
}

// text returns a member that is text of this form; nil is any line of at most maxText bytes.
func (r row) text(name string, form *regexp.Regexp, must bool) (string, error) {
	v, there := r[name]
	if !there && !must {
		return "", nil
	}
	s, is := v.(string)
	hidden := func(c rune) bool { return !unicode.IsPrint(c) }
	if !is || form != nil && !form.MatchString(s) ||
		form == nil && (len(s) > maxText || strings.ContainsFunc(s, hidden)) {
		return "", fmt.Errorf("its %s is %s", name, shown(v))
	}
	return s, nil
}

// shown is a value for people.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing, or null"
	case string:
		return fmt.Sprintf("the text %.60q", v)
	}
	return fmt.Sprintf("%.60v", v)
}

// rows calls add for each row of a list.
func rows(data []byte, add func(row) error) error {
	if !utf8.Valid(data) {
		return errors.New("it is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("it is not a JSON list")
	}
	for n := 0; d.More(); n++ {
		if n == maxRows {
			return fmt.Errorf("it has more than %d rows", maxRows)
		}
		r, err := readRow(d)
		if err == nil {
			err = add(r)
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", n+1, err)
		}
	}
	if _, err := d.Token(); err != nil { // the end of the list
		return fmt.Errorf("it is cut off: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more follows it")
	}
	return nil
}

func readRow(d *json.Decoder) (row, error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not an object")
	}
	r, seen := row{}, map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := key.(string) // the decoder lets no other key pass
		if folded := strings.ToLower(name); seen[folded] {
			return nil, fmt.Errorf("it has %.60q twice", name)
		} else {
			seen[folded] = true
		}
		v, err := value(d, 1)
		if err != nil {
			return nil, err
		}
		if slices.Contains(members, name) {
			r[name] = v
		}
	}
	_, err := d.Token()
	return r, err
}

// value reads a value. Of an object or a list it returns the first delimiter.
func value(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if _, nests := t.(json.Delim); err != nil || !nests {
		return t, err
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("it nests deeper than %d", maxDepth)
	}
	for d.More() {
		if _, err := value(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return t, err
}

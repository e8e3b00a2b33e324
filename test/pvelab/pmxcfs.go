package pvelab

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pveNode is one name below /etc/pve: the cluster file system, shown from the state and, for a
// guest's configuration, written back to it.
type pveNode struct {
	lab  *Lab
	self string // the node that looks
	// below /etc/pve, without a leading slash; the lxc and qemu-server shortcuts already followed
	name string
}

func (t *tree) pve(name string) (pveNode, bool) {
	rest, ok := strings.CutPrefix(path.Clean("/"+name), "/etc/pve")
	if t.node == "" || !ok || (rest != "" && rest[0] != '/') {
		return pveNode{}, false
	}
	rest = strings.TrimPrefix(rest, "/")
	for _, short := range []string{"lxc", "qemu-server"} {
		if rest == short || strings.HasPrefix(rest, short+"/") {
			rest = "nodes/" + t.node + "/" + rest
		}
	}
	return pveNode{t.lab, t.node, rest}, true
}

// entry answers what a name is: a directory's names, or a file's text.
func (v pveNode) entry() (dir []string, text string, isDir bool, err error) {
	err = fs.ErrNotExist
	verr := v.lab.db.view(func(s *State) {
		part := strings.Split(v.name, "/")
		n := (*Node)(nil)
		if len(part) > 1 && part[0] == "nodes" {
			n = s.node(part[1])
		}
		switch {
		case v.name == "":
			dir, isDir, err = []string{
				".members",
				".vmlist",
				"lxc",
				"nodes",
				"qemu-server",
			}, true, nil
		case v.name == ".members":
			text, err = members(s, v.self), nil
		case v.name == ".vmlist":
			text, err = vmlist(s), nil
		case v.name == "nodes":
			for _, n := range s.Nodes {
				dir = append(dir, n.Name)
			}
			isDir, err = true, nil
		case n != nil && len(part) == 2:
			dir, isDir, err = []string{"config", "lxc", "qemu-server"}, true, nil
		case n != nil && len(part) == 3 && part[2] == "config":
			text, err = nodeConfig(n), nil
		case n != nil && (part[2] == "lxc" || part[2] == "qemu-server"):
			typ := confType(part[2])
			if len(part) == 3 {
				for _, g := range s.sortedGuests(func(g *Guest) bool {
					return g.Node == n.Name &&
						g.Type == typ
				}) {
					dir = append(dir, g.id()+".conf")
				}
				isDir, err = true, nil
			} else if g := confGuest(s, v.name); g != nil {
				text, err = g.conf(), nil
			}
		}
	})
	if verr != nil {
		err = verr
	}
	return dir, text, isDir, err
}

func confType(dir string) string {
	if dir == "lxc" {
		return "lxc"
	}
	return "qemu"
}

func confDir(typ string) string {
	if typ == "lxc" {
		return "lxc"
	}
	return "qemu-server"
}

// confGuest finds the guest of nodes/N/lxc/I.conf.
func confGuest(s *State, name string) *Guest {
	part := strings.Split(name, "/")
	if len(part) != 4 || part[0] != "nodes" {
		return nil
	}
	id, ok := strings.CutSuffix(part[3], ".conf")
	vmid, err := strconv.Atoi(id)
	if !ok || err != nil {
		return nil
	}
	return s.local(part[1], confType(part[2]), vmid)
}

func (v pveNode) stat() (info, error) {
	_, text, isDir, err := v.entry()
	if err != nil {
		return info{}, &fs.PathError{Op: "stat", Path: "/etc/pve/" + v.name, Err: syscall.ENOENT}
	}
	i := info{name: path.Base("/" + v.name), mode: 0o640, gid: 33}
	i.FileInfo = memInfo(len(text))
	if isDir {
		i.mode = fs.ModeDir | 0o755
	}
	return i, nil
}

func (v pveNode) readDir() ([]info, error) {
	names, _, isDir, err := v.entry()
	if err != nil || !isDir {
		return nil, &fs.PathError{Op: "open", Path: "/etc/pve/" + v.name, Err: syscall.ENOTDIR}
	}
	var out []info
	for _, n := range names {
		if i, err := (pveNode{v.lab, v.self, path.Join(v.name, n)}).stat(); err == nil {
			i.name = n
			out = append(out, i)
		}
	}
	return out, nil
}

// open refuses to write without quorum, and knows no other files than the guests' configurations to
// write to.
func (v pveNode) open(flag int) (file, error) {
	_, text, isDir, err := v.entry()
	write := flag&(os.O_WRONLY|os.O_RDWR) != 0
	bad := func(no syscall.Errno) (file, error) {
		return nil, &fs.PathError{Op: "open", Path: "/etc/pve/" + v.name, Err: no}
	}
	switch {
	case write:
		ok := false
		_ = v.lab.db.view(func(s *State) { ok = s.quorate() && confGuest(s, v.name) != nil })
		if !ok {
			return bad(syscall.EACCES)
		}
	case err != nil:
		return bad(syscall.ENOENT)
	case isDir:
		return bad(syscall.EISDIR)
	}
	f := &pveFile{node: v, write: write}
	if flag&os.O_TRUNC == 0 {
		f.text = []byte(text)
	}
	if flag&os.O_APPEND != 0 {
		f.off = len(f.text)
	}
	return f, nil
}

// pveFile is an open file of the cluster file system; what was written takes effect when it is
// closed.
type pveFile struct {
	node  pveNode
	text  []byte
	off   int
	write bool
}

func (f *pveFile) Read(b []byte) (int, error) {
	n, err := f.ReadAt(b, int64(f.off))
	f.off += n
	return n, err
}

func (f *pveFile) ReadAt(b []byte, off int64) (int, error) {
	if off >= int64(len(f.text)) {
		return 0, io.EOF
	}
	n := copy(b, f.text[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *pveFile) Write(b []byte) (int, error) {
	n, err := f.WriteAt(b, int64(f.off))
	f.off += n
	return n, err
}

func (f *pveFile) WriteAt(b []byte, off int64) (int, error) {
	end := int(off) + len(b)
	if !f.write || end > 1<<20 {
		return 0, syscall.EBADF
	}
	if end > len(f.text) {
		f.text = append(f.text, make([]byte, end-len(f.text))...)
	}
	return copy(f.text[off:], b), nil
}

func (f *pveFile) Close() error {
	if !f.write {
		return nil
	}
	return f.node.lab.db.update(func(s *State) error {
		g := confGuest(s, f.node.name)
		if g == nil || !s.quorate() {
			return syscall.EACCES
		}
		g.parseConf(string(f.text))
		return nil
	})
}

type memInfo int

func (m memInfo) Name() string     { return "" }
func (m memInfo) Size() int64      { return int64(m) }
func (memInfo) Mode() fs.FileMode  { return 0o640 }
func (memInfo) ModTime() time.Time { return time.Now() }
func (memInfo) IsDir() bool        { return false }
func (memInfo) Sys() any           { return nil }

// conf writes a guest's configuration file.
func (g *Guest) conf() string {
	var b strings.Builder
	section := func(c map[string]string) {
		if d := c["description"]; d != "" {
			for _, line := range strings.Split(strings.TrimSuffix(d, "\n"), "\n") {
				b.WriteString("#" + line + "\n")
			}
		}
		for _, k := range slices.Sorted(maps.Keys(c)) {
			if k != "description" {
				fmt.Fprintf(&b, "%s: %s\n", k, c[k])
			}
		}
	}
	section(g.Config)
	for _, s := range g.Snapshots {
		fmt.Fprintf(&b, "\n[%s]\n", s.Name)
		section(s.Config)
		fmt.Fprintf(&b, "snaptime: %d\n", s.Time)
		if s.Parent != "" {
			fmt.Fprintf(&b, "parent: %s\n", s.Parent)
		}
	}
	return b.String()
}

// parseConf takes the current section back; snapshots are changed by their commands only.
func (g *Guest) parseConf(text string) {
	c, desc := map[string]string{}, ""
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "[") {
			break
		}
		if rest, ok := strings.CutPrefix(line, "#"); ok {
			desc += rest + "\n"
		} else if k, v, ok := strings.Cut(line, ":"); ok {
			c[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	if desc != "" {
		if g.Type == "qemu" {
			desc = strings.TrimSuffix(desc, "\n")
		}
		c["description"] = desc
	}
	g.Config = c
}

func digest(text string) string {
	h := sha1.Sum([]byte(text))
	return hex.EncodeToString(h[:])
}

func nodeConfig(n *Node) string {
	s := ""
	for _, line := range strings.Split(n.Description, "\n") {
		if n.Description != "" {
			s += "#" + line + "\n"
		}
	}
	if n.WakeMAC != "" {
		s += "wakeonlan: mac=" + n.WakeMAC + "\n"
	}
	return s
}

func members(s *State, self string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n\"nodename\": %q,\n\"version\": 7,\n", self)
	if s.Cluster != "" {
		fmt.Fprintf(&b,
			"\"cluster\": { \"name\": %q, \"version\": %d, \"nodes\": %d, \"quorate\": %d },\n",
			s.Cluster, s.ClusterVersion, len(s.Nodes), bit(s.quorate()))
		b.WriteString("\"nodelist\": {\n")
		for i, n := range s.Nodes {
			sep := ","
			if i == len(s.Nodes)-1 {
				sep = ""
			}
			fmt.Fprintf(&b, "  %q: { \"id\": %d, \"online\": %d, \"ip\": %q}%s\n", n.Name, n.ID,
				bit(!n.Offline), n.IP, sep)
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func vmlist(s *State) string {
	var rows []string
	newest := 1
	for _, g := range s.Guests {
		rows = append(
			rows,
			fmt.Sprintf("\"%d\": { \"node\": %q, \"type\": %q, \"version\": %d }", g.VMID, g.Node,
				g.Type, max(1, g.Version)),
		)
		newest = max(newest, g.Version)
	}
	return fmt.Sprintf("{\n\"version\": %d,\n\"ids\": {\n%s}\n\n}\n", newest,
		strings.Join(rows, ",\n"))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

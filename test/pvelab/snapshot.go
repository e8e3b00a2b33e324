package pvelab

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// canSnapshot: containers need a storage with subvolumes of its own, VMs a qcow2 disk or such a
// storage.
func canSnapshot(s *State, g *Guest) bool {
	keys := []string{"rootfs"}
	if g.Type == "qemu" {
		keys = slices.Sorted(maps.Keys(g.Config))
	}
	for _, k := range keys {
		if g.Type == "qemu" && !isDrive(k, g.Config[k]) {
			continue
		}
		vol, _, _ := strings.Cut(g.Config[k], ",")
		id, _, _ := strings.Cut(vol, ":")
		st := s.storage(g.Node, id)
		if st == nil {
			return false
		}
		if !slices.Contains([]string{"btrfs", "zfspool", "lvmthin", "rbd"}, st.Type) &&
			!strings.HasSuffix(vol, ".qcow2") {
			return false
		}
	}
	return true
}

func isDrive(key, val string) bool {
	for _, bus := range []string{"scsi", "virtio", "ide", "sata"} {
		if rest, ok := strings.CutPrefix(key, bus); ok && rest != "" && rest[0] >= '0' &&
			rest[0] <= '9' {
			return strings.Contains(val, ":") && !strings.Contains(val, "media=cdrom")
		}
	}
	return false
}

func snapshotTask(typ, verb string) string {
	return map[string]string{"lxc": "vz", "qemu": "qm"}[typ] + verb
}

func snapCreate(typ string) func(context.Context, *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		name := c.vals["snapname"]
		if name == "current" || name == "vzdump" {
			return nil, die(255, "unable to use snapshot name '%s' (reserved name)", name)
		}
		return c.worker(
			ctx,
			snapshotTask(typ, "snapshot"),
			fmt.Sprint(c.vmid()),
			func(out io.Writer) error {
				g, err := c.guest(typ, 255)
				if err != nil {
					return err
				}
				if err := c.configLock(ctx, out, typ); err != nil {
					return err
				}
				if err := g.locked(false); err != nil {
					return err
				}
				if g.snapshot(name) != nil {
					return die(255, "snapshot name '%s' already used", name)
				}
				able := false
				_ = c.lab.db.view(func(s *State) { able = canSnapshot(s, g) })
				switch {
				case !able:
					return die(255, "snapshot feature is not available")
				case g.SnapLost:
					return nil
				case g.SnapError != "": // AbstractConfig.pm, snapshot_create
					fmt.Fprintln(out, "snapshot create failed: starting cleanup")
					return die(255, "%s", g.SnapError)
				}
				if typ == "qemu" {
					for _, k := range slices.Sorted(maps.Keys(g.Config)) {
						if isDrive(k, g.Config[k]) {
							vol, _, _ := strings.Cut(g.Config[k], ",")
							fmt.Fprintf(out, "snapshotting 'drive-%s' (%s)\n", k, vol)
						}
					}
				}
				desc := c.vals["description"]
				if typ == "lxc" && desc != "" {
					desc += "\n" // it went through the comment lines of the configuration file
				}
				err = c.change(typ, true, func(_ *State, g *Guest) {
					cfg := maps.Clone(g.Config)
					delete(cfg, "parent")
					delete(cfg, "description")
					g.Snapshots = append(
						g.Snapshots,
						&Snapshot{
							Name:        name,
							Parent:      g.Config["parent"],
							Description: desc,
							Time:        now(),
							VMState:     c.on("vmstate") && g.Running,
							Config:      cfg,
						},
					)
					g.Config["parent"] = name
				})
				if err == nil && typ == "lxc" {
					err = c.lab.saveTree(c.vmid(), name)
				}
				return err
			},
		)
	}
}

// saveTree keeps a copy of a container's files for rollback.
func (l *Lab) saveTree(vmid int, name string) error {
	from, to := l.ctTree(vmid, ""), l.tree(fmt.Sprintf("snap/%d/%s", vmid, name), "", 0)
	if from == nil || to == nil {
		return die(255, "unable to open the tree of CT %d", vmid)
	}
	return copyTree(from, to)
}

func (l *Lab) loadTree(vmid int, name string) error {
	from, to := l.tree(fmt.Sprintf("snap/%d/%s", vmid, name), "", 0), l.ctTree(vmid, "")
	if from == nil || to == nil {
		return die(255, "unable to open the tree of CT %d", vmid)
	}
	list, err := to.readDir("/")
	if err != nil {
		return err
	}
	for _, i := range list {
		if err := to.remove("/"+i.name, true); err != nil {
			return err
		}
	}
	return copyTree(from, to)
}

func copyTree(from, to *tree) error {
	var walk func(dir string) error
	walk = func(dir string) error {
		list, err := from.readDir(dir)
		if err != nil {
			return err
		}
		for _, i := range list {
			name := dir + i.name
			switch {
			case i.IsDir():
				if err = to.mkdirAll(name, i.mode); err == nil {
					err = walk(name + "/")
				}
			case i.mode&fs.ModeSymlink != 0:
				var target string
				if target, err = from.readlink(name); err == nil {
					err = to.symlink(target, name)
				}
			default:
				var b []byte
				if b, err = from.readFile(name); err == nil {
					if err = to.writeFile(name, b, i.mode); err == nil {
						err = to.chown(name, i.uid, i.gid)
					}
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return walk("/")
}

func snapDelete(typ string) func(context.Context, *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		name := c.vals["snapname"]
		return c.worker(
			ctx,
			snapshotTask(typ, "delsnapshot"),
			fmt.Sprint(c.vmid()),
			func(out io.Writer) error {
				g, err := c.guest(typ, 255)
				if err != nil {
					return err
				}
				if err := c.configLock(ctx, out, typ); err != nil {
					return err
				}
				snap := g.snapshot(name)
				if snap == nil {
					return die(255, "snapshot '%s' does not exist", name)
				}
				if err := g.locked(c.on("force")); err != nil {
					return err
				}
				return c.change(typ, true, func(_ *State, g *Guest) {
					for _, s := range g.Snapshots {
						if s.Parent == name {
							s.Parent = snap.Parent
						}
					}
					if g.Config["parent"] == name {
						if g.Config["parent"] = snap.Parent; snap.Parent == "" {
							delete(g.Config, "parent")
						}
					}
					g.Snapshots = slices.DeleteFunc(
						g.Snapshots,
						func(s *Snapshot) bool { return s.Name == name },
					)
				})
			},
		)
	}
}

func snapRollback(typ string) func(context.Context, *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		name := c.vals["snapname"]
		return c.worker(
			ctx,
			snapshotTask(typ, "rollback"),
			fmt.Sprint(c.vmid()),
			func(out io.Writer) error {
				g, err := c.guest(typ, 255)
				if err != nil {
					return err
				}
				if err := c.configLock(ctx, out, typ); err != nil {
					return err
				}
				snap := g.snapshot(name)
				if snap == nil {
					return die(255, "snapshot '%s' does not exist", name)
				}
				if err := g.locked(false); err != nil {
					return err
				}
				if g.Running {
					if err := c.halt(typ); err != nil {
						return err
					}
				}
				err = c.change(typ, true, func(_ *State, g *Guest) {
					desc := g.Config["description"]
					g.Config = maps.Clone(snap.Config)
					if g.Config["parent"] = name; desc != "" {
						g.Config["description"] = desc
					}
				})
				if err == nil && typ == "lxc" {
					err = c.lab.loadTree(c.vmid(), name)
				}
				if err != nil || !c.on("start") {
					return err
				}
				if typ == "lxc" {
					return c.startCT(ctx, out)
				}
				return c.startVM(ctx, out)
			},
		)
	}
}

func snapList(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		var out []any
		for _, s := range g.Snapshots {
			row := map[string]any{"name": s.Name, "description": s.Description, "snaptime": s.Time}
			if s.Parent != "" {
				row["parent"] = s.Parent
			}
			if typ == "qemu" {
				row["vmstate"] = bit(s.VMState)
			}
			out = append(out, row)
		}
		c.lab.shuffle(out)
		last := map[string]any{
			"name":        "current",
			"description": "You are here!",
			"digest":      digest(g.conf()),
			"running":     bit(g.Running),
		}
		if p := g.Config["parent"]; p != "" {
			last["parent"] = p
		}
		return append(out, last), nil
	}
}

func snapConfig(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		s := g.snapshot(c.vals["snapname"])
		if s == nil {
			return nil, die(255, "snapshot '%s' does not exist", c.vals["snapname"])
		}
		out := configJSON(g, s.Config)
		if out["snaptime"] = s.Time; s.Description != "" {
			out["description"] = s.Description
		}
		if s.Parent != "" {
			out["parent"] = s.Parent
		}
		return out, nil
	}
}

func snapIndex(_ context.Context, _ *call) (any, error) {
	return []any{map[string]any{"cmd": "config"}, map[string]any{"cmd": "rollback"}}, nil
}

func feature(typ string) func(context.Context, *call) (any, error) {
	return func(_ context.Context, c *call) (any, error) {
		g, err := c.guest(typ, 2)
		if err != nil {
			return nil, err
		}
		able := true
		if c.vals["feature"] == "snapshot" {
			_ = c.lab.db.view(func(s *State) { able = canSnapshot(s, g) })
		}
		return map[string]any{"hasFeature": bit(able)}, nil
	}
}

// printSnapshots is the tree of listsnapshot.
func printSnapshots(c *call, v any) {
	rows := map[string]map[string]any{}
	kids := map[string][]string{}
	for _, r := range v.([]any) {
		m := r.(map[string]any)
		name := m["name"].(string)
		parent, _ := m["parent"].(string)
		rows[name] = m
		kids[parent] = append(kids[parent], name)
	}
	var show func(name string, depth int)
	show = func(name string, depth int) {
		m := rows[name]
		desc, _, _ := strings.Cut(fmt.Sprint(m["description"]), "\n")
		if desc == "" {
			desc = "no-description"
		}
		at := ""
		if t, ok := m["snaptime"].(int64); ok {
			at = time.Unix(t, 0).UTC().Format("2006-01-02 15:04:05")
		}
		label := strings.Repeat(" ", 1+depth) + "`-> " + name
		if depth == 0 {
			label = "`-> " + name
		}
		fmt.Fprintf(c.p.out, "%-*s %-21s %s\n", 33, label, at, desc)
		slices.Sort(kids[name])
		for _, k := range kids[name] {
			show(k, depth+1)
		}
	}
	slices.Sort(kids[""])
	for _, k := range kids[""] {
		show(k, 0)
	}
}

package pvelab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func pools(_ context.Context, c *call) (any, error) {
	out := []any{}
	err := c.lab.db.view(func(s *State) {
		for _, p := range s.Pools {
			switch c.vals["poolid"] {
			case "":
				out = append(out, map[string]any{"poolid": p.ID, "comment": p.Comment})
			case p.ID:
				out = append(out, poolRow(s, p, c.vals["type"]))
			}
		}
	})
	if err == nil && len(out) == 0 && c.vals["poolid"] != "" {
		err = die(255, "pool '%s' does not exist", c.vals["poolid"])
	}
	return out, err
}

func poolRow(s *State, p *Pool, typ string) map[string]any {
	members := []any{}
	for _, id := range p.Guests {
		if g := s.guest(id); g != nil && (typ == "" || typ == g.Type) {
			members = append(members, resourceRow(s, g, true))
		}
	}
	for _, id := range p.Storages {
		for _, st := range s.Storages {
			if st.ID == id && (typ == "" || typ == "storage") {
				members = append(members, storageResource(s, st))
			}
		}
	}
	return map[string]any{"poolid": p.ID, "comment": p.Comment, "members": members}
}

func poolRead(ctx context.Context, c *call) (any, error) {
	v, err := pools(ctx, c)
	if err != nil {
		return nil, err
	}
	row := v.([]any)[0].(map[string]any)
	delete(row, "poolid")
	return row, nil
}

func storageConfig(_ context.Context, c *call) (any, error) {
	out, seen := []any{}, map[string]bool{}
	err := c.lab.db.view(func(s *State) {
		for _, st := range s.Storages {
			if !seen[st.ID] && (c.vals["type"] == "" || c.vals["type"] == st.Type) {
				seen[st.ID] = true
				out = append(out, map[string]any{
					"storage": st.ID,
					"type":    st.Type,
					"content": strings.Join(st.Content, ","),
					"path":    "/var/lib/vz",
					"digest":  digest(st.ID),
					"shared":  bit(st.Shared),
				})
			}
		}
	})
	return out, err
}

func storageConfigRead(ctx context.Context, c *call) (any, error) {
	v, err := storageConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, r := range v.([]any) {
		if m := r.(map[string]any); m["storage"] == c.vals["storage"] {
			return m, nil
		}
	}
	return nil, die(255, "storage '%s' does not exist", c.vals["storage"])
}

// store finds a storage of the node that the call runs on.
func (c *call) store() (st Storage, err error) {
	err = die(255, "storage '%s' does not exist", c.vals["storage"])
	verr := c.lab.db.view(func(s *State) {
		if x := s.storage(c.node, c.vals["storage"]); x != nil {
			st, err = *x, nil
		}
	})
	if verr != nil {
		err = verr
	}
	return st, err
}

func storageRow(st *Storage) map[string]any {
	content := slices.Clone(st.Content)
	slices.Reverse(content) // hash order: nothing may rely on it
	return map[string]any{
		"active":  1,
		"enabled": 1,
		"shared":  bit(st.Shared),
		"type":    st.Type,
		"content": strings.Join(content, ","),
		"total":   st.Total,
		"used":    st.Used,
		"avail":   st.avail(),
	}
}

func (st *Storage) avail() int64 {
	if st.Available > 0 {
		return st.Available
	}
	return st.Total - st.Used
}

func storageStatus(_ context.Context, c *call) (any, error) {
	st, err := c.store()
	if err != nil {
		return nil, err
	}
	return storageRow(&st), nil
}

func storageList(_ context.Context, c *call) (any, error) {
	out := []any{}
	want := c.vals["storage"]
	err := c.lab.db.view(func(s *State) {
		for _, st := range s.Storages {
			if st.Node != c.node || (want != "" && want != st.ID) ||
				(c.vals["content"] != "" && !slices.Contains(st.Content, c.vals["content"])) {
				continue
			}
			m := storageRow(st)
			m["storage"], m["used_fraction"] = st.ID, float64(st.Used)/float64(max(st.Total, 1))
			out = append(out, m)
		}
	})
	if err == nil && want != "" && len(out) == 0 {
		err = verification(map[string]string{"storage": "No such storage."})
	}
	c.lab.shuffle(out)
	return out, err
}

func (v *Volume) row() map[string]any {
	m := map[string]any{
		"volid":   v.VolID,
		"content": v.Content,
		"format":  v.Format,
		"size":    v.Size,
		"ctime":   v.CTime,
	}
	if v.VMID != 0 {
		m["vmid"] = v.VMID
	}
	if v.Content == "images" || v.Content == "rootdir" {
		m["parent"], m["used"] = nil, v.Used
	}
	for k, s := range map[string]string{"subtype": v.Subtype, "notes": v.Notes} {
		if s != "" {
			m[k] = s
		}
	}
	if v.Protected {
		m["protected"] = 1
	}
	return m
}

func storageContent(_ context.Context, c *call) (any, error) {
	st, err := c.store()
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, v := range st.Volumes {
		if (c.vals["content"] == "" || c.vals["content"] == v.Content) &&
			(c.vals["vmid"] == "" || c.vmid() == v.VMID) {
			out = append(out, v.row())
		}
	}
	return out, nil
}

func volumeInfo(_ context.Context, c *call) (any, error) {
	st, err := c.store()
	if err != nil {
		return nil, err
	}
	for _, v := range st.Volumes {
		if v.VolID == c.vals["volume"] || v.VolID == st.ID+":"+c.vals["volume"] {
			m := v.row()
			delete(m, "volid")
			m["path"] = "/var/lib/vz/" + strings.TrimPrefix(v.VolID, st.ID+":")
			return m, nil
		}
	}
	return nil, die(255, "volume '%s' does not exist", c.vals["volume"])
}

func volumeDelete(ctx context.Context, c *call) (any, error) {
	if _, err := volumeInfo(ctx, c); err != nil {
		return nil, err
	}
	return nil, c.lab.db.update(func(s *State) error {
		st := s.storage(c.node, c.vals["storage"])
		for i, v := range st.Volumes {
			if v.VolID != c.vals["volume"] && v.VolID != st.ID+":"+c.vals["volume"] {
				continue
			}
			if v.Protected {
				return die(255, "volume '%s' is protected", v.VolID)
			}
			st.Volumes = slices.Delete(st.Volumes, i, i+1)
			return nil
		}
		return nil
	})
}

func networks(_ context.Context, c *call) (any, error) {
	return []any{
		map[string]any{
			"iface":        "vmbr0",
			"type":         "bridge",
			"active":       1,
			"autostart":    1,
			"address":      c.thisNode().IP,
			"netmask":      "24",
			"method":       "static",
			"bridge_ports": "eno1",
		},
	}, nil
}

func pvesmProgram() *program {
	m := apiMethods()
	other := func(names ...string) *method {
		o := &method{Class: "PVE::CLI::pvesm", Name: "other"}
		for _, n := range names {
			o.Params = append(o.Params, param{Name: n, Type: "string"})
		}
		return o
	}
	return &program{Name: "pvesm", Commands: []command{
		{"add", 0, []string{"type", "storage"}, other("type", "storage"), nil},
		{
			"alloc",
			0,
			[]string{"storage", "vmid", "filename", "size"},
			other("storage", "vmid", "filename", "size"),
			nil,
		},
		{"apiinfo", 0, nil, other(), nil},
		{
			"export",
			0,
			[]string{"volume", "format", "filename"},
			other("volume", "format", "filename"),
			nil,
		},
		{"extractconfig", 0, []string{"volume"}, other("volume"), nil},
		{"free", 0, []string{"volume"}, mustMethod(m, "PVE::API2::Storage::Content::delete"), nil},
		{
			"import",
			0,
			[]string{"volume", "format", "filename"},
			other("volume", "format", "filename"),
			nil,
		},
		{
			"list",
			0,
			[]string{"storage"},
			mustMethod(m, "PVE::API2::Storage::Content::index"),
			printVolumes,
		},
		{"path", 0, []string{"volume"}, other("volume"), nil},
		{"prune-backups", 0, []string{"storage"}, other("storage"), nil},
		{"remove", 0, []string{"storage"}, other("storage"), nil},
		{"set", 0, []string{"storage"}, other("storage"), nil},
		{"status", 0, nil, mustMethod(m, "PVE::API2::Storage::Status::index"), printStorages},
		{"help", 1, []string{"extra-args"}, mustMethod(m, "PVE::CLI::pvenode::help"), nil},
	}}
}

func printStorages(c *call, v any) {
	var rows []map[string]any
	wide := 4
	for _, r := range v.([]any) {
		m := r.(map[string]any)
		rows = append(rows, m)
		wide = max(wide, len(m["storage"].(string)))
	}
	slices.SortFunc(
		rows,
		func(a, b map[string]any) int {
			return strings.Compare(a["storage"].(string),
				b["storage"].(string))
		},
	)
	wide++
	fmt.Fprintf(c.p.out, "%-*s %10s %10s %15s %15s %15s %8s\n", wide, "Name", "Type", "Status",
		"Total (KiB)", "Used (KiB)", "Available (KiB)", "%")
	for _, m := range rows {
		total, used := m["total"].(int64), m["used"].(int64)
		pct := strconv.FormatFloat(100*float64(used)/float64(max(total, 1)), 'f', 2, 64) + "%"
		fmt.Fprintf(c.p.out, "%-*s %10s %10s %15d %15d %15d %8s\n", wide, m["storage"], m["type"],
			"active", total/1024, used/1024, m["avail"].(int64)/1024, pct)
	}
}

func printVolumes(c *call, v any) {
	wide := 5
	for _, r := range v.([]any) {
		wide = max(wide, len(r.(map[string]any)["volid"].(string)))
	}
	fmt.Fprintf(c.p.out, "%-*s %-7s %-9s %11s %s\n", wide, "Volid", "Format", "Type", "Size",
		"VMID")
	for _, r := range v.([]any) {
		m := r.(map[string]any)
		id := ""
		if m["vmid"] != nil {
			id = fmt.Sprint(m["vmid"])
		}
		fmt.Fprintf(c.p.out, "%-*s %-7s %-9s %11d %s\n", wide, m["volid"], m["format"],
			m["content"], m["size"], id)
	}
}

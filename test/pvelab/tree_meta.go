package pvelab

import (
	"io/fs"
	"path"
	"strings"
)

type info struct {
	fs.FileInfo
	name     string
	mode     fs.FileMode
	uid, gid int
}

func (i info) Name() string { return i.name }

func (i info) Mode() fs.FileMode { return i.mode }

func (i info) IsDir() bool { return i.mode.IsDir() }

func (i info) Sys() any { return nil }

func (t *tree) meta(rel string) (m Meta) {
	if t.native {
		return m
	}
	_ = t.lab.db.view(func(s *State) {
		if p := s.Meta[t.key+shown(rel)]; p != nil {
			m = *p
		}
	})
	return m
}

func (t *tree) setMeta(rel string, fn func(*Meta)) error {
	return t.lab.db.update(func(s *State) error {
		k := t.key + shown(rel)
		m := s.Meta[k]
		if m == nil {
			m = &Meta{}
		}
		fn(m)
		if s.Meta == nil {
			s.Meta = map[string]*Meta{}
		}
		if s.Meta[k] = m; *m == (Meta{}) {
			delete(s.Meta, k)
		}
		return nil
	})
}

func (t *tree) dropMeta(rel string) {
	if t.native {
		return
	}
	k := t.key + shown(rel)
	found := false
	_ = t.lab.db.view(func(s *State) {
		for have := range s.Meta {
			found = found || have == k || strings.HasPrefix(have, k+"/")
		}
	})
	if !found {
		return
	}
	_ = t.lab.db.update(func(s *State) error {
		for have := range s.Meta {
			if have == k || strings.HasPrefix(have, k+"/") {
				delete(s.Meta, have)
			}
		}
		return nil
	})
}

func (t *tree) wrap(rel string, fi fs.FileInfo) info {
	i := info{FileInfo: fi, name: path.Base(shown(rel)), mode: fi.Mode()}
	m := t.meta(rel)
	i.uid, i.gid = m.UID, m.GID
	if m.Moded {
		i.mode = i.mode.Type() | unixMode(m.Mode)
	}
	if m.FIFO {
		i.mode = i.mode&^fs.ModeType | fs.ModeNamedPipe
	}
	return i
}

// special are the bits above the permissions.
var special = map[uint32]fs.FileMode{
	0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky}

// unixMode turns the twelve permission bits of a mode number into Go's form.
func unixMode(n uint32) fs.FileMode {
	m := fs.FileMode(n & 0o777)
	for bit, f := range special {
		if n&bit != 0 {
			m |= f
		}
	}
	return m
}

// modeNumber is the reverse of unixMode.
func modeNumber(m fs.FileMode) uint32 {
	n := uint32(m.Perm())
	for bit, f := range special {
		if m&f != 0 {
			n |= bit
		}
	}
	return n
}

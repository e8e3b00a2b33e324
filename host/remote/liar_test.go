package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// lie is what the node answers to the nth request of a kind. done says that it does what was asked
// first; otherwise the request is swallowed.
type lie struct {
	name   string
	done   bool
	answer func(q sshtest.Packet, truth []byte) []byte
}

func status(code uint32) func(sshtest.Packet, []byte) []byte {
	return func(q sshtest.Packet, _ []byte) []byte { return sshtest.Status(q.ID, code) }
}

// lies are answers to every kind of request.
func lies() (all []lie) {
	for _, code := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 255, 1<<32 - 1} {
		all = append(all, lie{fmt.Sprintf("status %d", code), false, status(code)},
			lie{fmt.Sprintf("status %d, done", code), true, status(code)})
	}
	answer := func(name string, f func(id uint32) []byte) {
		all = append(all, lie{name, true,
			func(q sshtest.Packet, _ []byte) []byte { return f(q.ID) }})
	}
	answer("a handle", func(id uint32) []byte { return sshtest.Handle(id, "0") })
	answer("a handle of 300 bytes",
		func(id uint32) []byte { return sshtest.Handle(id, strings.Repeat("h", 300)) })
	answer("data", func(id uint32) []byte { return sshtest.Data(id, []byte("DATA")) })
	answer("no data", func(id uint32) []byte { return sshtest.Data(id, nil) })
	answer("more data than asked for",
		func(id uint32) []byte { return sshtest.Data(id, make([]byte, 200<<10)) })
	answer("data of 4 GiB in a packet of 13 bytes",
		func(id uint32) []byte {
			return sshtest.Packet{Kind: 103, ID: id, Body: []byte{255, 255, 255, 255}}.Frame()
		})
	answer("no names", func(id uint32) []byte { return sshtest.Names(id) })
	answer("names", func(id uint32) []byte { return sshtest.Names(id, "/a", "../b") })
	answer("4 billion names",
		func(id uint32) []byte {
			return sshtest.Packet{Kind: 104, ID: id, Body: []byte{255, 255, 255, 255}}.Frame()
		})
	answer("attributes of every type", func(id uint32) []byte {
		return sshtest.Attrs(id, 3, 0o170644)
	})
	answer("attributes of a link", func(id uint32) []byte { return sshtest.Attrs(id, 3, 0o120777) })
	answer("attributes without any", func(id uint32) []byte {
		return sshtest.Packet{Kind: 105, ID: id, Body: make([]byte, 4)}.Frame()
	})
	answer("4 billion extended attributes", func(id uint32) []byte {
		return sshtest.Packet{Kind: 105, ID: id,
			Body: []byte{128, 0, 0, 0, 255, 255, 255, 255}}.Frame()
	})
	answer("an extended reply", func(id uint32) []byte {
		return sshtest.Packet{Kind: 201, ID: id, Body: make([]byte, 88)}.Frame()
	})
	answer("an empty packet", func(uint32) []byte { return []byte{0, 0, 0, 0} })
	answer("a packet without a body", func(id uint32) []byte {
		return sshtest.Packet{Kind: 101, ID: id}.Frame()
	})
	answer("a packet of a type that does not exist",
		func(id uint32) []byte {
			return sshtest.Packet{Kind: 77, ID: id,
				Body: make([]byte, 9)}.Frame()
		})
	answer("another request's id", func(id uint32) []byte { return sshtest.Status(id+1000, 0) })
	all = append(all, lie{"the truth, twice", true, func(_ sshtest.Packet, truth []byte) []byte {
		return append(slices.Clone(truth), truth...)
	}}, lie{"half of the truth", true, func(q sshtest.Packet, truth []byte) []byte {
		body := truth[9:]
		return sshtest.Packet{Kind: truth[4], ID: q.ID, Body: body[:len(body)/2]}.Frame()
	}})
	return all
}

// world is the file system that each operation starts from, and what must be true after it.
type world struct {
	name string
	op   func(dir string) abi.Op
	// held reports whether dir and the workspace are as success says
	held func(dir, workspace string, res terms.Result) bool
	// same reports whether nothing that shows was changed
	same func(dir, workspace string) bool
}

const oldText, newText = "the old text", "the new text"

func is(file, text string) bool {
	got, err := os.ReadFile(file)
	return err == nil && string(got) == text
}

func missing(file string) bool {
	_, err := os.Lstat(file)
	return errors.Is(err, os.ErrNotExist)
}

func worlds() []world {
	n1 := on("n1")
	untouched := func(dir, _ string) bool { return is(dir+"/f", oldText) && missing(dir+"/new") }
	read := func(_, _ string, res terms.Result) bool {
		v, is := res.Value.(abi.ReadResponse)
		return is && v.Text == oldText && v.EOF
	}
	return []world{
		{"stat", func(d string) abi.Op { return abi.SFTPStat{OnNode: n1, Path: d + "/f"} },
			// attributes are the node's word, and only its word
			func(_, _ string, res terms.Result) bool { return res.Value != nil }, untouched},
		{"list", func(d string) abi.Op { return abi.SFTPList{OnNode: n1, Path: d} },
			func(_, _ string, res terms.Result) bool {
				v, is := res.Value.(abi.ListResponse)
				return is && v.Entries != nil // names are the node's word, too
			}, untouched},
		{"read", func(d string) abi.Op { return abi.SFTPRead{OnNode: n1, Path: d + "/f"} }, read,
			untouched},
		{"write", func(d string) abi.Op {
			return abi.SFTPWrite{OnNode: n1, Path: d + "/new", Data: abi.Data{Text: newText}}
		}, func(d, _ string, _ terms.Result) bool { return is(d+"/new", newText) },
			func(d, _ string) bool { return missing(d + "/new") }},
		{"overwrite", func(d string) abi.Op {
			return abi.SFTPWrite{OnNode: n1, Path: d + "/f", Data: abi.Data{Text: newText},
				Overwrite: true}
		}, func(d, _ string, _ terms.Result) bool { return is(d+"/f", newText) },
			func(d, _ string) bool { return is(d+"/f", oldText) }},
		{"download", func(d string) abi.Op {
			return abi.SFTPGet{OnNode: n1, Path: d + "/f", Local: "got", Overwrite: true}
		}, func(_, w string, res terms.Result) bool {
			// what a file holds is the node's word; not its size
			got, err := os.ReadFile(w + "/got")
			return err == nil && len(got) == len(oldText) && res.SHA256 == digest(got)
		},
			func(d, w string) bool { return is(w+"/got", "what was there") && untouched(d, w) }},
		{"upload", func(d string) abi.Op {
			return abi.SFTPPut{OnNode: n1, Path: d + "/f", Local: "up", Overwrite: true}
		}, func(d, _ string, _ terms.Result) bool { return is(d+"/f", newText) },
			func(d, _ string) bool { return is(d+"/f", oldText) }},
		{"remove", func(d string) abi.Op { return abi.SFTPRemove{OnNode: n1, Path: d + "/f"} },
			func(d, _ string, _ terms.Result) bool { return missing(d + "/f") },
			func(d, _ string) bool { return is(d+"/f", oldText) }},
	}
}

// liar is a server whose lie can be exchanged between operations.
type liar struct {
	sync.Mutex
	kind  byte
	nth   int // of that kind
	count int
	lie   lie
	seen  []byte // kinds of requests
}

func (l *liar) set(kind byte, nth int, what lie) {
	l.Lock()
	defer l.Unlock()
	l.kind, l.nth, l.lie, l.count, l.seen = kind, nth, what, 0, nil
}

func (l *liar) server() sshtest.Liar {
	hit := func(q sshtest.Packet) (lie, bool) {
		l.Lock()
		defer l.Unlock()
		if l.seen = append(l.seen, q.Kind); q.Kind != l.kind || l.lie.answer == nil {
			return lie{}, false
		}
		l.count++
		return l.lie, l.count == l.nth
	}
	var mu sync.Mutex
	chosen := map[uint32]lie{}
	return sshtest.Liar{
		Hide: func(q sshtest.Packet) []byte {
			what, is := hit(q)
			if !is {
				return nil
			}
			if !what.done {
				return what.answer(q, nil)
			}
			mu.Lock()
			defer mu.Unlock()
			chosen[q.ID] = what
			return nil
		},
		Lie: func(q sshtest.Packet, truth []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			if what, is := chosen[q.ID]; is {
				delete(chosen, q.ID)
				return what.answer(q, truth)
			}
			return truth
		},
	}
}

// With any one answer of the node, the process goes on, a success is one, an operation that
// failed has changed nothing, and everything else is unknown.
func TestANodeThatLies(t *testing.T) {
	var l liar
	s := sshtest.New(t, sshtest.Options{})
	s.Set(sshtest.Faults{SFTP: l.server().Serve})
	r := newRemote(t, s)
	workspace := filepath.Join(r.opts.Workspace, "agent-a")
	cases, falsehoods := 0, 0
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			dir := t.TempDir()
			fresh := func() {
				os.RemoveAll(dir)
				write(t, dir+"/f", []byte(oldText))
				write(t, workspace+"/up", []byte(newText))
				write(t, workspace+"/got", []byte("what was there"))
			}
			fresh()
			l.set(0, 0, lie{})
			res, err := do(t.Context(), r, w.op(dir), yellow)
			if err != nil || !w.held(dir, workspace, res) {
				t.Fatalf("without a lie: %+v, %v", res.Value, err)
			}
			l.Lock()
			seen := slices.Clone(l.seen)
			l.Unlock()
			count := map[byte]int{}
			for _, kind := range seen {
				// the first two of a kind, and the last four, which check what was done
				if count[kind]++; count[kind] > 2 && count[kind] < total(seen, kind)-3 {
					continue
				}
				for _, what := range lies() {
					fresh()
					l.set(kind, count[kind], what)
					res, err := do(t.Context(), r, w.op(dir), yellow)
					cases++
					op := (*terms.OpError)(nil)
					at := fmt.Sprintf("%s to request %d of type %d", what.name, count[kind], kind)
					switch {
					case err == nil && !w.held(dir, workspace, res):
						falsehoods++
						t.Errorf("%s: success, and it is not so: %+v", at, res.Value)
					case err == nil:
					case !errors.As(err, &op) || op.Code == "internal":
						t.Errorf("%s: %v", at, err)
					case op.Outcome == terms.Failed && !w.same(dir, workspace):
						falsehoods++
						t.Errorf("%s: %v (failed), but something was changed", at, err)
					}
				}
			}
		})
	}
	t.Logf("%d lies, %d of them believed", cases, falsehoods)
}

func total(seen []byte, kind byte) (n int) {
	for _, k := range seen {
		if k == kind {
			n++
		}
	}
	return n
}

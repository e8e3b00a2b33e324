package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// bothServers runs a test against OpenSSH's SFTP server, whose realpath follows links, and against
// one whose realpath does not.
func bothServers(t *testing.T, test func(t *testing.T, r *Remote)) {
	t.Run("OpenSSH", func(t *testing.T) { _, o := openSSH(t); test(t, start(t, o)) })
	t.Run("plain", func(t *testing.T) { test(t, newRemote(t, sshtest.New(t, sshtest.Options{}))) })
}

func TestLookupFindsTheRealPath(t *testing.T) {
	bothServers(t, func(t *testing.T, r *Remote) {
		d := t.TempDir()
		write(t, d+"/dir/file", []byte("12345"))
		os.Chmod(d+"/dir/file", 0o640)
		os.Symlink("dir", d+"/link")
		os.Symlink(d+"/link/file", d+"/far")
		os.Symlink("nowhere", d+"/dangling")
		os.Symlink("loop", d+"/loop")
		syscall.Mkfifo(d+"/fifo", 0o600)
		l, err := net.Listen("unix", d+"/socket")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for name, c := range map[string]struct {
			op   abi.Op
			want terms.FileFacts
			code string
		}{
			"a file": {abi.SFTPStat{Path: d + "/dir/file"},
				terms.FileFacts{RealPath: d + "/dir/file", Exists: true, Type: "file", Bytes: 5,
					Mode: 0o640}, ""},
			"through a linked directory": {abi.SFTPRead{Path: d + "/link/file"},
				terms.FileFacts{RealPath: d + "/dir/file", Exists: true, Type: "file", Bytes: 5,
					Mode: 0o640}, ""},
			"a link to a link": {abi.SFTPGet{Path: d + "/far", Local: "x"},
				terms.FileFacts{RealPath: d + "/dir/file", Exists: true, Type: "file", Bytes: 5,
					Mode: 0o640}, ""},
			"a dangling link is where it goes": {abi.SFTPWrite{Path: d + "/dangling"},
				terms.FileFacts{RealPath: d + "/nowhere"}, ""},
			"a new name in a linked directory": {abi.SFTPWrite{Path: d + "/link/new"},
				terms.FileFacts{RealPath: d + "/dir/new"}, ""},
			"removal concerns the link itself": {abi.SFTPRemove{Path: d + "/far"},
				terms.FileFacts{RealPath: d + "/far", Exists: true, Type: "symlink", Mode: 0o777},
				""},
			"removal below a linked directory": {abi.SFTPRemove{Path: d + "/link/file"},
				terms.FileFacts{RealPath: d + "/dir/file", Exists: true, Type: "file", Bytes: 5,
					Mode: 0o640}, ""},
			"a fifo": {abi.SFTPStat{Path: d + "/fifo"},
				terms.FileFacts{RealPath: d + "/fifo", Exists: true, Type: "fifo", Mode: 0o600},
				""},
			"a socket": {abi.SFTPStat{Path: d + "/socket"},
				terms.FileFacts{RealPath: d + "/socket", Exists: true, Type: "socket"}, ""},
			"a device": {abi.SFTPStat{Path: "/dev/zero"},
				terms.FileFacts{RealPath: "/dev/zero", Exists: true, Type: "device", Mode: 0o666},
				""},
			"the root": {abi.SFTPList{Path: "/"},
				terms.FileFacts{RealPath: "/", Exists: true, Type: "dir"}, ""},
			"a directory that is missing": {abi.SFTPWrite{Path: d + "/no/file"}, terms.FileFacts{},
				"not_found"},
			"a loop of links": {abi.SFTPStat{Path: d + "/loop"}, terms.FileFacts{},
				"*"},
			"a relative path": {abi.SFTPStat{Path: "etc/passwd"}, terms.FileFacts{},
				"not_a_path"},
			"a path with ..": {abi.SFTPStat{Path: d + "/dir/../dir/file"},
				terms.FileFacts{}, "not_a_path"},
			"a doubled slash": {abi.SFTPStat{Path: "//etc/passwd"}, terms.FileFacts{},
				"not_a_path"},
			"a trailing slash": {abi.SFTPStat{Path: d + "/dir/"}, terms.FileFacts{},
				"not_a_path"},
			"a NUL": {abi.SFTPStat{Path: d + "/dir/file\x00.txt"},
				terms.FileFacts{}, "not_a_path"},
			"a local path that leaves": {abi.SFTPGet{Path: d + "/dir/file", Local: "../x"},
				terms.FileFacts{}, "not_a_path"},
			"an absolute local path": {abi.SFTPGet{Path: d + "/dir/file", Local: "/etc/x"},
				terms.FileFacts{}, "not_a_path"},
			"a local file that is missing": {abi.SFTPPut{Path: d + "/new", Local: "missing"},
				terms.FileFacts{}, "not_found"},
		} {
			t.Run(name, func(t *testing.T) {
				facts, err := r.Lookup(t.Context(), question(onN1(c.op)))
				if c.code != "" {
					if err == nil || c.code != "*" && !strings.HasPrefix(err.Error(), c.code) {
						t.Errorf("got %+v, %v, want %s", facts.File, err, c.code)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := *facts.File
				if c.want.Type == "dir" || c.want.Type == "socket" || c.want.Type == "device" {
					got.Bytes, got.Mode = c.want.Bytes, c.want.Mode
				}
				if got.Type == "symlink" {
					got.Bytes = 0
				}
				if got != c.want {
					t.Errorf("got  %+v\nwant %+v", got, c.want)
				}
			})
		}
	})
}

// onN1 puts an operation on the node n1.
func onN1(op abi.Op) abi.Op {
	switch op := op.(type) {
	case abi.SFTPStat:
		op.Node = "n1"
		return op
	case abi.SFTPList:
		op.Node = "n1"
		return op
	case abi.SFTPRead:
		op.Node = "n1"
		return op
	case abi.SFTPWrite:
		op.Node = "n1"
		return op
	case abi.SFTPGet:
		op.Node = "n1"
		return op
	case abi.SFTPPut:
		op.Node = "n1"
		return op
	case abi.SFTPRemove:
		op.Node = "n1"
		return op
	}
	panic("no such operation")
}

func TestWhatChangedSinceTheDecisionIsNotTouched(t *testing.T) {
	bothServers(t, func(t *testing.T, r *Remote) {
		for name, c := range map[string]struct {
			op   abi.Op
			swap func(d string)
			keep map[string]string // contents that must be there afterwards
		}{
			"a file became a link": {abi.SFTPRead{Path: "/a"}, func(d string) {
				os.Remove(d + "/a")
				os.Symlink("secret", d+"/a")
			}, nil},
			"a file that is replaced became a link": {abi.SFTPWrite{Path: "/a", Overwrite: true,
				Data: abi.Data{Text: "new"}},
				func(d string) { os.Remove(d + "/a"); os.Symlink("secret", d+"/a") },
				map[string]string{"/secret": "secret"}},
			"a new file appeared": {abi.SFTPWrite{Path: "/new", Overwrite: true,
				Data: abi.Data{Text: "new"}},
				func(d string) { os.WriteFile(d+"/new", []byte("theirs"), 0o600) },
				map[string]string{"/new": "theirs"}},
			"its directory became a link": {abi.SFTPWrite{Path: "/dir/a", Overwrite: true,
				Data: abi.Data{Text: "new"}},
				func(d string) { os.Rename(d+"/dir", d+"/old"); os.Symlink("other", d+"/dir") },
				map[string]string{"/old/a": "a", "/other/a": "other"}},
			"a file became a directory": {abi.SFTPRead{Path: "/a"}, func(d string) {
				os.Remove(d + "/a")
				os.Mkdir(d+"/a", 0o700)
			}, nil},
			"a file became a fifo": {abi.SFTPGet{Path: "/a", Local: "x"}, func(d string) {
				os.Remove(d + "/a")
				syscall.Mkfifo(d+"/a", 0o600)
			}, nil},
			"a file to remove became a link": {abi.SFTPRemove{Path: "/a"},
				func(d string) { os.Remove(d + "/a"); os.Symlink("secret", d+"/a") },
				map[string]string{"/secret": "secret", "/a": "secret"}},
			"the local file grew": {abi.SFTPPut{Path: "/up", Local: "local"}, func(string) {
				write(t, filepath.Join(r.opts.Workspace, "agent-a", "local"), []byte("longer"))
			}, nil},
		} {
			t.Run(name, func(t *testing.T) {
				d := t.TempDir()
				for f, text := range map[string]string{"/a": "a", "/secret": "secret",
					"/dir/a": "a", "/other/a": "other"} {
					write(t, d+f, []byte(text))
				}
				write(t, filepath.Join(r.opts.Workspace, "agent-a", "local"), []byte("short"))
				q := question(below(d, onN1(c.op)))
				facts, err := r.Lookup(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				q.Facts = facts
				c.swap(d)
				_, err = r.Execute(t.Context(), q, yellow)
				refused(t, err, "changed", terms.Failed, "decided")
				for f, want := range c.keep {
					if got, err := os.ReadFile(d + f); string(got) != want {
						t.Errorf("%s holds %q (%v), want %q", f, got, err, want)
					}
				}
				if _, err := os.Stat(filepath.Join(r.opts.Workspace, "agent-a",
					"x")); !os.IsNotExist(
					err,
				) {
					t.Error("a local file was made")
				}
			})
		}
	})
}

func below(d string, op abi.Op) abi.Op {
	switch op := op.(type) {
	case abi.SFTPRead:
		op.Path = d + op.Path
		return op
	case abi.SFTPWrite:
		op.Path = d + op.Path
		return op
	case abi.SFTPGet:
		op.Path = d + op.Path
		return op
	case abi.SFTPPut:
		op.Path = d + op.Path
		return op
	case abi.SFTPRemove:
		op.Path = d + op.Path
		return op
	}
	panic("no such operation")
}

func TestASwapAtTheOpeningIsSeen(t *testing.T) {
	d := t.TempDir()
	write(t, d+"/secret", []byte("secret"))
	var armed atomic.Bool
	s := sshtest.New(
		t,
		sshtest.Options{
			Faults: sshtest.Faults{WrapSFTP: func(rw io.ReadWriteCloser) io.ReadWriteCloser {
				return &sshtest.Tap{ReadWriteCloser: rw, Seen: func(kind byte) {
					if kind == sshtest.Open && armed.CompareAndSwap(true, false) {
						os.Remove(d + "/a")
						os.Symlink("secret", d+"/a")
					}
				}}
			}},
		},
	)
	r := newRemote(t, s)
	for name, op := range map[string]abi.Op{"read": abi.SFTPRead{OnNode: on("n1"), Path: d + "/a"},
		"download": abi.SFTPGet{OnNode: on("n1"), Path: d + "/a", Local: "a"}} {
		t.Run(name, func(t *testing.T) {
			os.Remove(d + "/a")
			write(t, d+"/a", []byte("harmless"))
			armed.Store(true)
			res, err := do(t.Context(), r, op, yellow)
			refused(t, err, "changed", terms.Failed)
			if res.Value != nil {
				t.Errorf("it returned %+v", res.Value)
			}
		})
	}
}

func TestSpecialFilesAreRefused(t *testing.T) {
	bothServers(t, func(t *testing.T, r *Remote) {
		d := t.TempDir()
		syscall.Mkfifo(d+"/fifo", 0o600)
		ws := filepath.Join(r.opts.Workspace, "agent-a")
		write(t, ws+"/file", []byte("x"))
		syscall.Mkfifo(ws+"/fifo", 0o600)
		os.Mkdir(ws+"/dir", 0o700)
		os.Symlink("/etc/passwd", ws+"/out")
		os.Symlink("/etc", ws+"/etc")
		for name, op := range map[string]abi.Op{
			"reading /dev/zero":                 abi.SFTPRead{Path: "/dev/zero"},
			"downloading /dev/zero":             abi.SFTPGet{Path: "/dev/zero", Local: "zero"},
			"reading a fifo":                    abi.SFTPRead{Path: d + "/fifo"},
			"reading a directory":               abi.SFTPRead{Path: d},
			"replacing a directory":             abi.SFTPWrite{Path: d, Overwrite: true},
			"replacing a fifo":                  abi.SFTPWrite{Path: d + "/fifo", Overwrite: true},
			"removing a directory":              abi.SFTPRemove{Path: d},
			"listing a device":                  abi.SFTPList{Path: "/dev/zero"},
			"uploading a local fifo":            abi.SFTPPut{Path: d + "/up", Local: "fifo"},
			"uploading a local directory":       abi.SFTPPut{Path: d + "/up", Local: "dir"},
			"uploading through a local link":    abi.SFTPPut{Path: d + "/up", Local: "out"},
			"uploading from a linked directory": abi.SFTPPut{Path: d + "/up", Local: "etc/passwd"},
			"downloading over a local directory": abi.SFTPGet{Path: "/etc/passwd", Local: "dir",
				Overwrite: true},
			"downloading over a local link": abi.SFTPGet{Path: "/etc/passwd", Local: "out",
				Overwrite: true},
			"downloading into a linked folder": abi.SFTPGet{Path: "/etc/passwd", Local: "etc/new"},
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := do(ctx, r, onN1(op), yellow)
				if err == nil || ctx.Err() != nil ||
					!strings.HasPrefix(err.Error(), "not_a_file") &&
						!strings.Contains(err.Error(), "escapes") {
					t.Errorf("got %v", err)
				}
			})
		}
		if _, err := os.Stat("/etc/new"); err == nil {
			t.Error("a download escaped its workspace")
		}
		t.Run("a file of /proc, which says it is empty, is read", func(t *testing.T) {
			want, _ := os.ReadFile("/proc/version")
			res, err := do(
				t.Context(),
				r,
				abi.SFTPRead{OnNode: on("n1"), Path: "/proc/version"},
				green,
			)
			if err != nil || res.Value.(abi.ReadResponse).Text != string(want) ||
				!res.Value.(abi.ReadResponse).EOF {
				t.Errorf("%+v, %v", res.Value, err)
			}
			if _, err := do(t.Context(), r, abi.SFTPGet{OnNode: on("n1"), Path: "/proc/version",
				Local: "version"}, green); err != nil {
				t.Error(err)
			}
		})
		t.Run("replacing one hard link leaves the other alone", func(t *testing.T) {
			write(t, d+"/one", []byte("old"))
			os.Link(d+"/one", d+"/two")
			if _, err := do(t.Context(), r, abi.SFTPWrite{OnNode: on("n1"), Path: d + "/one",
				Overwrite: true, Data: abi.Data{Text: "new"}}, yellow); err != nil {
				t.Fatal(err)
			}
			if two, _ := os.ReadFile(d + "/two"); string(two) != "old" {
				t.Errorf("the other link holds %q", two)
			}
		})
		t.Run("names with newlines, escapes and other bytes", func(t *testing.T) {
			odd := t.TempDir()
			for _, n := range []string{"a\nb", "\x1b[31mred", "\xff\xfe", "-rf", "it's \"q\""} {
				write(t, odd+"/"+n, []byte(n))
			}
			res, err := do(t.Context(), r, abi.SFTPList{OnNode: on("n1"), Path: odd}, green)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range res.Value.(abi.ListResponse).Entries {
				names = append(names, e.Name+e.NameB64)
			}
			if got := fmt.Sprintf("%q", names); got != fmt.Sprintf(
				"%q",
				[]string{"\x1b[31mred", "-rf", "a\nb", `it's "q"`, "//4="},
			) {
				t.Errorf("%s", got)
			}
			for _, n := range []string{"a\nb", "\x1b[31mred", "-rf", "it's \"q\""} {
				if res, err := do(t.Context(), r,
					abi.SFTPRead{OnNode: on("n1"), Path: odd + "/" + n}, green); err != nil ||
					res.Value.(abi.ReadResponse).Text != n {
					t.Errorf("%q: %+v, %v", n, res.Value, err)
				}
			}
		})
	})
}

func TestAnSFTPServerThatMisbehaves(t *testing.T) {
	attrs := func(mode uint32) func(uint32, []byte) []byte {
		return func(id uint32, body []byte) []byte {
			if sshtest.Text(body) == "/f" {
				return sshtest.Attrs(id, 10, mode)
			}
			return sshtest.Attrs(id, 10, 0o040755)
		}
	}
	path := func(id uint32, body []byte) []byte { return sshtest.Names(id, sshtest.Text(body)) }
	good := func(with sshtest.Script) sshtest.Script {
		s := sshtest.Script{
			sshtest.RealPath: path,
			sshtest.Lstat:    attrs(0o100644),
			sshtest.Open:     func(id uint32, _ []byte) []byte { return sshtest.Handle(id, "h") },
			8: func(id uint32, _ []byte) []byte {
				return sshtest.Attrs(id, 10, 0o100644)
			},
		}
		for k, v := range with {
			s[k] = v
		}
		return s
	}
	silence := func(uint32, []byte) []byte { return nil }
	endless := func(id uint32, _ []byte) []byte { return sshtest.Data(id, make([]byte, 32<<10)) }
	for _, c := range []struct {
		name   string
		script sshtest.Script
		op     abi.Op
		code   string
	}{
		{"silence at the start", sshtest.Script{sshtest.Init: silence}, abi.SFTPStat{Path: "/f"},
			"connection"},
		{"text at the start", sshtest.Script{sshtest.Init: func(uint32, []byte) []byte {
			return []byte("Welcome to the machine!\n")
		}}, abi.SFTPStat{Path: "/f"}, "connection"},
		{"silence at a path", sshtest.Script{sshtest.RealPath: silence}, abi.SFTPStat{Path: "/f"},
			"lost"},
		{"a path that is none", sshtest.Script{sshtest.RealPath: func(id uint32, _ []byte) []byte {
			return sshtest.Names(id, "../x")
		}}, abi.SFTPStat{Path: "/f"}, "not_a_path"},
		{"no path at all", sshtest.Script{sshtest.RealPath: func(id uint32, _ []byte) []byte {
			return sshtest.Names(id)
		}}, abi.SFTPStat{Path: "/f"}, "protocol"},
		{"an answer to a question that was not asked",
			good(sshtest.Script{sshtest.Lstat: func(id uint32, _ []byte) []byte {
				return sshtest.Attrs(id+77, 1, 0o100644)
			}}), abi.SFTPStat{Path: "/f"}, "protocol"},
		{"a packet longer than allowed", good(
			sshtest.Script{sshtest.Lstat: func(uint32, []byte) []byte {
				return []byte{0xff, 0xff, 0xff, 0xff, 105}
			}}), abi.SFTPStat{Path: "/f"}, "protocol"},
		{"an empty packet", good(sshtest.Script{sshtest.Lstat: func(uint32, []byte) []byte {
			return []byte{0, 0, 0, 0}
		}}), abi.SFTPStat{Path: "/f"}, "protocol"},
		{"no type in the attributes", good(sshtest.Script{sshtest.Lstat: attrs(0)}),
			abi.SFTPRead{Path: "/f"}, "not_a_file"},
		{"links without end", good(sshtest.Script{sshtest.Lstat: attrs(0o120777),
			19: func(id uint32, _ []byte) []byte { return sshtest.Names(id, "/f") }}),
			abi.SFTPStat{Path: "/f"}, "not_a_path"},
		{"a file without end", good(sshtest.Script{sshtest.Read: endless,
			8: func(id uint32, _ []byte) []byte { return sshtest.Attrs(id, 1<<20, 0o100644) }}),
			abi.SFTPGet{Path: "/f", Local: "f"}, "too_large"},
		{"more than a small file is said to have", good(sshtest.Script{sshtest.Read: endless}),
			abi.SFTPGet{Path: "/f", Local: "f"}, "protocol"},
		{"silence in a file", good(sshtest.Script{sshtest.Read: silence}),
			abi.SFTPGet{Path: "/f", Local: "f"}, "lost"},
		{"reads that are shorter than asked for", good(sshtest.Script{
			8: func(id uint32, _ []byte) []byte { return sshtest.Attrs(id, 1<<20, 0o100644) },
			sshtest.Read: func(id uint32, body []byte) []byte {
				if off := binary.BigEndian.Uint64(body[4+1:]); off < 1<<20 {
					return sshtest.Data(id, make([]byte, 1000))
				}
				return sshtest.Status(id, 1)
			}}), abi.SFTPGet{Path: "/f", Local: "f"}, "changed"},
		{"a handle that turns out a directory",
			good(sshtest.Script{8: func(id uint32, _ []byte) []byte {
				return sshtest.Attrs(id, 10, 0o040755)
			}}), abi.SFTPRead{Path: "/f"}, "changed"},
		{"writes that are kept nowhere", good(
			sshtest.Script{sshtest.Lstat: func(id uint32, body []byte) []byte {
				switch p := sshtest.Text(body); {
				case p == "/f":
					return sshtest.Status(id, 2)
				case strings.Contains(p, files.PartialPrefix):
					return sshtest.Attrs(id, 1, 0o040700)
				default:
					return sshtest.Attrs(id, 10, 0o040755)
				}
			}}), abi.SFTPWrite{Path: "/f", Data: abi.Data{Text: "12345"}}, "disk_full"},
		{"other bytes than were written", good(
			sshtest.Script{sshtest.Lstat: func(id uint32, body []byte) []byte {
				switch p := sshtest.Text(body); {
				case p == "/f":
					return sshtest.Status(id, 2)
				case strings.Contains(p, files.PartialPrefix):
					return sshtest.Attrs(id, 1, 0o040700)
				default:
					return sshtest.Attrs(id, 10, 0o040755)
				}
			}, sshtest.Read: func() func(uint32, []byte) []byte {
				first := true
				return func(id uint32, _ []byte) []byte {
					if first = !first; first {
						return sshtest.Status(id, 1)
					}
					return sshtest.Data(id, []byte("0123456789"))
				}
			}()}), abi.SFTPWrite{Path: "/f", Data: abi.Data{Text: "abcdefghij"}}, "changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakless(t)
			s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: c.script.Serve}})
			silent := strings.HasPrefix(c.name, "silence")
			r := newRemote(t, s, func(o *Options) {
				if silent {
					quick(o)
				}
			})
			healthy(t, r)
			began := time.Now()
			_, err := do(t.Context(), r, onN1(c.op), yellow)
			refused(t, err, c.code, terms.Failed)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if left, _ := os.ReadDir(filepath.Join(r.opts.Workspace, "agent-a")); len(left) != 0 {
				t.Errorf("left in the workspace: %v", left)
			}
			if silent {
				healthy(t, r)
			} else if v := mustExec(t, r, "echo", "x"); v.Stdout != "x\n" {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestADirectoryWithoutEndIsCutOff(t *testing.T) {
	leakless(t)
	var sent atomic.Int64
	long := strings.Repeat("n", 200)
	s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: sshtest.Script{
		sshtest.RealPath: func(id uint32, body []byte) []byte {
			return sshtest.Names(id, sshtest.Text(body))
		},
		sshtest.Lstat:   func(id uint32, _ []byte) []byte { return sshtest.Attrs(id, 1, 0o040755) },
		sshtest.OpenDir: func(id uint32, _ []byte) []byte { return sshtest.Handle(id, "d") },
		sshtest.ReadDir: func(id uint32, _ []byte) []byte {
			names := make([]string, 100)
			for i := range names {
				names[i] = fmt.Sprintf("%s%d", long, sent.Add(1))
			}
			return sshtest.Names(id, names...)
		},
	}.Serve}})
	r := newRemote(t, s)
	peak := watchMemory(t)
	res, err := do(t.Context(), r, abi.SFTPList{OnNode: on("n1"), Path: "/d", Limit: 50}, green)
	if err != nil {
		t.Fatal(err)
	}
	if l := res.Value.(abi.ListResponse); len(l.Entries) != 50 || !l.Truncated {
		t.Errorf("%d entries, truncated %v", len(l.Entries), l.Truncated)
	}
	if grew := peak(); grew > 32<<20 {
		t.Errorf("memory grew by %d MiB over %d names", grew>>20, sent.Load())
	}
}

func TestOneAnswerThatNeverComesAmongOthers(t *testing.T) {
	leakless(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: sshtest.Script{
		sshtest.RealPath: func(id uint32, body []byte) []byte {
			return sshtest.Names(id, sshtest.Text(body))
		},
		sshtest.Lstat: func(id uint32, body []byte) []byte {
			if sshtest.Text(body) == "/stuck" {
				cancel(&terms.BudgetError{}) // the caller's time is over when it waits
				return nil
			}
			return sshtest.Attrs(id, 1, 0o100644)
		},
	}.Serve}})
	r := newRemote(t, s, quick)
	healthy(t, r)
	if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/ok"},
		green); err != nil {
		t.Fatal(err)
	}
	before := s.Conns.Load()
	_, err := do(ctx, r, abi.SFTPStat{OnNode: on("n1"), Path: "/stuck"}, green)
	refused(t, err, "timeout", terms.Failed)
	for end := time.Now().Add(20 * time.Second); s.Conns.Load() == before; time.Sleep(
		20 * time.Millisecond) {
		do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/ok"}, green)
		if time.Now().After(end) {
			t.Fatal("the session on which an answer never came is still in use")
		}
	}
}

package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestADiskThatIsFull(t *testing.T) {
	const size = 1 << 20
	for _, percent := range []int64{0, 50, 99} {
		t.Run(fmt.Sprintf("the node's, at %d %%", percent), func(t *testing.T) {
			leakless(t)
			disk := &sshtest.Disk{}
			disk.Left.Store(size * percent / 100)
			r := newRemote(
				t,
				sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: disk.Serve}}),
			)
			d := t.TempDir()
			write(t, d+"/f", []byte("old"))
			write(t, filepath.Join(r.opts.Workspace, "agent-a", "up"), make([]byte, size))
			_, err := do(
				t.Context(),
				r,
				abi.SFTPPut{OnNode: on("n1"), Path: d + "/f", Local: "up", Overwrite: true},
				yellow,
			)
			refused(t, err, "disk_full", terms.Failed, "no space is left")
			if old, _ := os.ReadFile(d + "/f"); string(old) != "old" {
				t.Errorf("the file now holds %d bytes", len(old))
			}
			if left, _ := os.ReadDir(d); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
			disk.Left.Store(2 * size)
			if _, err := do(t.Context(), r, abi.SFTPPut{OnNode: on("n1"), Path: d + "/f",
				Local: "up", Overwrite: true}, yellow); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// TestARealDiskThatIsFull needs the right to mount; the tests above prove the same against a disk
// that only pretends.
func TestARealDiskThatIsFull(t *testing.T) {
	const size = 4 << 20
	for _, percent := range []int64{0, 50, 99} {
		small := t.TempDir()
		if err := syscall.Mount("tmpfs", small, "tmpfs", 0,
			fmt.Sprintf("size=%d", size)); err != nil {
			t.Logf("mounting: %v", err)
			return
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(small, 0); err != nil {
				t.Error(err)
			}
		})
		write(t, small+"/fill", make([]byte, size-size*percent/100))
		t.Run(fmt.Sprintf("the node's, at %d %%", percent), func(t *testing.T) {
			_, o := openSSH(t)
			r := start(t, o)
			defer r.Close()
			write(t, filepath.Join(o.Workspace, "agent-a", "up"), make([]byte, size))
			_, err := do(
				t.Context(),
				r,
				abi.SFTPPut{OnNode: on("n1"), Path: small + "/up", Local: "up"},
				yellow,
			)
			refused(t, err, "disk_full", terms.Failed)
			if left, _ := os.ReadDir(small); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
		t.Run(fmt.Sprintf("this machine's, at %d %%", percent), func(t *testing.T) {
			_, o := openSSH(t)
			o.Workspace = small
			file := filepath.Join(t.TempDir(), "f")
			write(t, file, make([]byte, size))
			r := start(t, o)
			defer r.Close()
			_, err := do(
				t.Context(),
				r,
				abi.SFTPGet{OnNode: on("n1"), Path: file, Local: "f"},
				yellow,
			)
			refused(t, err, "disk_full", terms.Failed)
			if left, _ := os.ReadDir(small + "/agent-a"); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestTransfersTellTheirProgress(t *testing.T) {
	const size = 4 << 20
	s := sshtest.New(t, sshtest.Options{})
	p := sshtest.NewProxy(t, s.Addr)
	r := newRemote(
		t,
		s,
		func(o *Options) { o.Nodes[0].Host, o.Nodes[0].Port = sshtest.HostPort(p.Addr) },
	)
	d := t.TempDir()
	write(t, d+"/down", make([]byte, size))
	write(t, filepath.Join(r.opts.Workspace, "agent-a", "up"), make([]byte, size))
	p.Set(sshtest.Weather{Rate: 6 << 20})
	for name, op := range map[string]abi.Op{"download": abi.SFTPGet{OnNode: on("n1"), Path: d +
		"/down", Local: "down"}, "upload": abi.SFTPPut{OnNode: on("n1"), Path: d + "/up",
		Local: "up"}} {
		t.Run(name, func(t *testing.T) {
			q := question(op)
			q.Call.Files = map[string]string{"up": "sha256:" + digest(make([]byte, size))}
			facts, err := r.Lookup(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			var told []float64
			q.Facts, q.Progress = facts, func(done, total float64, _ string) {
				if told = append(told, done); total != size {
					t.Errorf("of %v", total)
				}
			}
			if _, err := r.Execute(t.Context(), q, yellow); err != nil {
				t.Fatal(err)
			}
			if len(told) < 2 || !slices.IsSorted(told) || told[len(told)-1] > size {
				t.Errorf("told %v", told)
			}
		})
	}
}

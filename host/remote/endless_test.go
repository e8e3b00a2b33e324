package remote

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// A read that is answered with no bytes for ever ends soon after its call.
func TestReadsOfNothingEndWithTheCall(t *testing.T) {
	var reads atomic.Int64
	const fstat = 8
	s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: sshtest.Script{
		sshtest.RealPath: func(id uint32, body []byte) []byte {
			return sshtest.Names(id, sshtest.Text(body))
		},
		sshtest.Lstat: func(id uint32, body []byte) []byte {
			if sshtest.Text(body) == "/f" {
				return sshtest.Attrs(id, 10, 0o100644)
			}
			return sshtest.Attrs(id, 1, 0o040755)
		},
		fstat:        func(id uint32, _ []byte) []byte { return sshtest.Attrs(id, 10, 0o100644) },
		sshtest.Open: func(id uint32, _ []byte) []byte { return sshtest.Handle(id, "d") },
		sshtest.Read: func(id uint32, _ []byte) []byte {
			reads.Add(1)
			return sshtest.Data(id, nil)
		},
	}.Serve}})
	r := newRemote(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := do(ctx, r, abi.SFTPGet{OnNode: on("n1"), Path: "/f", Local: "z"},
		green); err == nil {
		t.Fatal("an endless read succeeded")
	}
	for end, last := time.Now().Add(30*time.Second), int64(-1); reads.Load() != last; {
		if time.Now().After(end) {
			t.Fatal("the node is still asked for bytes long after the call has ended")
		}
		last = reads.Load()
		time.Sleep(time.Second)
	}
}

// A staging directory that lists names without end is left there; it does not fill the host's
// memory.
func TestAnEndlessStageIsGivenUp(t *testing.T) {
	var sent atomic.Int64
	long := strings.Repeat("n", 200)
	s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{SFTP: sshtest.Script{
		sshtest.RealPath: func(id uint32, body []byte) []byte {
			return sshtest.Names(id, sshtest.Text(body))
		},
		sshtest.Lstat:   func(id uint32, _ []byte) []byte { return sshtest.Attrs(id, 1, 0o040700) },
		sshtest.Open:    func(id uint32, _ []byte) []byte { return sshtest.Handle(id, "d") },
		sshtest.OpenDir: func(id uint32, _ []byte) []byte { return sshtest.Handle(id, "d") },
		sshtest.RmDir:   func(id uint32, _ []byte) []byte { return sshtest.Status(id, 4) },
		sshtest.ReadDir: func(id uint32, _ []byte) []byte {
			names := make([]string, 500)
			for i := range names {
				names[i] = fmt.Sprintf("%s%d", long, sent.Add(1))
			}
			return sshtest.Names(id, names...)
		},
	}.Serve}})
	r := newRemote(t, s)
	res, err := do(t.Context(), r, abi.Stage{OnNode: on("n1")}, green)
	if err != nil {
		t.Fatal(err)
	}
	r.End(t.Context(), &terms.Call{Stages: []terms.StageDir{*res.Stage}})
	for end, last := time.Now().Add(60*time.Second), int64(-1); sent.Load() != last; {
		if time.Now().After(end) {
			t.Fatal("the directory is still read")
		}
		last = sent.Load()
		time.Sleep(500 * time.Millisecond)
	}
	if n := sent.Load(); n == 0 || n > 400_000 {
		t.Errorf("%d names were read", n)
	}
}

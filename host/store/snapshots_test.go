package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/undo"
)

func TestSnapshotsAreRecordedChangedAndForgotten(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "state")})
	at := time.UnixMilli(1e12)
	want := undo.Snapshot{Cluster: "lab", Node: "pve1", VMID: "105", Name: "caponier-a", Call: "A",
		Principal: "ann",
		Tool:      "stop", Made: at, Expires: at.Add(time.Hour), Keep: 3}
	later := want
	later.Name, later.Made = "caponier-b", at.Add(time.Second)
	for _, v := range []undo.Snapshot{later, want} {
		if err := s.PutSnapshot(bg, v); err != nil {
			t.Fatal(err)
		}
	}
	want.Taken, want.Running = true, true
	if err := s.PutSnapshot(bg, want); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Snapshots(bg); err != nil || len(all) != 2 || all[0] != want ||
		all[1] != later {
		t.Errorf("%v %+v", err, all)
	}
	if err := s.RemoveSnapshot(bg, want); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Snapshots(bg); err != nil || len(all) != 1 || all[0] != later {
		t.Errorf("%v %+v", err, all)
	}
}

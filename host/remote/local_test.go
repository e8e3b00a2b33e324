package remote

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// What was decided is a digest: other bytes of the same length under the same name are not sent in
// their place.
func TestAnUploadSendsTheBytesThatWereDecided(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	r := newRemote(t, s)
	q := question(abi.SFTPPut{OnNode: on("n1"), Local: "f", Path: "/f"})
	dir := filepath.Join(r.opts.Workspace, q.Call.Principal.ID)
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "f"), []byte("good"), 0o600)); err != nil {
		t.Fatal(err)
	}
	digests, err := r.Digests(q.Call.Principal, []string{"f", "absent"})
	if err != nil || !strings.HasPrefix(digests["f"], "sha256:") || digests["absent"] != "none" {
		t.Fatalf("%v %v", digests, err)
	}
	q.Call.Files = digests
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	q.Phase = gate.PhaseLookup
	facts, err := r.Lookup(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.Phase, q.Facts = gate.PhaseEffect, facts
	_, err = r.Execute(t.Context(), q, yellow)
	var op *gate.OpError
	if !errors.As(err, &op) || op.Code != "changed" || op.Outcome != gate.Failed {
		t.Fatalf("other bytes were sent: %v", err)
	}
}

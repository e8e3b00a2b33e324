package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

func TestCheck(t *testing.T) {
	t.Run("a good node has no warnings", func(t *testing.T) {
		_, o := openSSH(t)
		rep, err := start(t, o).Check(t.Context(), "n1")
		if err != nil || len(rep.Warnings) != 0 || !rep.SFTP || rep.Exec <= 0 || rep.Dial <= 0 || rep.HostKey != o.Nodes[0].HostKey || !strings.Contains(rep.Server, "OpenSSH") {
			t.Errorf("%+v, %v", rep, err)
		}
	})
	t.Run("a slow start-up file is found", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{Shell: []string{"/bin/sh", "-c", `sleep 0.12; eval "$1"`, "sh"}})
		rep, err := newRemote(t, s).Check(t.Context(), "n1")
		if err != nil || len(rep.Warnings) == 0 || !strings.Contains(rep.Warnings[0], ".bashrc") || rep.Exec < 100*time.Millisecond {
			t.Errorf("%+v, %v", rep, err)
		}
	})
	t.Run("missing SFTP is a warning that says what to do", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{Faults: sshtest.Faults{NoSFTP: true}})
		rep, err := newRemote(t, s).Check(t.Context(), "n1")
		if err != nil || rep.SFTP || len(rep.Warnings) != 1 || !strings.Contains(rep.Warnings[0], "Subsystem sftp") {
			t.Errorf("%+v, %v", rep, err)
		}
	})
	t.Run("an unknown node is refused by name", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{})
		_, err := newRemote(t, s).Check(t.Context(), "n2")
		refused(t, err, "not_found", "failed", "n2", "inventory")
		if s.Conns.Load() != 0 {
			t.Error("it connected somewhere")
		}
	})
}

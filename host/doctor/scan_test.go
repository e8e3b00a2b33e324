package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

func TestScanShowsWhatTheHostProves(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	host, port := s.HostPort()
	keys, err := Scan(t.Context(), host, port)
	if err != nil || len(keys) != 1 || keys[0].Fingerprint != s.Pin() ||
		keys[0].Type != "ssh-ed25519" ||
		!strings.HasPrefix(keys[0].Line, fmt.Sprintf("[127.0.0.1]:%d ssh-ed25519 ", port)) {
		t.Errorf("%+v, %v", keys, err)
	}
	s.Close()
	if keys, err := Scan(t.Context(), host, port); err == nil ||
		!strings.Contains(err.Error(), s.Addr) {
		t.Errorf("of a host that is down: %+v, %v", keys, err)
	}
}

package files

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/pkg/sftp"
)

// A server is believed to replace links only if its answers show it for both kinds.
func TestAServerShowsThatItReplacesLinks(t *testing.T) {
	const status, exe = "/proc/self/status", "/proc/self/exe"
	for name, c := range map[string]struct {
		status, exe string // the answers; "" is an error
		want        bool
	}{
		"OpenSSH":                   {"/proc/123/status", "/usr/lib/openssh/sftp-server", true},
		"only cleans paths":         {status, exe, false},
		"only the last part":        {status, "/usr/bin/x", false},
		"only before the last":      {"/proc/12/status", "/proc/12/exe", false},
		"no /proc":                  {"", "", false},
		"half of it":                {"/proc/12/status", "", false},
		"the other half":            {"", "/usr/bin/x", false},
		"a number with a link":      {"/proc/12/../status", "/usr/bin/x", false},
		"no number":                 {"/proc/x/status", "/usr/bin/x", false},
		"a number of zeros":         {"/proc/00/status", "/usr/bin/x", false},
		"an answer that is no path": {"/proc/12/status", "usr/bin/x", false},
		"a path that is not clean":  {"/proc/12/status", "/usr/../proc/self/exe", false},
	} {
		here, there := net.Pipe()
		go sshtest.Script{fxpRealpath: func(id uint32, body []byte) []byte {
			answer := map[string]string{status: c.status, exe: c.exe}[string(
				body[4:4+binary.BigEndian.Uint32(body)])]
			if answer == "" {
				return sshtest.Status(id, 2)
			}
			return sshtest.Names(id, answer)
		}}.Serve(there)
		client, err := sftp.NewClientPipe(here, here)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Session{Client: client}).replacesLinks(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		here.Close()
	}
}

package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

const exampleSSHConfig = `
# a comment
User admin
Host pve1 pve1-alias
	HostName 192.0.2.11
	Port=2222
	IdentityFile "~/.ssh/pve key"
Host pve2
	HostName %h.example.com
	User root
	ProxyJump bastion,ops@192.0.2.9:2200
	ProxyCommand nc %h %p
Host bastion
	HostName 198.51.100.1
Host *.internal !bad.internal
	Port 2022
Host good.internal bad.internal
Host bad;name
Match host pve9 exec "rm -rf /"
	User evil
Host pve3
	Include other
Host *
	User fallback
	Port 22
`

func TestImport(t *testing.T) {
	nodes, notes, err := Import(strings.NewReader(exampleSSHConfig))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]remote.NodeOptions{}
	for _, n := range nodes {
		got[n.Name] = n
	}
	for name, want := range map[string]remote.Login{
		"pve1":          {Host: "192.0.2.11", Port: 2222, User: "admin", IdentityFile: "~/.ssh/pve key"},
		"pve1-alias":    {Host: "192.0.2.11", Port: 2222, User: "admin", IdentityFile: "~/.ssh/pve key"},
		"pve2":          {Host: "pve2.example.com", Port: 22, User: "admin", Agent: true},
		"good.internal": {Host: "good.internal", Port: 2022, User: "admin", Agent: true},
		"bad.internal":  {Host: "bad.internal", Port: 22, User: "admin", Agent: true},
		"pve3":          {Host: "pve3", Port: 22, User: "admin", Agent: true}} {
		if got[name].Login != want {
			t.Errorf("%s: got %+v, want %+v", name, got[name].Login, want)
		}
	}
	if j := got["pve2"].Jump; len(j) != 2 || j[0].Host != "198.51.100.1" || j[0].User != "admin" ||
		j[1].Host != "192.0.2.9" || j[1].User != "ops" || j[1].Port != 2200 {
		t.Errorf("jump hosts of pve2: %+v", j)
	}
	if _, is := got["bad;name"]; is {
		t.Error("a name that is no name became a node")
	}
	all := strings.Join(notes, "\n")
	for _, w := range []string{"Match", "proxycommand", "include", "bad;name"} {
		if !strings.Contains(all, w) {
			t.Errorf("notes do not name %s: %s", w, all)
		}
	}
	// OpenSSH reads the same values.
	client, err := exec.LookPath("ssh")
	if err != nil {
		sshtest.Missing(t, "openssh-client")
	}
	file := filepath.Join(t.TempDir(), "config")
	plain := strings.ReplaceAll(exampleSSHConfig, `Match host pve9 exec "rm -rf /"`,
		"Match host pve9")
	os.WriteFile(file, []byte(strings.ReplaceAll(plain, "Include other", "")), 0o600)
	for name, n := range got {
		out, err := exec.Command(client, "-G", "-F", file, name).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, line := range []string{"hostname " + n.Host, fmt.Sprintf("port %d", n.Port), "user " + n.User} {
			if !strings.Contains("\n"+string(out), "\n"+line+"\n") {
				t.Errorf("%s: ssh -G does not say %q", name, line)
			}
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add(exampleSSHConfig)
	f.Add("Host a\n  Port 0\nHost b\n  HostName [::1]\nHost \"c d\"\n  ProxyJump a,b,c,d")
	f.Add("Host\n")
	f.Add("Host x\nHostName=y\nUser = z\n")
	f.Fuzz(func(t *testing.T, text string) {
		nodes, _, err := Import(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder // the same nodes, written as OpenSSH would have them
		for _, n := range nodes {
			if strings.ContainsAny(n.User+n.IdentityFile+n.CertificateFile, "\"\x00\t ") ||
				len(n.Jump) > 0 {
				return
			}
			fmt.Fprintf(&again, "Host %s\nHostName %s\nPort %d\n", n.Name, n.Host, n.Port)
			for k, v := range map[string]string{"User": n.User, "IdentityFile": n.IdentityFile, "CertificateFile": n.CertificateFile} {
				if v != "" {
					fmt.Fprintf(&again, "%s %s\n", k, v)
				}
			}
		}
		back, _, err := Import(strings.NewReader(again.String()))
		if err != nil || !reflect.DeepEqual(back, nodes) {
			t.Errorf("%q\ngave      %+v\nand again %+v, %v", text, nodes, back, err)
		}
		for _, n := range nodes {
			if !remote.ValidName(n.Name) || !remote.ValidHost(n.Host) ||
				strings.ContainsAny(n.Host+n.User+n.IdentityFile+n.CertificateFile,
					"\x00\r\n\x1b") {
				t.Errorf("%+v", n)
			}
		}
	})
}

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

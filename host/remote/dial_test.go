package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

func TestHostKeys(t *testing.T) {
	ca := sshtest.NewSigner(t)
	_, other := sshtest.NewKeyFile(t)
	for _, c := range []struct {
		name  string
		lines func(addr string, key ssh.PublicKey) string // of known_hosts; nil pins
		pin   func(right string) string
		words []string // of the refusal; nil is accepted
	}{
		{"the pinned key is accepted", nil, func(right string) string { return right }, nil},
		{"another key than the pinned one is refused, with both fingerprints", nil,
			func(string) string { return ssh.FingerprintSHA256(other) },
			[]string{"SHA256:", ssh.FingerprintSHA256(other), "console"}},
		{"a known key is accepted", func(addr string, k ssh.PublicKey) string {
			return knownhosts.Line([]string{addr}, k)
		}, nil, nil},
		{"a hashed name is accepted", func(addr string, k ssh.PublicKey) string {
			return xknownhosts.HashHostname(knownhosts.Normalize(addr)) + strings.TrimPrefix(
				knownhosts.Line([]string{addr}, k), knownhosts.Normalize(addr))
		}, nil, nil},
		{"an unknown host is refused, with its fingerprint and what to do",
			func(string, ssh.PublicKey) string { return "" }, nil,
			[]string{"is not in known_hosts", "SHA256:", "host_key"}},
		{"a changed key is refused loudly", func(addr string, _ ssh.PublicKey) string {
			return knownhosts.Line([]string{addr}, other)
		}, nil, []string{"CHANGED", "SHA256:", "ssh-keygen -R"}},
		{"a revoked key is refused although it is listed, too",
			func(addr string, k ssh.PublicKey) string {
				return knownhosts.Line([]string{addr}, k) + "\n@revoked * " +
					strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
			}, nil, []string{"@revoked"}},
		{"a certificate of a listed authority is accepted",
			func(addr string, _ ssh.PublicKey) string {
				return "@cert-authority " + knownhosts.Line([]string{addr}, ca.PublicKey())
			}, nil, nil},
		{"a certificate of another authority is refused",
			func(addr string, _ ssh.PublicKey) string {
				return "@cert-authority " + knownhosts.Line([]string{addr}, other)
			}, nil, []string{"SHA256:"}},
		{"a file with a broken line is refused, naming it", func(string, ssh.PublicKey) string {
			return "n1 ssh-ed25519 not-base64"
		}, nil, []string{"reading known_hosts", "known_hosts:1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakless(t)
			key := sshtest.NewSigner(t)
			if strings.Contains(c.name, "certificate") {
				cert := &ssh.Certificate{
					Key:             key.PublicKey(),
					CertType:        ssh.HostCert,
					ValidPrincipals: []string{"127.0.0.1"},
					ValidBefore:     ssh.CertTimeInfinity,
				}
				if err := cert.SignCert(rand.Reader, ca); err != nil {
					t.Fatal(err)
				}
				var err error
				if key, err = ssh.NewCertSigner(cert, key); err != nil {
					t.Fatal(err)
				}
			}
			s := sshtest.New(t, sshtest.Options{HostKey: key})
			file := filepath.Join(t.TempDir(), "known_hosts")
			r := newRemote(t, s, func(o *Options) {
				if c.lines == nil {
					o.Nodes[0].HostKey = c.pin(s.Pin())
					return
				}
				o.Nodes[0].HostKey, o.KnownHosts = "", []string{file}
				write(t, file, []byte(c.lines(s.Addr, s.HostKey.PublicKey())+"\n"))
			})
			_, err := execute(t.Context(), r, "true")
			if c.words == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			refused(t, err, "host_key", terms.Failed, c.words...)
			if len(s.Commands()) != 0 {
				t.Errorf("commands ran: %q", s.Commands())
			}
		})
	}
}

func TestAPinOfAnyKindOfKey(t *testing.T) {
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ec, _ := ssh.NewSignerFromKey(ecKey)
	rs, _ := ssh.NewSignerFromKey(rsaKey)
	for name, c := range map[string]struct {
		o     sshtest.Options
		dials int64 // of the first connection
	}{
		"ed25519, and the host has others": {sshtest.Options{HostKeys: []ssh.Signer{ec, rs}}, 1},
		"ecdsa, and the host has others": {sshtest.Options{HostKey: ec,
			HostKeys: []ssh.Signer{rs, sshtest.NewSigner(t)}}, 2},
		"rsa, and the host has others": {sshtest.Options{HostKey: rs,
			HostKeys: []ssh.Signer{ec, sshtest.NewSigner(t)}}, 3},
		"rsa alone": {sshtest.Options{HostKey: rs}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			s := sshtest.New(t, c.o)
			r := newRemote(t, s)
			mustExec(t, r, "true")
			first := s.Conns.Load()
			s.Drop()
			healthy(t, r)
			if again := s.Conns.Load() - first; first != c.dials || again != 1 {
				t.Errorf("%d dials at first, then %d; want %d, then 1", first, again, c.dials)
			}
		})
	}
	t.Run("of none of them", func(t *testing.T) {
		leakless(t)
		s := sshtest.New(t, sshtest.Options{HostKeys: []ssh.Signer{ec, rs}})
		_, other := sshtest.NewKeyFile(t)
		r := newRemote(t, s, func(o *Options) { o.Nodes[0].HostKey = ssh.FingerprintSHA256(other) })
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "host_key", terms.Failed, s.Pin(), "ssh-ed25519")
	})
}

func TestRepairedKnownHostsCountAtOnce(t *testing.T) {
	s := sshtest.New(t, sshtest.Options{})
	file := filepath.Join(t.TempDir(), "known_hosts")
	write(t, file, nil)
	r := newRemote(t, s, func(o *Options) { o.Nodes[0].HostKey, o.KnownHosts = "", []string{file} })
	_, err := execute(t.Context(), r, "true")
	refused(t, err, "host_key", terms.Failed)
	write(t, file, []byte(knownhosts.Line([]string{s.Addr}, s.HostKey.PublicKey())+"\n"))
	healthy(t, r)
}

func TestLogin(t *testing.T) {
	ca := sshtest.NewSigner(t)
	secretFile := func(t *testing.T, text string, mode os.FileMode) string {
		f := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(f, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return f
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// which takes seconds under the race detector
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	encrypted := func(t *testing.T) string {
		return secretFile(t, string(pem.EncodeToMemory(block)),
			0o600)
	}
	certified := func(t *testing.T, by ssh.Signer, validFor time.Duration) (id, file string) {
		id, pub := sshtest.NewKeyFile(t)
		cert := &ssh.Certificate{
			Key:             pub,
			CertType:        ssh.UserCert,
			ValidPrincipals: []string{"root"},
			ValidAfter:      uint64(time.Now().Add(-2 * time.Hour).Unix()),
			ValidBefore:     uint64(time.Now().Add(validFor).Unix()),
		}
		if err := cert.SignCert(rand.Reader, by); err != nil {
			t.Fatal(err)
		}
		return id, secretFile(t, string(ssh.MarshalAuthorizedKey(cert)), 0o644)
	}
	for _, c := range []struct {
		name  string
		login func(t *testing.T, l *Login)
		words []string // of the refusal; nil is accepted
	}{
		{"a key file that others may read", func(t *testing.T, l *Login) {
			os.Chmod(l.IdentityFile, 0o640)
		}, []string{"0640", "chmod 600"}},
		{"a key file that is missing", func(t *testing.T, l *Login) {
			l.IdentityFile = "/nonexistent/id"
		}, []string{"/nonexistent/id"}},
		{"a public key in the place of the private one", func(t *testing.T, l *Login) {
			l.IdentityFile += ".pub"
			os.Chmod(l.IdentityFile, 0o600)
		}, []string{"private key"}},
		{"a key that the host does not know", func(t *testing.T, l *Login) {
			l.IdentityFile, _ = sshtest.NewKeyFile(t)
		}, []string{"accepts none", "authorized_keys"}},
		{"an encrypted key", func(t *testing.T, l *Login) { l.IdentityFile = encrypted(t) },
			[]string{"encrypted", "ssh-add"}},
		{"a certificate", func(t *testing.T, l *Login) {
			l.IdentityFile, l.CertificateFile = certified(t, ca, time.Hour)
		}, nil},
		{"a certificate that has expired", func(t *testing.T, l *Login) {
			l.IdentityFile, l.CertificateFile = certified(t, ca, -time.Hour)
		}, []string{"accepts none"}},
		{"a certificate of another authority", func(t *testing.T, l *Login) {
			l.IdentityFile, l.CertificateFile = certified(t, sshtest.NewSigner(t), time.Hour)
		}, []string{"accepts none"}},
		{"a certificate of another key", func(t *testing.T, l *Login) {
			_, l.CertificateFile = certified(t, ca, time.Hour)
		}, []string{"does not belong"}},
		{"an agent", func(t *testing.T, l *Login) {
			startAgent(t, l.IdentityFile)
			l.IdentityFile, l.Agent = "", true
		}, nil},
		{"an agent without keys", func(t *testing.T, l *Login) {
			startAgent(t, "")
			l.IdentityFile, l.Agent = "", true
		}, []string{"ssh-add"}},
		{"an agent that is not there", func(t *testing.T, l *Login) {
			t.Setenv("SSH_AUTH_SOCK", "/nonexistent/agent")
			l.IdentityFile, l.Agent = "", true
		}, []string{"SSH_AUTH_SOCK"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakless(t)
			s := sshtest.New(t, sshtest.Options{CA: ca.PublicKey()})
			r := newRemote(t, s, func(o *Options) { c.login(t, &o.Nodes[0].Login) })
			_, err := execute(t.Context(), r, "true")
			if c.words != nil {
				code := "credentials" // of this machine, which asked nobody
				if c.words[0] == "accepts none" {
					code = "auth"
				}
				refused(t, err, code, terms.Failed, c.words...)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// startAgent serves an agent at SSH_AUTH_SOCK, with the key of a file if one is named.
func startAgent(t *testing.T, file string) {
	keys := agent.NewKeyring()
	if file != "" {
		data, _ := os.ReadFile(file)
		key, err := ssh.ParseRawPrivateKey(data)
		if err == nil {
			err = keys.Add(agent.AddedKey{PrivateKey: key})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sock := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			agent.ServeAgent(keys, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	t.Setenv("SSH_AUTH_SOCK", sock)
}

func TestJumpHosts(t *testing.T) {
	jumpTo := func(s *sshtest.Server) Login {
		host, port := s.HostPort()
		return Login{Host: host, Port: port, User: "jump", IdentityFile: s.ClientFile,
			HostKey: s.Pin()}
	}
	t.Run("three of them lead to the node", func(t *testing.T) {
		leakless(t)
		s, a, b, c := sshtest.New(
			t,
			sshtest.Options{},
		), sshtest.New(
			t,
			sshtest.Options{Forward: true},
		), sshtest.New(
			t,
			sshtest.Options{Forward: true},
		), sshtest.New(
			t,
			sshtest.Options{Forward: true},
		)
		r := newRemote(
			t,
			s,
			func(o *Options) { o.Nodes[0].Jump = []Login{jumpTo(a), jumpTo(b), jumpTo(c)} },
		)
		if v := mustExec(t, r, "echo", "far"); v.Stdout != "far\n" {
			t.Errorf("%+v", v)
		}
		if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"},
			green); err != nil {
			t.Error(err)
		}
		if len(a.Commands())+len(b.Commands())+len(c.Commands()) != 0 {
			t.Error("a jump host ran a command")
		}
	})
	t.Run("each proves its own key", func(t *testing.T) {
		leakless(t)
		s, a := sshtest.New(t, sshtest.Options{}), sshtest.New(t, sshtest.Options{Forward: true})
		r := newRemote(t, s, func(o *Options) {
			j := jumpTo(a)
			j.HostKey = s.Pin()
			o.Nodes[0].Jump = []Login{j}
		})
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "host_key", terms.Failed, a.Addr, a.Pin())
		if s.Conns.Load() != 0 {
			t.Error("the node was reached through an impostor")
		}
	})
	t.Run("one that refuses the login does not speak for the node", func(t *testing.T) {
		leakless(t)
		s, a := sshtest.New(t, sshtest.Options{}), sshtest.New(t, sshtest.Options{Forward: true})
		r := newRemote(t, s, func(o *Options) {
			j := jumpTo(a)
			j.IdentityFile, _ = sshtest.NewKeyFile(t)
			o.Nodes[0].Jump = []Login{j}
		})
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "credentials", terms.Failed, a.Addr, "accepts none")
	})
	t.Run("one that forwards nothing is named", func(t *testing.T) {
		leakless(t)
		s, a := sshtest.New(t, sshtest.Options{}), sshtest.New(t, sshtest.Options{})
		r := newRemote(t, s, func(o *Options) { o.Nodes[0].Jump = []Login{jumpTo(a)} })
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "connection", terms.Failed, a.Addr, "forwarding")
	})
	t.Run("a node that is silent behind one is left in time", func(t *testing.T) {
		leakless(t)
		s, a := sshtest.New(
			t,
			sshtest.Options{Faults: sshtest.Faults{SilentKEX: true}},
		), sshtest.New(
			t,
			sshtest.Options{Forward: true},
		)
		r := newRemote(t, s, quick, func(o *Options) { o.Nodes[0].Jump = []Login{jumpTo(a)} })
		began := time.Now()
		_, err := execute(t.Context(), r, "true")
		refused(t, err, "connection", terms.Failed, "no answer within")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestOptions(t *testing.T) {
	good := func() Options {
		return Options{
			Workspace: "w",
			Nodes: []NodeOptions{
				{
					Name: "pve1",
					Login: Login{
						Host:         "192.0.2.1",
						User:         "root",
						IdentityFile: "id",
						HostKey:      "SHA256:" + strings.Repeat("a", 43),
					},
				},
			},
		}
	}
	o := good()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if d := o.withDefaults(); d.MaxSessions != 5 || d.Nodes[0].Port != 22 ||
		d.Nodes[0].Cluster != "pve1" || !d.Nodes[0].Default || o.Nodes[0].Port != 0 {
		t.Fatalf("%+v from %+v", d, o)
	}
	for name, c := range map[string]struct {
		change func(*Options)
		words  string
	}{
		"no workspace":            {func(o *Options) { o.Workspace = "" }, "remote.workspace"},
		"no way to know the host": {func(o *Options) { o.Nodes[0].HostKey = "" }, "impostor"},
		"a pin that is none": {func(o *Options) { o.Nodes[0].HostKey = "MD5:aa" },
			"ssh-keygen -lf"},
		"no credentials": {func(o *Options) { o.Nodes[0].IdentityFile = "" },
			"identity_file"},
		"no user": {func(o *Options) { o.Nodes[0].User = "" }, "user"},
		"a user that is an option": {func(o *Options) { o.Nodes[0].User = "-oProxyCommand=x" },
			"user"},
		"a host that is an option": {func(o *Options) { o.Nodes[0].Host = "-x" }, "host"},
		"a name with a slash":      {func(o *Options) { o.Nodes[0].Name = "a/b" }, "name"},
		"the same name twice": {func(o *Options) { o.Nodes = append(o.Nodes, o.Nodes[0]) },
			"twice"},
		"two defaults": {func(o *Options) {
			n := o.Nodes[0]
			n.Name, n.Default, o.Nodes[0].Default = "pve2", true, true
			o.Nodes = append(o.Nodes, n)
		}, "default = true"},
		"four jump hosts": {func(o *Options) { o.Nodes[0].Jump = make([]Login, 4) }, "at most 3"},
		"a negative time": {func(o *Options) { o.ExecTimeout = -1 }, "remote.exec_timeout"},
		"a negative size": {func(o *Options) { o.MaxFile = -1 }, "remote.max_file"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			c.change(&o)
			if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %q in it", err, c.words)
			}
		})
	}
}

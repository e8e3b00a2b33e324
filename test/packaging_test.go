package test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.yaml.in/yaml/v3"
)

// packaged reads a template of packaging/ as dist.go fills it in, strictly.
func packaged(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile("../packaging/" + name)
	must(t, err)
	text := strings.ReplaceAll(string(data), "{{version}}", "1.2.3")
	text = regexp.MustCompile(`\{\{sha256 [^}]*\}\}`).ReplaceAllString(text,
		strings.Repeat("0a", 32))
	if strings.Contains(text, "{{") {
		t.Errorf("%s: dist.go does not fill in everything", name)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The rules of the registry's schema of 2025-12-11 that this entry comes near.
func TestRegistryEntryFitsItsSchema(t *testing.T) {
	var s struct {
		Schema                            string `json:"$schema"`
		Name, Title, Description, Version string
		Repository                        struct{ URL, Source string }
		Packages                          []struct {
			RegistryType, Identifier, Version, FileSha256 string
			Transport                                     struct{ Type string }
		}
	}
	packaged(t, "server.json", &s)
	for _, c := range []struct{ what, text, form string }{
		{"$schema", s.Schema, `^https://static\.modelcontextprotocol\.io/schemas/2025-12-11/server\.schema\.json$`},
		{"name", s.Name, `^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`},
		{"title", s.Title, `^.{1,100}$`},
		{"description", s.Description, `^.{1,100}$`},
		{"version", s.Version, `^1\.2\.3$`},
		{"repository", s.Repository.Source + " " + s.Repository.URL, `^github https://github\.com/caponier-mcp/caponier$`},
	} {
		if !regexp.MustCompile(c.form).MatchString(c.text) {
			t.Errorf("%s is %q, want %s", c.what, c.text, c.form)
		}
	}
	if len(s.Packages) != 2 {
		t.Fatalf("packages: %+v", s.Packages)
	}
	for i, file := range []string{"caponier-1.2.3-linux-amd64.mcpb",
		"caponier-connect-1.2.3.mcpb"} {
		p := s.Packages[i]
		if p.RegistryType != "mcpb" || p.Version != "1.2.3" || p.Transport.Type != "stdio" ||
			!regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(p.FileSha256) ||
			!strings.HasSuffix(p.Identifier, "/v1.2.3/"+file) {
			t.Errorf("package: %+v", p)
		}
	}
}

// The test reads the bundle's manifest like a client, and starts the host accordingly.
func TestBundleManifestStartsTheHost(t *testing.T) {
	var m struct {
		ManifestVersion string `json:"manifest_version"`
		DisplayName     string `json:"display_name"`
		ToolsGenerated  bool   `json:"tools_generated"`
		Name, Version   string
		Description     string
		License         string
		Author          struct{ Name, URL string }
		Repository      struct{ Type, URL string }
		Server          struct {
			Type       string
			EntryPoint string `json:"entry_point"`
			MCPConfig  struct {
				Command string
				Args    []string
				Env     map[string]string
			} `json:"mcp_config"`
		}
		UserConfig map[string]struct {
			Type, Title, Description string
			Required                 bool
		} `json:"user_config"`
		Compatibility struct{ Platforms []string }
	}
	packaged(t, "manifest.json", &m)
	if m.ManifestVersion != "0.3" || m.Name != "caponier" || m.Version != "1.2.3" ||
		m.Description == "" ||
		m.Author.Name == "" ||
		m.Server.Type != "binary" ||
		!slices.Equal(m.Compatibility.Platforms, []string{"linux"}) ||
		m.Server.MCPConfig.Command != "${__dirname}/"+m.Server.EntryPoint {
		t.Fatalf("manifest: %+v", m)
	}
	s := newSite(t)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "server/build"), 0o755))
	must(t, os.Symlink(bin, filepath.Join(dir, m.Server.EntryPoint)))
	must(
		t,
		os.Symlink(filepath.Join(s.dir, "plugins.lock"), filepath.Join(dir, "server/plugins.lock")),
	)
	must(t, os.Symlink(filepath.Join(s.dir, "plugins"), filepath.Join(dir, "server/build/plugins")))
	fill := strings.NewReplacer("${__dirname}", dir, "${user_config.config}", s.config)
	cmd := exec.Command(fill.Replace(m.Server.MCPConfig.Command))
	for _, a := range m.Server.MCPConfig.Args {
		cmd.Args = append(cmd.Args, fill.Replace(a))
	}
	cmd.Env = []string{
		"HOME=" + t.TempDir(),
		"CAPONIER_SANDBOX_CACHE_DIR=" + filepath.Join(filepath.Dir(bin), "cache"),
	}
	for k, v := range m.Server.MCPConfig.Env {
		cmd.Env = append(cmd.Env, k+"="+fill.Replace(v))
	}
	cmd.Stderr = t.Output()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 7 {
		t.Errorf("tools: %+v, %v", list, err)
	}
}

func TestServiceIsHardened(t *testing.T) {
	data, err := os.ReadFile("../packaging/caponier.service")
	must(t, err)
	lines := strings.Split(string(data), "\n")
	for _, want := range []string{"User=caponier", "ProtectSystem=strict", "ProtectHome=yes",
		"NoNewPrivileges=yes", "CapabilityBoundingSet=", "PrivateTmp=yes",
		"StateDirectoryMode=0700",
		"UMask=0077", "LimitCORE=0", "SystemCallErrorNumber=EPERM",
		"ExecStart=/usr/local/bin/caponier --config /etc/caponier/config.toml serve --http " +
			"127.0.0.1:8000"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return // the rest is systemd's own opinion, where there is one
	}
	unit := filepath.Join(t.TempDir(), "caponier.service")
	must(
		t,
		os.WriteFile(
			unit,
			bytes.Replace(
				data,
				[]byte("ExecStart=/usr/local/bin/caponier"),
				[]byte("ExecStart="+bin),
				1,
			),
			0o644,
		),
	)
	for _, args := range [][]string{{"verify", unit},
		{"security", "--offline=yes", "--threshold=20", "--no-pager", unit}} {
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil ||
			args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

// No container engine runs where CI runs: these are the promises of the files, read.
func TestContainerFilesKeepTheirPromises(t *testing.T) {
	data, err := os.ReadFile("../packaging/Dockerfile")
	must(t, err)
	mod, err := os.ReadFile("../go.mod")
	must(t, err)
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindSubmatch(mod)
	if toolchain == nil || !bytes.Contains(data, []byte("FROM golang:"+string(toolchain[1])+"-")) {
		t.Errorf("the image is not built with the toolchain of go.mod, %s", toolchain)
	}
	_, final, ok := strings.Cut(string(data), "\nFROM scratch\n")
	if !ok || strings.Contains(final, "\nFROM ") {
		t.Fatal("the image does not end in a stage from scratch")
	}
	var words []string
	for _, line := range strings.Split(strings.TrimSpace(final), "\n") {
		word, _, _ := strings.Cut(line, " ")
		words = append(words, word)
		if !slices.Contains(
			[]string{
				"COPY",
				"USER",
				"WORKDIR",
				"VOLUME",
				"EXPOSE",
				"HEALTHCHECK",
				"ENTRYPOINT",
				"CMD",
			},
			word,
		) {
			t.Errorf("the image's last stage has %q", line)
		}
	}
	if !strings.Contains(final, "\nUSER 65532:65532\n") ||
		slices.Index(words, "USER") > slices.Index(words, "ENTRYPOINT") ||
		!slices.Contains(words, "HEALTHCHECK") {
		t.Errorf("no user, or no health check: %q", words)
	}

	type service struct {
		User        string   `yaml:"user"`
		ReadOnly    bool     `yaml:"read_only"`
		Privileged  bool     `yaml:"privileged"`
		NetworkMode string   `yaml:"network_mode"`
		CapDrop     []string `yaml:"cap_drop"`
		CapAdd      []string `yaml:"cap_add"`
		SecurityOpt []string `yaml:"security_opt"`
		Volumes     []string `yaml:"volumes"`
		Secrets     []string `yaml:"secrets"`
		Environment map[string]string
	}
	var compose struct {
		Services map[string]service
		Secrets  map[string]struct{ File string }
	}
	data, err = os.ReadFile("../packaging/compose.yaml")
	must(t, err)
	must(t, yaml.Unmarshal(data, &compose))
	c := compose.Services["caponier"]
	if len(compose.Services) != 1 || c.User != "65532:65532" || !c.ReadOnly || c.Privileged ||
		c.NetworkMode != "" ||
		!slices.Equal(c.CapDrop, []string{"ALL"}) ||
		c.CapAdd != nil ||
		!slices.Equal(c.SecurityOpt, []string{"no-new-privileges:true"}) {
		t.Errorf("compose: %+v", c)
	}
	for _, v := range c.Volumes {
		if v != "state:/var/lib/caponier" && !strings.HasSuffix(v, ":ro") {
			t.Errorf("compose: %s can be written", v)
		}
	}
	// The program uses the settings of the environment: the server starts with them, with TLS, and
	// writes nowhere else.
	s := newSite(t)
	s.certificate(t)
	s.add(t, "\n[[identity.principals]]\nid = \"demo\"\n")
	state := t.TempDir()
	where := strings.NewReplacer(
		"/var/lib/caponier",
		state,
		"/run/secrets/tls_cert",
		filepath.Join(s.dir, "tls.crt"),
		"/run/secrets/tls_key",
		filepath.Join(s.dir, "tls.key"),
	)
	for k, v := range c.Environment {
		t.Setenv(k, where.Replace(v))
	}
	token := s.command("token", "new", "demo")
	if out, err := token.CombinedOutput(); err != nil {
		t.Fatalf("token new: %v %s", err, out)
	}
	addr := s.listening(t)
	if out, err := s.command("health", addr).CombinedOutput(); err != nil {
		t.Errorf("health: %v %s", err, out)
	}
	for _, name := range []string{"journal", "store", "blobs", "workspace", "tokens.json"} {
		if _, err := os.Stat(filepath.Join(state, name)); err != nil {
			t.Errorf("compose: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "state")); err == nil {
		t.Error("compose: something is written beside config.toml")
	}
	for _, name := range c.Secrets {
		if compose.Secrets[name].File == "" {
			t.Errorf("compose: secret %s is nowhere", name)
		}
	}
}

func TestHealthTrustsTheConfiguredCertificateAlone(t *testing.T) {
	s := newSite(t)
	s.certificate(t)
	s.add(
		t,
		"\n[front]\ntls_cert = \"tls.crt\"\ntls_key = \"tls.key\"\n\n[identity]\nhttp = "+
			"\"demo\"\n[[identity.principals]]\nid = \"demo\"\n",
	)
	addr := s.listening(t)
	out, err := s.command("health", addr).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"status":"healthy"`) {
		t.Errorf("%v %s", err, out)
	}
	s.certificate(t)
	if out, err := s.command("health", addr).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "another certificate") {
		t.Errorf("with another certificate: %v %s", err, out)
	}
	if out, err := s.command("health", "127.0.0.1:1").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "refused") {
		t.Errorf("with no server: %v %s", err, out)
	}
}

// certificate writes a new self-signed certificate beside the configuration.
func (s *site) certificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"caponier.example"},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(
		t,
		os.WriteFile(
			filepath.Join(s.dir, "tls.crt"),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
			0o600,
		),
	)
	must(
		t,
		os.WriteFile(
			filepath.Join(s.dir, "tls.key"),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
			0o600,
		),
	)
}

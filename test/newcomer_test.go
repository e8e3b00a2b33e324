package test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// step is a command of a walk with the output that the page shows, or a file that the reader
// writes.
type step struct {
	line          int
	command, want string
	file, text    string
	hidden        bool
}

// walk reads the fences of a page. Every ```console fence holds commands ("$ …") and their output,
// in which … stands for anything; a fence with two words in its info string is a file, or with >>
// between them, text to append to a file; one without an info string is a picture; ```text is for
// another machine; another test compares ```json; any other fence is a mistake, because no test
// would check it. <!-- $ … --> is a command that readers need not see.
func walk(t *testing.T, page string) (steps []step) {
	t.Helper()
	data, err := os.ReadFile(page)
	must(t, err)
	info, open := "", false
	for i, line := range strings.Split(string(data), "\n") {
		rest, fence := strings.CutPrefix(line, "```")
		hidden, isHidden := strings.CutPrefix(line, "<!-- $ ")
		switch words := strings.Fields(rest); {
		case isHidden && !open:
			steps = append(
				steps,
				step{line: i + 1, command: strings.TrimSuffix(hidden, " -->"), hidden: true},
			)
		case fence && open:
			open = false
		case fence:
			open, info = true, rest
			if len(words) == 2 || len(words) == 3 && words[1] == ">>" {
				steps = append(steps, step{line: i + 1, file: strings.Join(words[1:], " ")})
			} else if info != "console" && info != "text" && info != "json" && info != "" {
				t.Fatalf("%s:%d: nobody runs a fence of %q", page, i+1, info)
			}
		case open && info == "" && strings.HasPrefix(line, "$ "):
			t.Fatalf("%s:%d: a command in a picture", page, i+1)
		case !open || info == "text" || info == "json" || info == "":
		case info != "console":
			steps[len(steps)-1].text += line + "\n"
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
		case len(steps) == 0 || steps[len(steps)-1].command == "":
			t.Fatalf("%s:%d: output before any command", page, i+1)
		default:
			steps[len(steps)-1].want += line + "\n"
		}
	}
	if len(steps) == 0 {
		t.Fatalf("%s has no commands", page)
	}
	return steps
}

// TestWalks runs the commands of the pages for newcomers, and compares their output with the pages.
// Each page has one shell, which starts in the checkout, or in the unpacked archive that WALK_ROOT
// names.
func TestWalks(t *testing.T) {
	root, err := filepath.Abs("..")
	must(t, err)
	cache, opa := filepath.Join(root, "build/cache"), plainOPA(t)
	pages := []string{"README.md", "docs/plugins.md", "docs/first-node.md", "docs/operating.md",
		"docs/approvals.md",
		"docs/procedures.md", "docs/uses/read-everything.md", "docs/uses/web-team.md",
		"docs/uses/on-call.md", "docs/uses/ci-token.md", "docs/uses/policy-repository.md",
		"docs/uses/least-privilege.md"}
	if archive := os.Getenv("WALK_ROOT"); archive != "" {
		// the README begins with make demo, which is for a checkout
		root, pages = archive, pages[1:]
	}
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			steps := walk(t, filepath.Join(root, page))
			script := "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
			for i, s := range steps {
				if s.file != "" {
					to := " > " + s.file
					if strings.HasPrefix(s.file, ">> ") {
						to = " " + s.file
					}
					s.command = "printf %s " + base64.StdEncoding.EncodeToString(
						[]byte(s.text),
					) + " | base64 -d" + to
				}
				script += fmt.Sprintf("{ %s\n} 2>&1; printf '\\n==%d== %%d\\n' $?\n", s.command, i)
			}
			// a page waits in a loop for what may never come
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash")
			// so that its trap runs
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			cmd.WaitDelay = 5 * time.Second
			cmd.Dir, cmd.Stdin = root, strings.NewReader(script)
			cmd.Env = append(
				os.Environ(),
				"HOME="+t.TempDir(),
				"PATH="+filepath.Dir(opa)+":"+os.Getenv("PATH"),
				"GOCACHE="+goEnv(t, "GOCACHE"),
				"GOPATH="+goEnv(t, "GOPATH"),
				"GOPROXY=off",
				"TMPDIR="+t.TempDir(),
				"CAPONIER_SANDBOX_CACHE_DIR="+cache,
			)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("bash: %v", err)
			}
			rest := string(out)
			for i, s := range steps {
				got, after, ok := strings.Cut(rest, fmt.Sprintf("\n==%d== ", i))
				code, after, _ := strings.Cut(after, "\n")
				if !ok || code != "0" {
					t.Fatalf(
						"%s:%d: %s%s ends with exit code %s:\n%s",
						page,
						s.line,
						s.command,
						s.file,
						code,
						got,
					)
				}
				if want := shown(s.want); s.file == "" && !s.hidden && !want.MatchString(got) {
					t.Fatalf(
						"%s:%d: $ %s\nprints\n%s\nbut the page shows\n%s",
						page,
						s.line,
						s.command,
						got,
						s.want,
					)
				}
				rest = after
			}
		})
	}
}

// plainOPA returns the file of the program opa, of the version that decides in the host.
func plainOPA(t *testing.T) string {
	t.Helper()
	tool := []string{"tool", "-modfile=tools/go.mod"}
	out, err := exec.Command("go", append(tool, "opa", "version")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	out, err = exec.Command("go", append(tool, "-n", "opa")...).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// shown makes a regular expression of what a page shows: runs of spaces are alike and … is
// anything.
func shown(text string) *regexp.Regexp {
	var parts []string
	for _, p := range strings.Split(strings.TrimSpace(text), "…") {
		parts = append(
			parts,
			strings.Join(
				strings.FieldsFunc(
					regexp.QuoteMeta(p),
					func(r rune) bool { return r == ' ' || r == '\t' },
				),
				`[ \t]+`,
			),
		)
		if strings.HasPrefix(p, " ") {
			parts[len(parts)-1] = `[ \t]*` + parts[len(parts)-1]
		}
		if strings.HasSuffix(p, " ") {
			parts[len(parts)-1] += `[ \t]*`
		}
	}
	return regexp.MustCompile(`(?s)^\s*` + strings.Join(parts, `.*?`) + `\s*$`)
}

// grant sets a tool's tier in the site's data.
func (s *site) grant(t *testing.T, tool, tier string) {
	t.Helper()
	file := filepath.Join(s.dir, "site", "data.yaml")
	data, err := os.ReadFile(file)
	must(t, err)
	must(
		t,
		os.WriteFile(
			file,
			[]byte(
				strings.Replace(
					string(data),
					"\ntiers:\n",
					"\ntiers:\n  \"tool:"+tool+"\": "+tier+"\n",
					1,
				),
			),
			0o644,
		),
	)
}

func TestThirdPartysModuleRunsOnTheNode(t *testing.T) {
	t.Parallel()
	wasm := filepath.Join(t.TempDir(), "diskspace.wasm")
	cmd := exec.Command(bin, "plugin", "test", "../examples/plugin-go", "-o", wasm)
	if out, err := cmd.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "tool disk_space") {
		t.Fatalf("plugin test: %v\n%s", err, out)
	}
	s := newSite(t, wasm)
	s.grant(t, "disk_space", "green")
	out, err := s.command("call", "disk_space", `{"min_percent":1}`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "%  /  (") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The example plugins on the simulated node: each builds, is locked, and runs.
func TestExamplePluginsRunOnTheNode(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][][]string{
		"zfs":        {{"zfs_health", `{}`, "green", "rpool: ONLINE"}},
		"backup-age": {{"backup_age", `{"max_days":3000}`, "green", "db01: has no backup"}},
		"service": {{"service_status", `{"service":"pveproxy"}`, "green", "is active (running)"},
			{"service_restart", `{"service":"pveproxy"}`, "yellow", "restarted and is active"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wasm := filepath.Join(t.TempDir(), name+".wasm")
			out, err := exec.Command(bin, "plugin", "test", "../examples/plugins/"+name, "-o",
				wasm).CombinedOutput()
			if err != nil {
				t.Fatalf("plugin test: %v\n%s", err, out)
			}
			s := newSite(t, wasm)
			for _, c := range calls {
				s.grant(t, c[0], c[2])
			}
			for _, c := range calls {
				out, err := s.command("call", c[0], c[1]).CombinedOutput()
				if err != nil || !strings.Contains(string(out), c[3]) {
					t.Errorf("%s: %v\n%s", c[0], err, out)
				}
			}
		})
	}
}

func TestPluginNewOverwritesNothingAndSaysWhatItNeeds(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "there"), 0o755))
	for _, c := range []struct {
		claim, want string
		args        []string
	}{
		{"a folder that is there stays", "file exists", []string{"there"}},
		{"a name that is no file name", "cannot be the name of a plugin", []string{"Hello World"}},
		{"a name that climbs", "cannot be the name of a plugin", []string{".."}},
		{"a checkout that is none", "go.mod", []string{"p", "--sdk", dir}},
		{"a module that is another", "is not the module",
			[]string{"p", "--sdk", "../examples/plugin-go"}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			for i, a := range c.args {
				if strings.HasPrefix(a, "../") {
					abs, err := filepath.Abs(a)
					must(t, err)
					c.args[i] = abs
				}
			}
			cmd := exec.Command(bin, append([]string{"plugin", "new"}, c.args...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err == nil ||
				!strings.Contains(string(out), c.want) {
				t.Errorf("%v, %s; want %q", err, out, c.want)
			}
		})
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	inside, err := os.ReadDir(filepath.Join(dir, "there"))
	must(t, err)
	if len(left) != 1 || len(inside) != 0 {
		t.Errorf("refused commands left %v and %v", left, inside)
	}
}

// server is the entry for caponier in a client's configuration.
type server struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// configured reads a client's configuration as the client's documentation describes.
func configured(t *testing.T, file string) (s server) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	if strings.HasSuffix(file, ".toml") {
		text := string(data)
		if !strings.HasPrefix(text, "[mcp_servers.caponier]\n") {
			t.Fatalf("%s does not begin with its table", file)
		}
		for _, key := range []struct {
			name string
			to   any
		}{{"command", &s.Command}, {"args", &s.Args}} {
			m := regexp.MustCompile(`(?m)^` + key.name + ` = (.*)$`).FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("%s has no %s", file, key.name)
			}
			// basic strings and lists of them are written alike in TOML and JSON
			must(t, json.Unmarshal([]byte(m[1]), key.to))
		}
		return s
	}
	var all struct {
		MCPServers map[string]server `json:"mcpServers"`
		Servers    map[string]server `json:"servers"`
		Zed        map[string]server `json:"context_servers"`
	}
	must(t, json.Unmarshal(data, &all))
	found, ok := all.MCPServers["caponier"]
	if strings.HasPrefix(filepath.Base(file), "vscode") {
		found, ok = all.Servers["caponier"]
	} else if strings.HasPrefix(filepath.Base(file), "zed") {
		found, ok = all.Zed["caponier"]
	}
	if !ok {
		t.Fatalf("%s does not name caponier where its client looks", file)
	}
	return found
}

func TestClientConfigurationsStartTheHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	files, err := filepath.Glob("../examples/clients/*.[jt]*")
	must(t, err)
	if len(files) != 8 {
		t.Fatalf("client configurations: %q", files)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := configured(t, file)
			var transport mcp.Transport
			if c.URL != "" {
				base, token := s.serveWithToken(t)
				if c.URL != "https://caponier.example:8000/mcp" ||
					c.Headers["Authorization"] != "Bearer ${input:caponier-token}" {
					t.Fatalf("%+v", c)
				}
				client := &http.Client{Transport: tokened(token)}
				transport = &mcp.StreamableClientTransport{
					Endpoint:   base + "/mcp",
					HTTPClient: client,
				}
			} else {
				if want := []string{"--config", "/etc/caponier/config.toml",
					"serve"}; c.Command != "/usr/local/bin/caponier" ||
					!slices.Equal(c.Args, want) {
					t.Fatalf("%+v", c)
				}
				c.Args[1] = s.config
				cmd := exec.Command(bin, c.Args...)
				cmd.Dir, cmd.Stderr = "/", t.Output()
				cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin",
					"CAPONIER_SANDBOX_CACHE_DIR=" + filepath.Join(filepath.Dir(bin), "cache")}
				transport = &mcp.CommandTransport{Command: cmd}
			}
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
				Connect(t.Context(), transport, nil)
			must(t, err)
			defer session.Close()
			list, err := session.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 7 {
				t.Fatalf("tools: %+v, %v", list, err)
			}
			res, err := session.CallTool(
				t.Context(),
				&mcp.CallToolParams{
					Name:      "proxmox_container_status",
					Arguments: map[string]any{"vmid": 101},
				},
			)
			if err != nil || res.IsError ||
				!strings.Contains(res.Content[0].(*mcp.TextContent).Text, "running") {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// tokened adds a token to each request.
type tokened string

func (b tokened) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// add appends to the configuration.
func (s *site) add(t *testing.T, text string) {
	t.Helper()
	f, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

// listening serves HTTP, or HTTPS, until the test ends, and answers where.
func (s *site) listening(t *testing.T) (addr string) {
	t.Helper()
	cmd := s.command("serve", "--http", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	at := regexp.MustCompile(`url=https?://(\S+)/mcp`)
	for addr == "" && lines.Scan() {
		if m := at.FindStringSubmatch(lines.Text()); m != nil {
			addr = m[1]
		}
	}
	go func() {
		for lines.Scan() {
		}
	}()
	if addr == "" {
		t.Fatal("serve did not say where it serves")
	}
	return addr
}

// serveWithToken serves HTTP only to a caller with a token.
func (s *site) serveWithToken(t *testing.T) (base, token string) {
	t.Helper()
	s.add(t, "\n[identity]\ntokens = \"tokens.json\"\n[[identity.principals]]\nid = \"demo\"\n")
	out, err := s.command("token", "new", "demo").Output()
	must(t, err)
	base = "http://" + s.listening(t)
	none, err := http.Post(base+"/mcp", "application/json", strings.NewReader(`{}`))
	must(t, err)
	none.Body.Close()
	if none.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", none.StatusCode)
	}
	return base, strings.TrimSpace(string(out))
}

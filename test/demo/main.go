// Command demo is the main job on real input, for someone who sees Caponier for the first time:
// `make demo`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo holds what one run needs; everything it makes is under dir.
type demo struct {
	dir, bin string
	session  *mcp.ClientSession
	step     int
}

func (d *demo) say(format string, args ...any) {
	d.step++
	fmt.Printf("\n\x1b[1m%d. %s\x1b[0m\n", d.step, fmt.Sprintf(format, args...))
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "caponier-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err := filepath.Abs("build/caponier")
	if err != nil {
		return err
	}
	d := &demo{dir: dir, bin: bin}
	if err := d.prepare(ctx); err != nil {
		return err
	}

	d.say("A simulated Proxmox node with a real SSH server (test/pvelab)")
	addr, stopLab, err := d.startLab(ctx)
	if err != nil {
		return err
	}
	defer stopLab()
	fmt.Println("   node pve1 answers SSH on", addr)

	d.say(
		"An MCP client (the official Go SDK) starts `caponier serve` on stdio and lists the tools",
	)
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1"}, nil)
	serve := exec.CommandContext(ctx, d.bin, "--config", filepath.Join(d.dir, "config.toml"),
		"serve")
	serve.Env = d.env()
	serve.Stderr = prefixed("   caponier | ")
	if d.session, err = client.Connect(ctx, &mcp.CommandTransport{Command: serve},
		nil); err != nil {
		return fmt.Errorf("connecting to caponier serve: %w", err)
	}
	defer d.session.Close()
	list, err := d.session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, t := range list.Tools {
		fmt.Printf("   %-42s %s\n", t.Name, t.Title)
	}

	d.say("It runs a command in container 101")
	if _, err := d.call(ctx, "proxmox_container_exec_command", map[string]any{"vmid": 101,
		"command": "hostname; cat /etc/os-release | head -n 2"}, false); err != nil {
		return err
	}

	d.say("It uploads a file into the container, downloads it again, and the digests agree")
	if err := d.roundTrip(ctx); err != nil {
		return err
	}

	d.say("Container 103 is protected by policies/site: refused, although the command is harmless")
	if _, err := d.call(ctx, "proxmox_container_exec_command", map[string]any{"vmid": 103,
		"command": "true"}, true); err != nil {
		return err
	}

	d.say(
		"A malicious plugin is called for 101 and tries to act on 105: the operation is refused, " +
			"whatever the plugin does",
	)
	if _, err := d.call(ctx, "rogue_exec", map[string]any{"vmid": 101, "really": 105},
		true); err != nil {
		return err
	}
	d.session.Close()

	d.say("A red call is planned, a person approves exactly that plan, and then it runs")
	if err := d.approved(ctx, "proxmox_start_container", `{"vmid":102}`); err != nil {
		return err
	}

	d.say("The call is undone: as a call of its own, which is planned and approved too")
	if err := d.undone(ctx, "proxmox_start_container"); err != nil {
		return err
	}

	d.say("A malicious plugin has one thing approved and does another: what is not on the plan " +
		"is refused")
	if err := d.deviates(ctx); err != nil {
		return err
	}

	d.say("The journal tells all of it, and its hash chains verify")
	if err := d.show(ctx, "audit", "tail"); err != nil {
		return err
	}
	if err := d.show(ctx, "audit", "verify"); err != nil {
		return err
	}

	d.say("What reached the node: nothing for 103, and nothing of the rogue for 105")
	if err := d.effects(); err != nil {
		return err
	}
	fmt.Println("\n   Now you: `make lab` starts the same node; README.md goes on with it.")
	return nil
}

// prepare locks the modules that the demo uses and gives the rogue tool a tier, as a careless site
// would.
func (d *demo) prepare(ctx context.Context) error {
	plugins := filepath.Join(d.dir, "plugins")
	for from, to := range map[string]string{"build/plugins/containers.wasm": "containers.wasm",
		"build/plugins/guests.wasm": "guests.wasm", "build/modules/rogue.wasm": "rogue.wasm",
		"build/modules/deviant.wasm": "deviant.wasm"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("%w: run `make demo`, which builds it", err)
		}
		if err := os.MkdirAll(plugins, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(plugins, to), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(d.dir, "site"), os.DirFS("examples/lab/site")); err != nil {
		return err
	}
	data := filepath.Join(d.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	if err != nil {
		return err
	}
	text = bytes.Replace(text, []byte("\ntiers:\n"),
		[]byte("\ntiers:\n  \"tool:rogue_exec\": yellow\n  \"tool:deviant_act\": red\n"), 1)
	text = append(text,
		"\nundo: {tier: yellow, optional: true, keep_days: 7, max_bytes: 65536}\n"...)
	if err := os.WriteFile(data, text, 0o644); err != nil {
		return err
	}
	lock := exec.CommandContext(ctx, d.bin, "plugin", "lock", "--lock",
		filepath.Join(d.dir, "plugins.lock"), "--dir", plugins)
	if out, err := lock.CombinedOutput(); err != nil {
		return fmt.Errorf("caponier plugin lock: %w\n%s", err, out)
	}
	return nil
}

func (d *demo) startLab(ctx context.Context) (addr string, stop func(), err error) {
	state := filepath.Join(d.dir, "lab")
	lab := exec.CommandContext(ctx, "build/pvelab", "--listen", "127.0.0.1:0", "--state", state,
		"--effects", d.effectsFile(), "--write-config", filepath.Join(d.dir, "config.toml"),
		"--plugins", filepath.Join(d.dir, "plugins"), "--lock",
		filepath.Join(d.dir, "plugins.lock"), "--site", filepath.Join(d.dir, "site"))
	lab.Stderr = prefixed("   pvelab | ")
	out, err := lab.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := lab.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = lab.Process.Signal(syscall.SIGTERM)
		_ = lab.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("pvelab did not start: %w", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "ready ")), stop, nil
}

// env keeps compiled plugins, so that the second demo compiles nothing.
func (d *demo) env() []string {
	return append(os.Environ(),
		"CAPONIER_SANDBOX_CACHE_DIR="+filepath.Join(filepath.Dir(d.bin), "cache"))
}

func (d *demo) effectsFile() string { return filepath.Join(d.dir, "effects.jsonl") }

// call calls a tool, prints what came back, and checks whether that is a refusal as expected.
func (d *demo) call(ctx context.Context, tool string, args map[string]any,
	wantRefused bool) (*mcp.CallToolResult, error) {
	shown, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	fmt.Printf("   → %s %s\n", tool, shown)
	began := time.Now()
	res, err := d.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", tool, err)
	}
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			for line := range strings.Lines(strings.TrimRight(text.Text, "\n") + "\n") {
				fmt.Print("   ← ", line)
			}
		}
	}
	fmt.Printf("   (%s)\n", time.Since(began).Round(time.Millisecond))
	meta, err := json.Marshal(res.Meta["io.caponier/call"])
	if err != nil {
		return nil, err
	}
	refused := bytes.Contains(meta, []byte(`"decision_id"`))
	switch {
	case wantRefused && !refused:
		return nil, fmt.Errorf("%s was not refused: %s", tool, meta)
	case !wantRefused && (res.IsError || refused):
		return nil, fmt.Errorf("%s did not succeed: %s", tool, meta)
	}
	return res, nil
}

func (d *demo) roundTrip(ctx context.Context) error {
	workspace := filepath.Join(d.dir, "lab", "workspace", "demo")
	if err := os.MkdirAll(workspace, 0o700); err != nil {
		return err
	}
	body := bytes.Repeat([]byte("caponier\x00\xff "), 20_000)
	if err := os.WriteFile(filepath.Join(workspace, "notes.bin"), body, 0o600); err != nil {
		return err
	}
	if _, err := d.call(ctx, "proxmox_upload_file_to_container", map[string]any{"vmid": 101,
		"local_path": "notes.bin", "container_path": "/root/notes.bin"}, false); err != nil {
		return err
	}
	if _, err := d.call(ctx, "proxmox_download_file_from_container", map[string]any{"vmid": 101,
		"container_path": "/root/notes.bin", "local_path": "back.bin"}, false); err != nil {
		return err
	}
	back, err := os.ReadFile(filepath.Join(workspace, "back.bin"))
	if err != nil {
		return err
	}
	sent, got := sha256.Sum256(body), sha256.Sum256(back)
	fmt.Printf("   sent %x… got %x…\n", sent[:8], got[:8])
	if sent != got {
		return errors.New("the file that came back is not the one that was sent")
	}
	return nil
}

func (d *demo) show(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(
		ctx,
		d.bin,
		append([]string{"--config", filepath.Join(d.dir, "config.toml")}, args...)...)
	cmd.Env = d.env()
	out, err := cmd.CombinedOutput()
	for line := range bytes.Lines(out) {
		fmt.Print("   ", string(line))
	}
	if err != nil {
		return fmt.Errorf("caponier %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// effects prints what the node saw and fails if a refused call left something there.
func (d *demo) effects() error {
	f, err := os.Open(d.effectsFile())
	if err != nil {
		return err
	}
	defer f.Close()
	moved := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		var e struct {
			Kind string
			Argv []string
		}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return fmt.Errorf("effects log: %w", err)
		}
		if e.Kind != "exec" {
			moved++
			continue
		}
		line := strings.ReplaceAll(words(e.Argv), "\n", "⏎")
		if len(e.Argv) > 0 && e.Argv[0] == "printf" {
			line = "(the host found out how this node's login shell reads quotes)"
		}
		fmt.Println("  ", line)
		for _, word := range e.Argv {
			if word == "103" || word == "105" {
				return fmt.Errorf("a refused call reached the node: %v", e.Argv)
			}
		}
	}
	fmt.Printf("   and %d SFTP requests in the call's own staging directories, which are gone\n",
		moved)
	return nil
}

// words shows an argument list so that one sees where each word begins and ends.
func words(argv []string) string {
	var shown []string
	for _, w := range argv {
		if w == "" || strings.ContainsAny(w, " ;|&<>$*?()") {
			w = "'" + w + "'"
		}
		shown = append(shown, w)
	}
	return strings.Join(shown, " ")
}

// prefixed is a writer that marks each line of a child.
func prefixed(prefix string) io.Writer {
	r, w := io.Pipe()
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			fmt.Println(prefix + s.Text())
		}
	}()
	return w
}

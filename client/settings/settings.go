// Package settings writes the start of a host into the settings of MCP clients.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// Server is what a client has to start.
type Server struct {
	Command string
	Args    []string
}

// client is an MCP client whose configuration is known.
type client struct {
	title string
	dir   func() (string, error) // os.UserHomeDir or os.UserConfigDir
	file  string                 // below dir
	table string                 // the key that holds the servers
	extra map[string]any         // in an entry, besides command and args
}

// clients are the clients, by the name that people give. examples/clients/README.md says what their
// documentation says.
var clients = map[string]client{
	"claude-desktop": {"Claude Desktop", os.UserConfigDir, "Claude/claude_desktop_config.json",
		"mcpServers", nil},
	"claude-code": {"Claude Code", os.UserHomeDir, ".claude.json", "mcpServers",
		map[string]any{"type": "stdio"}},
	"vscode": {"VS Code", os.UserConfigDir, "Code/User/mcp.json", "servers",
		map[string]any{"type": "stdio"}},
	"cursor": {"Cursor", os.UserHomeDir, ".cursor/mcp.json", "mcpServers", nil},
	"codex":  {"Codex", os.UserHomeDir, ".codex/config.toml", "mcp_servers", nil},
	"gemini": {"Gemini CLI", os.UserHomeDir, ".gemini/settings.json", "mcpServers",
		map[string]any{"timeout": 900_000}},
	"goose": {"Goose", os.UserHomeDir, ".config/goose/config.yaml", "extensions", nil},
	"zed":   {"Zed", os.UserHomeDir, ".config/zed/settings.json", "context_servers", nil},
}

// Clients returns the names of the clients that are known.
func Clients() (names []string) {
	for n := range clients {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Snippet returns what a client needs in its configuration, and the file where it goes.
func Snippet(name string, s Server) (text, file string, err error) {
	c, ok := clients[name]
	if !ok {
		return "", "", fmt.Errorf("%q is not a client that is known: %s", name,
			strings.Join(Clients(), ", "))
	}
	dir, err := c.dir()
	if err != nil {
		return "", "", err
	}
	return c.snippet(s), filepath.Join(dir, filepath.FromSlash(c.file)), nil
}

// AddTo adds the server to a client's file, and returns what it did. It refuses a file that is not
// what the client documents, or a link; it keeps the old file beside the new one, and every byte of
// it but for the entry. A file with the same entry stays.
func AddTo(name, file string, s Server) (done string, err error) {
	c, ok := clients[name]
	if !ok {
		return "", fmt.Errorf("%q is not a client that is known", name)
	}
	hand := func(format string, args ...any) error {
		return fmt.Errorf("%s "+format+"; nothing was written. By hand, it needs:\n%s",
			append(append([]any{file}, args...), c.snippet(s))...)
	}
	info, err := os.Lstat(file)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return "", fmt.Errorf("%s: %w: is %s installed? (--file FILE names another file)",
				file, err, c.title)
		}
		return file + " is new", replace(file, []byte(c.snippet(s)), 0o600)
	} else if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", hand("is not a regular file but %s", info.Mode().Type())
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	have, err := c.read(old)
	if err != nil {
		return "", hand("cannot be read as %s: %w", filepath.Ext(file), err)
	}
	want, err := c.read([]byte(c.snippet(s)))
	if err != nil {
		return "", err
	}
	if have["caponier"] != nil {
		if reflect.DeepEqual(have["caponier"], want["caponier"]) {
			return file + " has it already; nothing was changed", nil
		}
		return "", hand("has another entry of the name caponier: remove that first")
	}
	text := c.insert(old, s)
	now, err := c.read(text)
	if have["caponier"] = want["caponier"]; err != nil || !reflect.DeepEqual(now, have) {
		return "", hand("is written in a way that cannot be extended safely")
	}
	backup := file + ".before-caponier-" + time.Now().UTC().Format("20060102T150405Z")
	if err := keep(backup, old, info.Mode().Perm()&0o600); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s has it now; %s is the old one", file, backup),
		replace(file, text, info.Mode().Perm())
}

// RemoveFrom takes the server out of a client's file, and returns what it did. It removes the bytes
// that AddTo wrote and no others, keeps the old file beside the new one, and refuses an entry that
// somebody changed, a link, and a file that it cannot read.
func RemoveFrom(name, file string, s Server) (done string, err error) {
	c, ok := clients[name]
	if !ok {
		return "", fmt.Errorf("%q is not a client that is known", name)
	}
	info, err := os.Lstat(file)
	if errors.Is(err, os.ErrNotExist) {
		return file + " is not there; nothing was changed", nil
	} else if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file but %s; nothing was changed", file,
			info.Mode().Type())
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	have, err := c.read(old)
	if err != nil {
		return "", fmt.Errorf("%s cannot be read as %s: %w; nothing was changed", file,
			filepath.Ext(file), err)
	}
	if have["caponier"] == nil {
		return file + " has no entry of the name caponier; nothing was changed", nil
	}
	if string(old) == c.snippet(s) {
		return file + " held nothing else, and is gone", os.Remove(file)
	}
	text := c.remove(old, s)
	now, err := c.read(text)
	if delete(have, "caponier"); err != nil || !reflect.DeepEqual(now, have) {
		return "", fmt.Errorf("%s has the entry caponier in another form than client add writes "+
			"it: remove it by hand; nothing was changed", file)
	}
	backup := file + ".before-caponier-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err := keep(backup, old, info.Mode().Perm()&0o600); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s has it no more; %s is the old one", file, backup),
		replace(file, text, info.Mode().Perm())
}

// remove returns the text without what insert put into it, as far as that stands there. The caller
// must read the result.
func (c client) remove(old []byte, s Server) []byte {
	args, _ := json.Marshal(s.Args)
	cut := func(part string) []byte { return bytes.Replace(old, []byte(part), nil, 1) }
	switch filepath.Ext(c.file) {
	case ".toml":
		return cut("\n" + c.snippet(s))
	case ".yaml":
		return cut(c.yaml(s, args))
	}
	entry, _ := json.MarshalIndent(c.entry(s), "    ", "  ")
	member := "\n    \"caponier\": " + string(entry)
	if bytes.Contains(old, []byte(member+",")) {
		member += ","
	}
	return cut(member)
}

// entry is the server as this client writes it.
func (c client) entry(s Server) map[string]any {
	e := map[string]any{"command": s.Command, "args": s.Args}
	for k, v := range c.extra {
		e[k] = v
	}
	return e
}

// snippet is a whole configuration with this server and nothing else.
func (c client) snippet(s Server) string {
	args, _ := json.Marshal(s.Args) // a list of strings is alike in JSON, TOML and YAML
	switch filepath.Ext(c.file) {
	case ".toml":
		return fmt.Sprintf("[mcp_servers.caponier]\ncommand = %q\nargs = %s\n"+
			"startup_timeout_sec = 60\ntool_timeout_sec = 900\n", s.Command, args)
	case ".yaml":
		return fmt.Sprintf("extensions:\n%s", c.yaml(s, args))
	}
	text, _ := json.MarshalIndent(map[string]any{c.table: map[string]any{"caponier": c.entry(s)}},
		"", "  ")
	return string(text) + "\n"
}

func (c client) yaml(s Server, args []byte) string {
	return fmt.Sprintf("  caponier:\n    type: stdio\n    name: caponier\n    cmd: %s\n"+
		"    args: %s\n    enabled: true\n    timeout: 900\n", strconv.Quote(s.Command), args)
}

// read returns the servers that a configuration names.
func (c client) read(data []byte) (map[string]any, error) {
	var all map[string]any
	var err error
	switch filepath.Ext(c.file) {
	case ".toml":
		err = toml.Unmarshal(data, &all)
	case ".yaml":
		err = yaml.Unmarshal(data, &all)
	default:
		err = json.Unmarshal(data, &all)
	}
	servers, ok := all[c.table].(map[string]any)
	if err == nil && !ok && all[c.table] != nil {
		err = fmt.Errorf("%s is no table", c.table)
	}
	if servers == nil {
		servers = map[string]any{}
	}
	return servers, err
}

var extensions = regexp.MustCompile(`(?m)^extensions:[ \t]*\n`)

// insert returns the text with the server's entry in it. The caller must read the result: a file
// may be written in a way that this does not foresee.
func (c client) insert(old []byte, s Server) []byte {
	args, _ := json.Marshal(s.Args)
	old = slices.Clone(old)
	switch filepath.Ext(c.file) {
	case ".toml":
		return append(append(bytes.TrimRight(old, "\n"), "\n\n"...), c.snippet(s)...)
	case ".yaml":
		if at := extensions.FindIndex(old); at != nil {
			return slices.Insert(old, at[1], []byte(c.yaml(s, args))...)
		}
		return append(append(bytes.TrimRight(old, "\n"), '\n'), c.snippet(s)...)
	}
	entry, _ := json.MarshalIndent(c.entry(s), "    ", "  ")
	member, top := "\n    \"caponier\": "+string(entry), bytes.IndexByte(old, '{')+1
	at := c.offset(old)
	if at < 0 {
		member, at = fmt.Sprintf("\n  %q: {%s\n  }", c.table, member), top
	}
	if next := bytes.TrimLeft(old[at:], " \t\r\n"); len(next) > 0 && next[0] != '}' {
		member += ","
	}
	return slices.Insert(old, at, []byte(member)...)
}

// offset returns where the object of the servers begins, behind its brace, or -1.
func (c client) offset(data []byte) int {
	d := json.NewDecoder(bytes.NewReader(data))
	_, _ = d.Token() // {
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return -1
		}
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return -1
		}
		if key == c.table {
			return int(d.InputOffset()) - len(skip) + 1
		}
	}
	return -1
}

// keep writes a file that is not there.
func keep(file string, data []byte, perm os.FileMode) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
}

// replace gives a file new contents, all or none.
func replace(file string, data []byte, perm os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".caponier-client-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

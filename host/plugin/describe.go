package plugin

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxModule   = 16 << 20 // bytes
	maxDescribe = 1 << 20  // bytes
	minBudget   = time.Millisecond
	maxBudget   = 15 * time.Minute
	maxItems    = 256 // tools, resources and prompts of one plugin
	maxRuns     = 32  // commands that one of these declares: a person has to read them
)

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	// of plugins, whose names become file names
	fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	version  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$`)
	mimeForm = regexp.MustCompile(`^[a-z]+/[a-z0-9][a-z0-9.+-]{0,62}(; ?charset=utf-8)?$`)
	// an entry of the command grammar: program, sub-command, path of the API
	runsForm = regexp.MustCompile(`^[!-~]{1,64}( [!-~]{1,96}){0,3}$`)
	uriForm  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[!-~]{1,200}$`)
)

type describe struct {
	ABI       int64             `json:"abi"`
	Minor     int64             `json:"minor"` // of the ABI; 0 where it is missing
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Tools     []json.RawMessage `json:"tools"`
	Resources []json.RawMessage `json:"resources"`
	Prompts   []json.RawMessage `json:"prompts"`
}

// item is a tool, a resource or a prompt.
type item struct {
	Name         string          `json:"name"`
	URI          string          `json:"uri"`
	MIME         string          `json:"mime_type"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema"`
	Hints        json.RawMessage `json:"hints"`
	Imports      []string        `json:"imports"`
	Commands     []string        `json:"commands"`
	BudgetMS     int64           `json:"budget_ms"`
	Runs         string          `json:"runs"`
	AliasOf      string          `json:"alias_of"`
}

func parseDescribe(data []byte) (d describe, err error) {
	return d, abi.DecodeInto(data, maxDescribe, &d)
}

// Tools checks the whole entry and returns what the plugin offers, ready to be called.
func (e Entry) Tools() ([]*terms.Tool, error) {
	fail := func(err error) ([]*terms.Tool, error) {
		return nil, fmt.Errorf("plugin %s: %w", cmp.Or(e.Name, e.File), err)
	}
	d, err := parseDescribe(e.Describe)
	if err != nil {
		return fail(fmt.Errorf("describe: %w", err))
	}
	known := abi.Operations()
	for _, i := range e.Imports {
		if !slices.Contains(known, i) {
			return fail(fmt.Errorf("imports %q, which is not an operation of this host (%s)", i,
				strings.Join(known, " ")))
		}
	}
	switch {
	case d.ABI != 1:
		return fail(fmt.Errorf("abi is %d, this host speaks 1", d.ABI))
	case d.Minor < 0:
		return fail(fmt.Errorf("minor is %d: want 0 or more", d.Minor))
	case !fileName.MatchString(d.Name):
		return fail(fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 _ . - and first a letter "+
			"or digit", d.Name))
	case !version.MatchString(d.Version):
		return fail(fmt.Errorf("version %q: want 1 to 64 of A-Z a-z 0-9 . + -", d.Version))
	case e.Name != d.Name || e.Version != d.Version:
		return fail(fmt.Errorf("name and version are %s %s, but describe says %s %s", e.Name,
			e.Version, d.Name, d.Version))
	case !fileName.MatchString(e.File) || !strings.HasSuffix(e.File, ".wasm"):
		return fail(fmt.Errorf("file %q: want a plain file name that ends in .wasm", e.File))
	case !digestForm.MatchString(e.Digest):
		return fail(fmt.Errorf("digest %q: want sha256: and 64 hex digits", e.Digest))
	case !e.Signed.whole():
		return fail(errors.New("signed: want a name, and sha256: and 64 hex digits"))
	case !slices.Equal(e.Imports, sorted(e.Imports)):
		return fail(errors.New("imports are not sorted or repeat"))
	case len(d.Tools)+len(d.Resources)+len(d.Prompts) > maxItems:
		return fail(fmt.Errorf("more than %d tools, resources and prompts", maxItems))
	}
	var all []*terms.Tool
	for _, k := range []struct {
		kind  string
		items []json.RawMessage
	}{{"prompt", d.Prompts}, {"resource", d.Resources}, {"tool", d.Tools}} {
		var tools []*terms.Tool
		for n, raw := range k.items {
			t, err := e.tool(k.kind, raw)
			if err != nil {
				return fail(fmt.Errorf("%s %s: %w", k.kind, cmp.Or(t.Name, fmt.Sprint(n)), err))
			}
			t.Plans = d.Minor >= 2
			tools = append(tools, t)
		}
		slices.SortFunc(tools, func(a, b *terms.Tool) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, tools...)
	}
	return all, nil
}

// tool always returns a tool, if only to name it in an error.
func (e Entry) tool(kind string, raw json.RawMessage) (*terms.Tool, error) {
	var it item
	t := &terms.Tool{Kind: kind, Plugin: e.Plugin}
	if err := abi.DecodeInto(raw, maxDescribe, &it); err != nil {
		return t, err
	}
	t.Name, t.Title, t.Description, t.URI, t.MIME, t.Runs = it.Name, it.Title, it.Description,
		it.URI, it.MIME, it.Runs
	t.AliasOf = it.AliasOf
	t.InputSchema, t.OutputSchema, t.Commands = it.InputSchema, it.OutputSchema, it.Commands
	t.Budget = time.Duration(it.BudgetMS) * time.Millisecond
	if !itemName.MatchString(it.Name) {
		t.Name = ""
		return t, fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 _ . -", it.Name)
	}
	if t.Imports = sorted(it.Imports); len(t.Imports) != len(it.Imports) {
		return t, errors.New("imports repeat")
	}
	for _, i := range t.Imports {
		if !slices.Contains(e.Imports, i) {
			return t, fmt.Errorf("imports %s, which its module does not", i)
		}
	}
	if it.BudgetMS < minBudget.Milliseconds() || it.BudgetMS > maxBudget.Milliseconds() {
		return t, fmt.Errorf("budget_ms %d: want %d to %d", it.BudgetMS, minBudget.Milliseconds(),
			maxBudget.Milliseconds())
	}
	err := errors.Join(
		readable("description", it.Description, 20, 4096, "\n"),
		readable("runs", it.Runs, 1, 256, ""),
		readable("title", it.Title, 0, 128, ""))
	if err != nil {
		return t, err
	}
	if t.Hints, err = parseHints(it.Hints); err != nil && (kind == "tool" || it.Hints != nil) {
		return t, err
	}
	if err := it.address(kind); err != nil {
		return t, err
	}
	switch {
	case t.InputSchema == nil && kind == "tool":
		return t, errors.New("input_schema: missing")
	case t.InputSchema == nil:
		t.InputSchema = json.RawMessage(
			`{"additionalProperties":false,"properties":{},"type":"object"}`)
	}
	if err := compileSchemas(t); err != nil {
		return t, err
	}
	return t, declared(t)
}

// address checks the URI and the MIME type, which only a resource has.
func (it item) address(kind string) error {
	resource := kind == "resource"
	switch {
	case resource != (it.URI != "") || resource && !uriForm.MatchString(it.URI):
		return fmt.Errorf("uri %q: a resource needs one such as docs://page, and nothing else "+
			"has one", it.URI)
	case strings.HasPrefix(it.URI, "caponier:"):
		return fmt.Errorf("uri %q: this scheme is the host's own", it.URI)
	case it.MIME != "" && (!resource || !mimeForm.MatchString(it.MIME)):
		return fmt.Errorf("mime_type %q: a resource may have one such as text/markdown, and "+
			"nothing else has one", it.MIME)
	case it.AliasOf != "" && (kind != "tool" || it.AliasOf == it.Name ||
		!itemName.MatchString(it.AliasOf)):
		return fmt.Errorf("alias_of %q: a tool may have the name of another one, and nothing "+
			"else has one", it.AliasOf)
	}
	return nil
}

const exampleCommands = `commands: name each entry of the command grammar that it runs, ` +
	`such as "pct start" or "pvesh get /nodes/{node}/status"`

func runsCommands(t *terms.Tool) bool {
	return slices.Contains(t.Imports, "ssh_exec") || slices.Contains(t.Imports, "ssh_script")
}

// declared checks what the tool says that it runs on nodes. Policy holds its operations to it; a
// lock from before there were declarations is taken, so that it can be compared with a new one, and
// what says nothing in it runs nothing.
func declared(t *terms.Tool) error {
	isText := func(p terms.Param) bool { return p.Target == "command" }
	text := slices.ContainsFunc(t.Params, isText)
	switch any := slices.Contains(t.Commands, terms.CallersText); {
	case len(t.Commands) == 0:
		return nil
	case len(t.Commands) > maxRuns:
		return fmt.Errorf("commands: %d are more than the %d that a person is asked to read",
			len(t.Commands), maxRuns)
	case len(sorted(t.Commands)) != len(t.Commands):
		return errors.New("commands repeat")
	case !runsCommands(t):
		return errors.New("declares commands, and imports neither ssh_exec nor ssh_script")
	case text && !any:
		return errors.New(
			`has an argument that is command text for a node, so its commands must hold "*", ` +
				`which stands for that text`)
	case any && !text:
		return errors.New(
			`commands: "*" stands for the caller's own text, and no argument is marked as a ` +
				`command for a node; ` + exampleCommands)
	}
	for _, c := range t.Commands {
		if !runsForm.MatchString(c) {
			return fmt.Errorf("command %q: want words of ASCII, one space between them; %s", c,
				exampleCommands)
		}
	}
	return nil
}

func parseHints(raw json.RawMessage) (terms.Hints, error) {
	var h struct {
		ReadOnly    *bool `json:"read_only"`
		Destructive *bool `json:"destructive"`
		Idempotent  *bool `json:"idempotent"`
		OpenWorld   *bool `json:"open_world"`
	}
	if raw == nil {
		return terms.Hints{}, errors.New("hints: missing")
	}
	if err := abi.DecodeInto(raw, maxDescribe, &h); err != nil {
		return terms.Hints{}, fmt.Errorf("hints: %w", err)
	}
	if h.ReadOnly == nil || h.Destructive == nil || h.Idempotent == nil || h.OpenWorld == nil {
		return terms.Hints{}, errors.New(
			"hints: read_only, destructive, idempotent and open_world must all be there")
	}
	if *h.ReadOnly && *h.Destructive {
		return terms.Hints{}, errors.New("hints: read_only and destructive contradict each other")
	}
	return terms.Hints{ReadOnly: *h.ReadOnly, Destructive: *h.Destructive,
		Idempotent: *h.Idempotent,
		OpenWorld:  *h.OpenWorld}, nil
}

// Entry is one locked plugin. Its name and version repeat those of Describe.
type Entry struct {
	terms.Plugin
	File    string   `json:"file"`    // base name of the module
	Imports []string `json:"imports"` // the operations of its import section, sorted
	// what caponier_v1_describe answered, in canonical form
	Describe json.RawMessage `json:"describe"`
	Signed   *Signed         `json:"signed,omitempty"` // nil where the site asks for no signature
}

// Signed says for whose signature a module was locked.
type Signed struct {
	By        string `json:"by"`        // as the site's plugins.trust names it
	Signature string `json:"signature"` // digest of the file beside the module
}

func (s *Signed) whole() bool {
	return s == nil || s.By != "" && digestForm.MatchString(s.Signature)
}

// NewEntry checks a module and what it described against the rules for locked plugins. File is its
// path, of which the base name is kept; imports are the operations of its import section.
func NewEntry(file string, wasm []byte, imports []string, describe []byte) (Entry, error) {
	e := Entry{File: filepath.Base(file), Imports: sorted(imports)}
	e.Digest = digest(wasm)
	if len(wasm) > maxModule {
		return Entry{}, fmt.Errorf("plugin %s: module of %d bytes is over the limit of %d", e.File,
			len(wasm), maxModule)
	}
	v, err := abi.Decode(describe, maxDescribe)
	if err != nil {
		return Entry{}, fmt.Errorf("plugin %s: describe: %w", e.File, err)
	}
	if e.Describe, err = abi.Encode(v); err != nil {
		return Entry{}, fmt.Errorf("plugin %s: describe: %w", e.File, err)
	}
	d, err := parseDescribe(e.Describe)
	if err != nil {
		return Entry{}, fmt.Errorf("plugin %s: describe: %w", e.File, err)
	}
	e.Name, e.Version = d.Name, d.Version
	tools, err := e.Tools()
	for _, t := range tools {
		if runsCommands(t) && len(t.Commands) == 0 {
			return Entry{}, fmt.Errorf(
				"plugin %s: %s %s: imports ssh_exec or ssh_script and declares no command, so "+
					"it could run none; %s", e.Name, t.Kind, t.Name, exampleCommands)
		}
		if t.OutputSchema == nil {
			continue
		}
		if _, _, err := compile(t.OutputSchema); err != nil {
			return Entry{}, fmt.Errorf("plugin %s: %s %s: output_schema: %w", e.Name, t.Kind,
				t.Name, err)
		}
	}
	return e, err
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

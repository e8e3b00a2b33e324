package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Selection is the table [tools]: what of the lock is offered. A toolset is a plugin by its name.
// The last three fields come from the command line, which can only narrow what the table leaves.
type Selection struct {
	Enable []string `koanf:"enable"` // toolsets and tools; absent for all that the lock has
	// toolsets and tools that are not offered, whatever enables them
	Disable []string `koanf:"disable"`
	// lists tools that do another tool's job too; they can be called all the same
	Aliases bool `koanf:"aliases"`
	// lists output schemas, and sends the structured content that they promise
	OutputSchemas bool `koanf:"output_schemas"`

	Toolsets []string `koanf:"-"` // of those, only these toolsets, and
	Tools    []string `koanf:"-"` // these tools beside them; both empty for all
	Exclude  []string `koanf:"-"` // tools and toolsets that are left out in any case
}

// Validate refuses a list that enables nothing: it could be taken for no limit.
func (s Selection) Validate() error {
	if s.Enable != nil && len(s.Enable) == 0 {
		return errors.New("tools.enable: is empty; name what to offer, or delete the line for " +
			"all that the lock has")
	}
	return nil
}

// HiddenReason returns a function that returns why a tool, resource or prompt is not offered, or ""
// when it is. A name that the lock does not have is an error, and so is a selection that leaves
// nothing.
func (s Selection) HiddenReason(l *Lock) (func(*terms.Tool) string, error) {
	var toolsets, tools []string
	owner := map[string]string{}
	for _, e := range l.entries {
		toolsets = append(toolsets, e.Name)
	}
	for _, t := range l.tools {
		tools, owner[t.Name] = append(tools, t.Name), t.Plugin.Name
	}
	all := slices.Concat(toolsets, tools)
	var errs []error
	check := func(where string, names, known []string) {
		for _, n := range names {
			if !slices.Contains(known, n) {
				errs = append(errs, fmt.Errorf("%s: there is no %q; what there is: %s", where, n,
					strings.Join(known, ", ")))
			}
		}
	}
	check("[tools] enable", s.Enable, all)
	check("[tools] disable", s.Disable, all)
	check("--toolsets", s.Toolsets, toolsets)
	check("--tools", s.Tools, tools)
	check("--exclude-tools", s.Exclude, all)
	for _, n := range s.Enable {
		if of := owner[n]; of != "" && of != n && slices.Contains(toolsets, n) {
			errs = append(errs, fmt.Errorf(
				"[tools] enable: %q is a toolset and a tool of the toolset %s: name the tools "+
					"one by one", n, of))
		}
	}
	errs = append(errs, s.Validate())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(l.tools) > 0 &&
		!slices.ContainsFunc(l.tools, func(t *terms.Tool) bool { return s.why(t) == "" }) {
		return nil, errors.New(
			"nothing is left to offer: [tools], --toolsets, --tools and --exclude-tools together " +
				"withhold everything that the lock has")
	}
	return s.why, nil
}

// Lists reports whether clients see a tool although it is an alias of another one that they see.
func (s Selection) Lists(t *terms.Tool) bool {
	return s.Aliases || slices.Contains(s.Enable, t.Name) || slices.Contains(s.Tools, t.Name)
}

// why returns why a tool is not offered, or "" when it is.
func (s Selection) why(t *terms.Tool) string {
	in := func(names []string) bool {
		return slices.Contains(names, t.Name) || slices.Contains(names, t.Plugin.Name)
	}
	switch {
	case len(s.Enable) > 0 && !in(s.Enable):
		return "is not among those that [tools] enable offers"
	case in(s.Disable):
		return "is among those that [tools] disable takes away"
	case len(s.Toolsets)+len(s.Tools) > 0 && !slices.Contains(s.Toolsets, t.Plugin.Name) &&
		!slices.Contains(s.Tools, t.Name):
		return "is not among those that --toolsets and --tools select"
	case in(s.Exclude):
		return "is among those that --exclude-tools leaves out"
	}
	return ""
}

// Tool returns a tool of the lock. The error names the command that mends the lock when it does not
// match the modules.
func (l *Lock) Tool(o Options, name string) (*terms.Tool, error) {
	for _, t := range l.Tools() {
		if t.Name == name {
			return t, nil
		}
	}
	err := fmt.Errorf("no tool %q; `caponier tools` lists them", name)
	locked, stale := map[string]bool{}, []string{}
	for _, e := range l.Plugins() {
		locked[e.File] = true
		if _, err := l.Open(o.Dir, e.Name); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			stale = append(stale, strings.TrimSuffix(e.File, ".wasm"))
		}
	}
	files, _ := filepath.Glob(filepath.Join(o.Dir, "*.wasm")) // fails for bad patterns
	for _, file := range files {
		if base := filepath.Base(file); !locked[base] {
			stale = append(stale, strings.TrimSuffix(base, ".wasm"))
		}
	}
	if len(stale) == 0 {
		return nil, err
	}
	names := strings.Join(stale, " ")
	return nil, fmt.Errorf("%w. %s does not match what is in %s (%s): if that should offer it, "+
		"run `caponier plugin lock --lock %s --dir %s %s` and review the difference", err,
		o.Lock, o.Dir, names, o.Lock, o.Dir, names)
}

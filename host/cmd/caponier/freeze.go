package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/spf13/cobra"
)

// freezes are files in the state directory, one for each thing that is frozen. A file that is there
// freezes, whatever is in it, so that nothing needs to be parsed for a decision, and every process
// sees it at its next one.
type freezes struct{ state string }

type freeze struct {
	Scope  string    `json:"scope"` // all | principal | node | tool
	Name   string    `json:"name,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

func (f freezes) dir() string { return filepath.Join(f.state, "frozen") }

// file names are digests: a principal's id may hold anything.
func (f freezes) file(scope, name string) string {
	if scope == "all" {
		return filepath.Join(f.dir(), "all")
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(f.dir(), scope+"-"+hex.EncodeToString(sum[:16]))
}

// frozen says whether the question concerns something that is frozen, and what for. Not being able
// to look is a yes.
func (f freezes) frozen(q gate.Question) (reason string, frozen bool) {
	is := func(scope, name string) bool {
		_, err := os.Lstat(f.file(scope, name))
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		reason = f.reason(scope, name)
		return true
	}
	c := q.Call
	frozen = is("all", "") || is("principal", c.Principal.ID) || is("tool", c.Tool.Name) ||
		q.Op != nil && q.Op.NodeName() != "" &&
			is(
				"node",
				q.Op.NodeName(),
			) || slices.ContainsFunc(c.Targets.Nodes, func(n string) bool { return is("node", n) }) || slices.ContainsFunc(named(q), func(n string) bool { return is("node", n) })
	return reason, frozen
}

// reason is what the operator wrote about a freeze, or "" when that cannot be read.
func (f freezes) reason(scope, name string) string {
	z := freeze{}
	data, err := os.ReadFile(f.file(scope, name))
	if err != nil || json.Unmarshal(data, &z) != nil {
		return ""
	}
	return z.Reason
}

// named lists what could be a node's name in the commands of a question: pvesh on one node acts on
// another that its path names.
func named(q gate.Question) (names []string) {
	commands := q.Call.Commands
	if q.Cmd != nil {
		commands = append(slices.Clone(commands), *q.Cmd)
	}
	for _, cmd := range commands {
		for _, simple := range cmd.Calls {
			for _, w := range simple.Argv {
				if len(w) <= 1024 {
					names = append(
						names,
						strings.FieldsFunc(
							w,
							func(r rune) bool { return strings.ContainsRune("/:=@,. ", r) },
						)...)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (f freezes) add(z freeze) error {
	if err := os.MkdirAll(f.dir(), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(z)
	if err != nil {
		return err
	}
	// Written in place: the file freezes from the moment that it exists.
	file, err := os.OpenFile(f.file(z.Scope, z.Name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close(), syncDir(f.dir()))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove reports whether it was frozen.
func (f freezes) remove(scope, name string) (bool, error) {
	err := os.Remove(f.file(scope, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, syncDir(f.dir())
}

// list shows a file that it cannot read too: it freezes all the same.
func (f freezes) list() ([]freeze, error) {
	all := []freeze{}
	files, err := os.ReadDir(f.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range files {
		z := freeze{}
		data, err := os.ReadFile(filepath.Join(f.dir(), e.Name()))
		if err == nil {
			err = json.Unmarshal(data, &z)
		}
		if err != nil || filepath.Base(f.file(z.Scope, z.Name)) != e.Name() {
			z = freeze{
				Scope:  "?",
				Name:   e.Name(),
				Reason: "its file cannot be read; delete it to thaw",
			}
		}
		all = append(all, z)
	}
	return all, nil
}

// scope holds the flags that say what is meant.
type scope struct{ principal, node, tool string }

func (s *scope) flags(cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&s.principal, "principal", "", verb+" only the calls of this `PRINCIPAL`")
	cmd.Flags().
		StringVar(&s.node, "node", "", verb+" only what concerns this `NODE` of the inventory")
	cmd.Flags().StringVar(&s.tool, "tool", "", verb+" only this `TOOL`")
	cmd.MarkFlagsMutuallyExclusive("principal", "node", "tool")
}

// of checks the name where it can be checked: a freeze of a node that is spelled wrong would freeze
// nothing.
func (s scope) of(ctx context.Context, g *global) (f freezes, kind, name string, err error) {
	c, err := g.load()
	if err != nil {
		return f, "", "", err
	}
	f = freezes{c.Store.Dir}
	switch {
	case s.principal != "":
		return f, "principal", s.principal, nil
	case s.node != "":
		for _, n := range c.Remote.Nodes {
			if n.Name == s.node {
				return f, "node", s.node, nil
			}
		}
		return f, "", "", fmt.Errorf("%s: no node %q in [[remote.nodes]]", c.File, s.node)
	case s.tool != "":
		h, err := open(ctx, g, wantTools)
		if err != nil {
			return f, "", "", err
		}
		defer h.Close()
		if h.tool(s.tool) == nil {
			return f, "", "", h.noTool(s.tool)
		}
		return f, "tool", s.tool, nil
	}
	return f, "all", "", nil
}

func (z freeze) String() string {
	if z.Scope == "all" {
		return "everything"
	}
	return z.Scope + " " + fmt.Sprintf("%q", z.Name)
}

func freezeCommand(g *global) *cobra.Command {
	var s scope
	var reason string
	var list bool
	cmd := &cobra.Command{
		Use: "freeze", Short: "Refuse every call and every further operation, of everything or of one principal, node or tool, in all processes at once", Args: cobra.NoArgs,
		Long: "Refuse every call and every further operation, in all processes that share the state directory, from their next decision on.\n" +
			"A command that already runs on a node is not stopped; the next operation of the same call is refused.",
		Example: "  caponier freeze --reason 'looking into what agent-a did'\n  caponier freeze --node pve2\n  caponier freeze --list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, kind, name, err := s.of(cmd.Context(), g)
			if err != nil {
				return err
			}
			if !list {
				by := "?"
				if u, err := user.Current(); err == nil {
					by = u.Username
				}
				if err := f.add(freeze{kind, name, by, reason, time.Now().UTC().Truncate(time.Second)}); err != nil {
					return failed(fmt.Errorf("freezing: %w", err))
				}
			}
			all, err := f.list()
			if err != nil {
				return failed(err)
			}
			if g.json {
				return failed(json.NewEncoder(cmd.OutOrStdout()).Encode(all))
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FROZEN\tBY\tSINCE\tREASON")
			for _, z := range all {
				fmt.Fprintf(w, "%s\t%q\t%s\t%q\n", z, z.By, z.Since.Format(time.RFC3339), z.Reason)
			}
			return w.Flush()
		},
	}
	s.flags(cmd, "freeze")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for whoever finds it frozen")
	cmd.Flags().BoolVar(&list, "list", false, "only show what is frozen")
	return cmd
}

func thawCommand(g *global) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use: "thaw", Short: "End a freeze: the one of everything, or of the principal, node or tool named", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, kind, name, err := s.of(cmd.Context(), g)
			if err != nil {
				return err
			}
			was, err := f.remove(kind, name)
			if err != nil {
				return failed(fmt.Errorf("thawing: %w", err))
			}
			z := freeze{Scope: kind, Name: name}
			if !was {
				return failed(fmt.Errorf("%s was not frozen; see caponier freeze --list", z))
			}
			still, err := f.list()
			if err != nil {
				return failed(err)
			}
			if g.json {
				return failed(json.NewEncoder(cmd.OutOrStdout()).Encode(still))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "thawed %s; %d other freezes remain\n", z, len(still))
			return nil
		},
	}
	s.flags(cmd, "thaw")
	return cmd
}

package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// decode makes a request the one value that is decided, journaled and executed.
func (s *state) decode(ctx context.Context, req terms.Request, c *terms.Call) error {
	end, err := s.turn(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	raw := req.Arguments
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	v, err := abi.Decode(raw, s.MaxArgs)
	if err != nil {
		return err
	}
	args, isObject := v.(map[string]any)
	if !isObject {
		return errors.New("must be a JSON object")
	}
	if err := c.Tool.Validate(args); err != nil {
		return err
	}
	if c.Args, err = terms.NewArgs(args, c.Tool.Confirm); err != nil {
		return err
	}
	if on, _ := args[c.Tool.Confirm].(bool); on {
		c.Confirmation.State = "argument"
	}
	var texts []terms.CommandText
	if c.Targets, texts, err = c.Tool.Derive(c.Principal, args); err != nil {
		return err
	}
	for _, t := range texts {
		cmd := s.Lowerer.Script(t.Text)
		cmd.Arg, cmd.Guest, cmd.Text = t.Arg, t.Guest, t.Text
		c.Commands = append(c.Commands, cmd)
	}
	if s.Files != nil && len(c.Targets.LocalPaths) > 0 {
		if c.Files, err = s.Files(c); err != nil {
			return err
		}
	}
	return setNodes(c)
}

// setNodes adds the default node to a call that names none and needs one, and finds the clusters.
func setNodes(c *terms.Call) error {
	onNode := func(name string) bool { op, _ := abi.Lookup(name); return op.OnNode }
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
		if n.Default && len(c.Targets.Nodes) == 0 && slices.ContainsFunc(c.Tool.Imports, onNode) {
			c.Targets.Nodes = []string{n.Name}
		}
	}
	for _, name := range c.Targets.Nodes {
		n := c.Node(name)
		if n == nil {
			return fmt.Errorf("node %q is not in the inventory, which has %s", name,
				strings.Join(names, ", "))
		}
		c.Clusters = append(c.Clusters, n.Cluster)
	}
	slices.Sort(c.Clusters)
	c.Clusters = slices.Compact(c.Clusters)
	return nil
}

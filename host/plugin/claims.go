package plugin

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Claims returns where a plugin's claims contradict what it declares, one error for each, joined: a
// tool that is read_only and may run a command above green, or not destructive and may run a red
// one; a command that the grammar does not have; an import that no tool declares. Each says what
// mends it. Tiers are those of the entries of the command grammar.
func (e Entry) Claims(tiers map[string]terms.Tier) error {
	tools, err := e.Tools()
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tools {
		if err := claims(t, tiers); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s: %s %s: %w", e.Name, t.Kind, t.Name, err))
		}
	}
	for _, i := range e.Imports {
		if !slices.ContainsFunc(tools, func(t *terms.Tool) bool {
			return slices.Contains(t.Imports, i)
		}) {
			errs = append(errs, fmt.Errorf("plugin %s: the module imports %s, which none of its "+
				"tools declares, so that it would be refused: write %q into \"imports\" (in Go: "+
				"Imports) of the tool that uses it, or remove the code that does", e.Name, i, i))
		}
	}
	return errors.Join(errs...)
}

func claims(t *terms.Tool, tiers map[string]terms.Tier) error {
	var errs []error
	for _, c := range t.Commands {
		tier, known := tiers[c]
		if c == terms.CallersText { // which can be any that the site allows
			tier, known = terms.Red, true
		}
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("declares the command %q, which the command grammar "+
				"does not have, so that it would be refused: write it into \"commands\" as "+
				"`caponier policy grammar` lists it, or have the site describe it in binaries "+
				"(--site)", c))
		case t.Hints.ReadOnly && tier > terms.Green:
			errs = append(errs, fmt.Errorf("claims read_only and declares the command %q, which "+
				"is %s: write \"read_only\": false (in Go: ReadOnly: false), or take it out of "+
				"\"commands\"", c, tier))
		case t.Kind == "tool" && !t.Hints.Destructive && tier >= terms.Red:
			errs = append(errs, fmt.Errorf("claims not to be destructive and declares the command "+
				"%q, which is %s: write \"destructive\": true (in Go: Destructive: true), or take "+
				"it out of \"commands\"", c, tier))
		}
	}
	return errors.Join(errs...)
}

package load

import (
	"context"
	"errors"
	"fmt"
	"path"
)

// Module is a plugin's module as core/trust.rego sees it.
type Module struct {
	Name       string
	Imports    []string
	Signers    []string   // whose key made a signature over the module that was verified
	Identities []Identity // of certificates that did
}

// Identity is whose certificate it is, as its issuer names it.
type Identity struct{ Issuer, Subject string }

// input returns the module as data.module.
func (m Module) input() map[string]any {
	identities := []any{}
	for _, i := range m.Identities {
		identities = append(identities, map[string]any{"issuer": i.Issuer, "subject": i.Subject})
	}
	return map[string]any{"module": map[string]any{"name": m.Name, "imports": anys(m.Imports),
		"signers": anys(m.Signers), "identities": identities}}
}

// AsksForSignatures reports whether the data of the site in dir has plugins.trust. Nothing else of
// the site is read.
func AsksForSignatures(dir string) (bool, error) {
	all, err := siteFiles(dir)
	if err != nil {
		return false, err
	}
	c := &Candidate{data: map[string]any{}, places: map[string]string{}}
	for name, data := range all {
		ext := path.Ext(name)
		if owned(name) && (ext == ".yaml" || ext == ".json") {
			if err := c.parseData(name, data); err != nil {
				return false, err
			}
		}
	}
	_, asks := c.Signers()
	return asks, nil
}

// SignedBy returns those of the site whose identity it is, whatever they may sign.
func (c *Candidate) SignedBy(ctx context.Context, i Identity) (names []string, err error) {
	v, err := c.ask(ctx, "data.caponier.core.trust.signers", Module{Identities: []Identity{i}}.
		input())
	if err != nil {
		return nil, fmt.Errorf("asking whose identity %s is: %w", i.Subject, err)
	}
	all, _ := v.([]any)
	for _, name := range all {
		names = append(names, fmt.Sprint(name))
	}
	return names, nil
}

// Signers returns who may sign plugins, with their keys, and whether the site asks for it.
func (c *Candidate) Signers() (keys map[string][]string, required bool) {
	if at(c.data, "site", "plugins") == nil {
		return nil, false
	}
	keys = map[string][]string{}
	trust, _ := at(c.data, "site", "plugins", "trust").(map[string]any)
	for who := range trust {
		for _, k := range list(c.data, "site", "plugins", "trust", who, "keys") {
			keys[who] = append(keys[who], fmt.Sprint(k))
		}
	}
	return keys, true
}

// Trusts asks the site whether the module may be locked and served. It returns whose signature
// counts, "" where the site asks for none.
func (c *Candidate) Trusts(ctx context.Context, m Module) (by string, err error) {
	v, err := c.ask(ctx, "data.caponier.core.trust.decision", m.input())
	if err != nil {
		return "", fmt.Errorf("asking who may sign %s: %w", m.Name, err)
	}
	d, _ := v.(map[string]any)
	by, whole := d["by"].(string)
	if d["allow"] != true || !whole {
		return "", fmt.Errorf("the site does not trust the plugin %s (plugins.trust): %v", m.Name,
			d["msg"])
	}
	return by, nil
}

// Current returns the policy in force.
func (s *Site) Current() (*Candidate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no policy is loaded")
}

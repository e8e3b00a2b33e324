package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/keyless"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/signature"
)

// trustFirst waits for the policy where the site asks for signatures, so that no module is opened
// before. Elsewhere policy and modules are made ready at once, and it is an error when the site has
// begun to ask in between.
func (h *host) trustFirst(loaded func() error) (wait func() error, err error) {
	asks, err := load.AsksForSignatures(h.cfg.Policy.Site)
	if err != nil || asks { // loading says what is wrong with the site
		return func() error { return nil }, loaded()
	}
	return func() error {
		if err := loaded(); err != nil {
			return err
		}
		site, err := h.engine.Current()
		if err != nil {
			return err
		}
		if _, asks := site.Signers(); asks {
			return errors.New("the site has changed while it was read: start again")
		}
		return nil
	}, nil
}

// signersOf returns the keys of a site's plugins.trust.
func signersOf(keys map[string][]string) (all []signature.Signer, err error) {
	for _, who := range slices.Sorted(maps.Keys(keys)) {
		for i, text := range keys[who] {
			k, err := signature.ParseKey(text)
			if err != nil {
				return nil, fmt.Errorf("plugins/trust/%s/keys/%d: %w", who, i, err)
			}
			all = append(all, signature.Signer{Name: who, Key: k})
		}
	}
	return all, nil
}

// trust asks a site about the signatures beside the modules in dir.
type trust struct {
	dir     string
	keyless keyless.Options
}

// who returns whose signature sig is: those of signers whose key it is, or the identity of its
// certificate.
func (t trust) who(ctx context.Context, signers []signature.Signer, sig, wasm []byte) (
	names []string, identities []load.Identity, err error) {
	if !signature.Keyless(sig) {
		names, err = signature.By(signers, sig, wasm, time.Now())
		return names, nil, err
	}
	i, err := t.keyless.Identity(ctx, sig, signature.Digest(wasm))
	if err != nil {
		return nil, nil, err
	}
	return nil, []load.Identity{load.Identity(i)}, nil
}

// signed verifies the signature beside a module, and asks the site whether who made it may sign
// this plugin. It returns nil where the site asks for no signature.
func (t trust) signed(ctx context.Context, site *load.Candidate, wasm []byte, e plugin.Entry) (
	*plugin.Signed, error) {
	keys, required := site.Signers()
	if !required {
		return nil, nil
	}
	signers, err := signersOf(keys)
	if err != nil {
		return nil, err
	}
	sig, err := plugin.SignatureOf(t.dir, e.File, signature.Max)
	if err != nil {
		return nil, err
	}
	m := load.Module{Name: e.Name, Imports: e.Imports}
	no := fmt.Errorf("there is no %s.sig beside it", e.File)
	if sig != nil {
		m.Signers, m.Identities, no = t.who(ctx, signers, sig, wasm)
	}
	by, err := site.Trusts(ctx, m)
	if err != nil {
		return nil, errors.Join(err, no)
	}
	if by == "" { // trusted by nobody: the answer is not about this question
		return nil, fmt.Errorf("the site trusts the plugin %s and does not say by whom", e.Name)
	}
	return &plugin.Signed{By: by, Signature: signature.Digest(sig)}, nil
}

// check asks the site whether a module of the lock may be served: its signature counts now, and is
// the one that was reviewed.
func (t trust) check(ctx context.Context, site *load.Candidate, wasm []byte, e plugin.Entry) error {
	now, err := t.signed(ctx, site, wasm, e)
	switch {
	case err != nil || now == nil:
		return err
	case e.Signed == nil || *e.Signed != *now:
		return fmt.Errorf("plugin %s: %s.sig is %s by %s, which the lock does not say; run "+
			"`caponier plugin lock %s` and review the difference", e.Name, e.File, now.Signature,
			now.By, e.Name)
	}
	return nil
}

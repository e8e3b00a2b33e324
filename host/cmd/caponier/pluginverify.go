package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/caponier-mcp/caponier/host/distribution"
	"github.com/caponier-mcp/caponier/host/keyless"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/signature"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/spf13/cobra"
)

// verifyJob is one run of `caponier plugin verify`.
type verifyJob struct {
	reg                      registryFlags
	sig, allowed, keyF, site string
	keyless                  keyless.Options
	identity                 load.Identity // of the certificate, "" for those of the site
}

func pluginVerify(g *global) *cobra.Command {
	var job verifyJob
	cmd := &cobra.Command{
		Use:   "verify FILE.wasm|oci://HOST/REPOSITORY@sha256:DIGEST",
		Short: "Say who signed a module; exit 3 when nobody did whose key is known",
		Long: "Verifies OpenSSH signatures (ssh-keygen -Y sign -n caponier-plugin) and Sigstore " +
			"bundles\n(cosign sign-blob --bundle …), without a network. Keys are those of " +
			"--allowed-signers or\n--key, else of the site's plugins.trust. A keyless bundle is " +
			"verified by the program\ncaponier-keyless, and is of --certificate-identity, else " +
			"of who in plugins.trust has that\nidentity. Whether a signer may sign the plugin is " +
			"decided by `plugin lock`: here nothing\nis compiled or run.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error { return job.run(v) }),
	}
	job.reg.add(cmd)
	f := cmd.Flags()
	f.StringVar(&job.sig, "signature", "", "`FILE` of the signature (default FILE.wasm.sig)")
	f.StringVar(&job.allowed, "allowed-signers", "", "`FILE` of OpenSSH's allowed signers")
	f.StringVar(&job.keyF, "key", "", "`FILE` of a public key: PEM (cosign) or OpenSSH")
	f.StringVar(&job.site, "site", "", "the site's `DIR` (default from the configuration)")
	f.StringVar(&job.identity.Subject, "certificate-identity", "",
		"the `SUBJECT` of the certificate: an address, or the URL of a workflow")
	f.StringVar(&job.identity.Issuer, "certificate-oidc-issuer", "",
		"the `URL` of who vouched for that subject")
	f.StringVar(&job.keyless.Program, "keyless", "",
		"the `PROGRAM` caponier-keyless (default from the configuration)")
	f.StringVar(&job.keyless.TrustedRoot, "trusted-root", "",
		"Sigstore's trusted_root.json, a `FILE` (default from the configuration)")
	cmd.MarkFlagsMutuallyExclusive("allowed-signers", "key", "site", "certificate-identity")
	cmd.MarkFlagsRequiredTogether("certificate-identity", "certificate-oidc-issuer")
	return cmd
}

func (j verifyJob) run(v *verb) error {
	signers, site, err := j.signers(v)
	if err != nil {
		return usage(err)
	}
	module, sigs, err := j.read(v)
	if err != nil {
		return err
	}
	if c, err := v.load(); err == nil { // which is needed for keyless signatures alone
		j.keyless.Program = cmp.Or(j.keyless.Program, c.Keyless.Program)
		j.keyless.TrustedRoot = cmp.Or(j.keyless.TrustedRoot, c.Keyless.TrustedRoot)
	}
	names, wrong := []string{}, fmt.Errorf("%s has no signature", v.args[0])
	for _, sig := range sigs {
		by, identities, err := trust{keyless: j.keyless}.who(v.ctx, signers, sig, module)
		for _, i := range identities {
			by, err = j.certified(v.ctx, site, i)
		}
		if wrong = err; err == nil {
			names = append(names, by...)
		}
	}
	if len(names) == 0 {
		return &exit{exitRefused, wrong}
	}
	return v.print(map[string]any{"module": signature.Digest(module), "signed_by": names},
		func(w io.Writer) {
			fmt.Fprintf(w, "%s is signed by %s\n", signature.Digest(module),
				strings.Join(names, ", "))
		})
}

// certified returns who has the identity of a certificate: of the site, or the one that is asked
// for.
func (j verifyJob) certified(ctx context.Context, site *load.Candidate, i load.Identity) (
	names []string, err error) {
	if site != nil {
		names, err = site.SignedBy(ctx, i)
	} else if i == j.identity {
		names = []string{i.Subject}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("it is signed by %s of %s", i.Subject, i.Issuer)
	}
	return names, err
}

// read returns a module and its signatures, from files or a registry.
func (j verifyJob) read(v *verb) (module []byte, sigs [][]byte, err error) {
	file := v.args[0]
	if strings.HasPrefix(file, "oci://") {
		o, err := j.reg.options()
		if err != nil {
			return nil, nil, err
		}
		a, err := distribution.Pull(v.ctx, file, o)
		if err != nil {
			return nil, nil, err
		}
		module, sigs = a.Module, a.Signatures
	} else if module, err = trusted.Read(file, distribution.MaxModule); err != nil {
		return nil, nil, err
	}
	if sigs == nil || j.sig != "" {
		j.sig = cmp.Or(j.sig, file+".sig")
		if strings.HasPrefix(j.sig, "oci://") { // pulled, and nothing refers to it
			return module, nil, nil
		}
		sigs, err = readAll([]string{j.sig}, signature.Max)
	}
	return module, sigs, err
}

// signers returns whose keys count, and the site, where it is the site's.
func (j verifyJob) signers(v *verb) (all []signature.Signer, site *load.Candidate, err error) {
	switch {
	case j.identity.Subject != "":
		return nil, nil, nil
	case j.allowed != "":
		data, err := trusted.Read(j.allowed, 1<<20)
		if err != nil {
			return nil, nil, err
		}
		if all, err = signature.ParseSigners(data); err != nil {
			err = fmt.Errorf("%s: %w", j.allowed, err)
		}
		return all, nil, err
	case j.keyF != "":
		data, err := trusted.Read(j.keyF, 64<<10)
		if err != nil {
			return nil, nil, err
		}
		k, err := signature.ParseKey(string(data))
		if err != nil {
			err = fmt.Errorf("%s: %w", j.keyF, err)
		}
		return []signature.Signer{{Name: k.String(), Key: k}}, nil, err
	}
	dir, err := v.site(j.site)
	if err != nil {
		return nil, nil, fmt.Errorf("name --key, --allowed-signers, --certificate-identity or "+
			"--site: %w", err)
	}
	if site, err = load.FromFolder(v.ctx, dir, load.Inventory{}); err != nil {
		return nil, nil, err
	}
	keys, required := site.Signers()
	if !required {
		return nil, nil, fmt.Errorf("the site in %s has no plugins.trust: name --key, "+
			"--allowed-signers or --certificate-identity", dir)
	}
	all, err = signersOf(keys)
	return all, site, err
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/distribution"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/signature"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/spf13/cobra"
)

// verifyJob is one run of `caponier plugin verify`.
type verifyJob struct {
	reg                      registryFlags
	sig, allowed, keyF, site string
}

func pluginVerify(g *global) *cobra.Command {
	var job verifyJob
	cmd := &cobra.Command{
		Use:   "verify FILE.wasm|oci://HOST/REPOSITORY@sha256:DIGEST",
		Short: "Say who signed a module; exit 3 when nobody did whose key is known",
		Long: "Verifies OpenSSH signatures (ssh-keygen -Y sign -n caponier-plugin) and Sigstore " +
			"bundles of\nkey pairs (cosign sign-blob --key … --bundle), without a network. Keys " +
			"are those of\n--allowed-signers or --key, else of the site's plugins.trust. Whether " +
			"a signer may sign the\nplugin is decided by `plugin lock`: here nothing is compiled " +
			"or run.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error { return job.run(v) }),
	}
	job.reg.add(cmd)
	f := cmd.Flags()
	f.StringVar(&job.sig, "signature", "", "`FILE` of the signature (default FILE.wasm.sig)")
	f.StringVar(&job.allowed, "allowed-signers", "", "`FILE` of OpenSSH's allowed signers")
	f.StringVar(&job.keyF, "key", "", "`FILE` of a public key: PEM (cosign) or OpenSSH")
	f.StringVar(&job.site, "site", "", "the site's `DIR` (default from the configuration)")
	cmd.MarkFlagsMutuallyExclusive("allowed-signers", "key", "site")
	return cmd
}

func (j verifyJob) run(v *verb) error {
	signers, err := j.signers(v)
	if err != nil {
		return usage(err)
	}
	module, sigs, err := j.read(v)
	if err != nil {
		return err
	}
	names, wrong := []string{}, fmt.Errorf("%s has no signature", v.args[0])
	for _, sig := range sigs {
		var by []string
		if by, wrong = signature.By(signers, sig, module, time.Now()); wrong == nil {
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

func (j verifyJob) signers(v *verb) ([]signature.Signer, error) {
	switch {
	case j.allowed != "":
		data, err := trusted.Read(j.allowed, 1<<20)
		if err != nil {
			return nil, err
		}
		all, err := signature.ParseSigners(data)
		if err != nil {
			err = fmt.Errorf("%s: %w", j.allowed, err)
		}
		return all, err
	case j.keyF != "":
		data, err := trusted.Read(j.keyF, 64<<10)
		if err != nil {
			return nil, err
		}
		k, err := signature.ParseKey(string(data))
		if err != nil {
			err = fmt.Errorf("%s: %w", j.keyF, err)
		}
		return []signature.Signer{{Name: k.String(), Key: k}}, err
	}
	dir, err := v.site(j.site)
	if err != nil {
		return nil, fmt.Errorf("name --key, --allowed-signers or --site: %w", err)
	}
	site, err := load.FromFolder(v.ctx, dir, load.Inventory{})
	if err != nil {
		return nil, err
	}
	keys, required := site.Signers()
	if !required {
		return nil, fmt.Errorf("the site in %s has no plugins.trust: name --key or "+
			"--allowed-signers", dir)
	}
	return signersOf(keys)
}

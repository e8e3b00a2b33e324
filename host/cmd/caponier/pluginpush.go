package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/distribution"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/signature"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// registryFlags say how a registry is reached.
type registryFlags struct {
	ca, user, passwordFile string
	plain                  bool
	also                   []string
}

func (r *registryFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.ca, "ca", "", "`FILE` with certificates (PEM) to trust beside the system's")
	f.StringVar(&r.user, "username", "",
		"`NAME` at the registry (default: what the docker config file has for it)")
	f.StringVar(&r.passwordFile, "password-file", "", "`FILE` with the password or token")
	f.BoolVar(&r.plain, "plain-http", false, "without TLS, to a registry on this machine")
	f.StringSliceVar(&r.also, "also", nil,
		"`HOSTS` that the registry may lead to, for tokens or storage")
	cmd.MarkFlagsRequiredTogether("username", "password-file")
}

func (r registryFlags) options() (o distribution.Options, err error) {
	o.PlainHTTP, o.Also = r.plain, r.also
	if r.ca != "" {
		if o.CA, err = trusted.Read(r.ca, 1<<20); err != nil {
			return o, usage(err)
		}
	}
	if r.user == "" {
		store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil {
			return o, usage(fmt.Errorf("reading the docker config file: %w", err))
		}
		o.Credential = credentials.Credential(store)
		return o, nil
	}
	word, err := trusted.Read(r.passwordFile, 64<<10)
	if err != nil {
		return o, usage(err)
	}
	o.Credential = func(context.Context, string) (auth.Credential, error) {
		return auth.Credential{Username: r.user,
			Password: strings.TrimRight(string(word), "\r\n")}, nil
	}
	return o, nil
}

func pluginPush(g *global) *cobra.Command {
	var reg registryFlags
	var signatures, sboms []string
	var a distribution.Artifact
	cmd := &cobra.Command{
		Use:   "push FILE.wasm oci://HOST/REPOSITORY:TAG",
		Short: "Publish a module in an OCI registry; prints its reference with the digest",
		Args:  cobra.ExactArgs(2),
		RunE: g.does(func(v *verb) error {
			e, err := describe(v.ctx, v.args[0])
			if err != nil {
				return err
			}
			if a.Module, err = os.ReadFile(v.args[0]); err != nil {
				return err
			}
			if signature.Digest(a.Module) != e.Digest {
				return fmt.Errorf("%s has changed while it was read: try again", v.args[0])
			}
			if err := fill(&a.About, e); err != nil {
				return err
			}
			a.Signatures, err = readAll(signatures, signature.Max)
			if err == nil {
				a.SBOMs, err = readAll(sboms, distribution.MaxSBOM)
			}
			o, wrong := reg.options()
			if err = errors.Join(err, wrong); err != nil {
				return usage(err)
			}
			ref, err := distribution.Push(v.ctx, v.args[1], a, o)
			if err != nil {
				return err
			}
			return v.print(map[string]string{"reference": ref, "module": e.Digest},
				func(w io.Writer) { fmt.Fprintln(w, ref) })
		}),
	}
	reg.add(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&signatures, "signature", nil,
		"`FILES` with signatures of the module: ssh-keygen -Y sign, cosign sign-blob --bundle")
	f.StringSliceVar(&sboms, "sbom", nil, "`FILES` with SBOMs of it: SPDX or CycloneDX, in JSON")
	f.StringVar(&a.About.Licence, "licence", "", "`ID` of its licence (SPDX), such as MIT")
	f.StringVar(&a.About.Description, "description", "", "one `LINE` about it")
	return cmd
}

func readAll(files []string, limit int64) (all [][]byte, err error) {
	for _, file := range files {
		data, err := trusted.Read(file, limit)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// fill says what the module says of itself.
func fill(a *distribution.About, e plugin.Entry) error {
	var said struct{ ABI, Minor int }
	if err := json.Unmarshal(e.Describe, &said); err != nil {
		return err
	}
	tools, err := e.Tools()
	for _, t := range tools {
		a.Tools = append(a.Tools, t.Kind+":"+t.Name)
	}
	slices.Sort(a.Tools)
	a.Name, a.Version, a.Imports = e.Name, e.Version, e.Imports
	a.ABI = fmt.Sprintf("%d.%d", said.ABI, said.Minor)
	return err
}

func pluginPull(g *global) *cobra.Command {
	var reg registryFlags
	var out string
	cmd := &cobra.Command{
		Use: "pull oci://HOST/REPOSITORY@sha256:DIGEST",
		Short: "Take a module from an OCI registry, by digest; nothing of it is compiled, run " +
			"or trusted",
		Long: "Writes the module when its digest holds, and its signatures and SBOMs beside it: " +
			"FILE.sig,\nFILE.2.sig …, FILE.sbom.json …. Then `caponier plugin verify`, " +
			"`plugin diff` against the\nlock, and `plugin lock`. A tag is an error that says " +
			"its digest.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			o, err := reg.options()
			if err != nil {
				return err
			}
			a, err := distribution.Pull(v.ctx, v.args[0], o)
			if err != nil {
				return err
			}
			if out == "" {
				if !plugin.IsName(a.About.Name) {
					return fmt.Errorf("the artifact calls itself %q, which is no file name: "+
						"add --out FILE.wasm", a.About.Name)
				}
				out = a.About.Name + ".wasm"
				if _, err := os.Lstat(out); err == nil { // the author chose the name
					return fmt.Errorf("%s is there already: add --out FILE.wasm", out)
				}
			}
			files, err := keep(out, a)
			if err != nil {
				return err
			}
			return v.print(map[string]any{"files": files, "module": signature.Digest(a.Module),
				"about": a.About}, func(w io.Writer) {
				fmt.Fprintln(w, strings.Join(files, "\n"))
			})
		}),
	}
	reg.add(cmd)
	cmd.Flags().StringVarP(&out, "out", "o", "",
		"`FILE` to write (default NAME.wasm in this folder)")
	return cmd
}

// keep writes a module last, when what belongs to it is there. A signature of what was there
// before goes.
func keep(out string, a distribution.Artifact) (files []string, err error) {
	files = []string{out}
	data := [][]byte{a.Module}
	add := func(all [][]byte, end string) {
		for i, d := range all {
			name := out + end
			if i > 0 {
				name = fmt.Sprintf("%s.%d%s", out, i+1, end)
			}
			files, data = append(files, name), append(data, d)
		}
	}
	add(a.Signatures, ".sig")
	add(a.SBOMs, ".sbom.json")
	if len(a.Signatures) == 0 {
		if err := os.Remove(out + ".sig"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	for i := range slices.Backward(files) {
		if err := trusted.Replace(files[i], data[i], 0o644, filepath.Dir(out)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

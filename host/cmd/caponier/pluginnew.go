package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

const sdkModule = "github.com/caponier-mcp/caponier/sdk"

//go:embed templates/plugin
var skeleton embed.FS

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	goLine     = regexp.MustCompile(`(?m)^go (\S+)$`)
	moduleLine = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(sdkModule) + `$`)
	release    = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)
)

func pluginNew(g *global) *cobra.Command {
	var sdk, module string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a folder with a plugin that works, to be changed",
		Args:  cobra.ExactArgs(1),
		Long: "Writes the folder NAME: a Go module with one tool, its tests and a README. --sdk " +
			"names a checkout of Caponier to take the SDK from. The default is the checkout " +
			"that this program was built in, or else the released version.",
		RunE: g.does(func(v *verb) error {
			dir, name := v.args[0], filepath.Base(v.args[0])
			if !pluginName.MatchString(name) {
				return usage(fmt.Errorf("%q cannot be the name of a plugin: it must be 1 to 32 "+
					"small letters, digits and hyphens, and begin with a letter", name))
			}
			mod, err := goMod(sdk, cmp.Or(module, "example.com/"+name))
			if err != nil {
				return usage(err)
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err // also when it exists: nothing is overwritten
			}
			if err := scaffold(dir, name, mod); err != nil {
				return fmt.Errorf("writing %s: %w", dir, errors.Join(err, os.RemoveAll(dir)))
			}
			_, err = fmt.Fprintf(v.out, "%s is written. Next:\n  cd %s\n  caponier plugin "+
				"test .\n  caponier plugin lock --lock plugins.lock --dir build\n", dir, dir)
			return err
		}),
	}
	cmd.Flags().StringVar(&sdk, "sdk", "", "take the SDK from this checkout `DIR`")
	cmd.Flags().StringVar(&module, "module", "", "the Go module `PATH` (default example.com/NAME)")
	return cmd
}

// goMod returns the go.mod of a new plugin.
func goMod(sdk, module string) (string, error) {
	if sdk = cmp.Or(sdk, checkout()); sdk == "" {
		if !release.MatchString(version) {
			return "", fmt.Errorf("this is version %s, whose SDK is not published: name a "+
				"checkout of Caponier with --sdk DIR", version)
		}
		return fmt.Sprintf("module %s\n\ngo %s\n\nrequire %s %s\n", module,
			strings.TrimPrefix(runtime.Version(), "go"), sdkModule, version), nil
	}
	sdk, err := filepath.Abs(sdk)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(sdk, "sdk", "go.mod")); err == nil {
		sdk = filepath.Join(sdk, "sdk") // of a checkout
	}
	have, err := os.ReadFile(filepath.Join(sdk, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("--sdk: %w", err)
	}
	line := goLine.FindSubmatch(have)
	if !moduleLine.Match(have) || line == nil {
		return "", fmt.Errorf("--sdk: %s is not the module %s", filepath.Join(sdk, "go.mod"),
			sdkModule)
	}
	return fmt.Sprintf("module %s\n\ngo %s\n\nrequire %s v0.0.0\n\nreplace %s => %q\n", module,
		line[1], sdkModule, sdkModule, sdk), nil
}

// checkout finds the checkout whose build folder holds this program, if any.
func checkout() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(exe)), "sdk")
	if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !moduleLine.Match(mod) {
		return ""
	}
	return dir
}

// scaffold writes the files of a new plugin into an empty folder.
func scaffold(dir, name, mod string) error {
	all, err := template.ParseFS(skeleton, "templates/plugin/*.tmpl")
	if err != nil {
		return err
	}
	data := map[string]string{"Name": name, "Tool": strings.ReplaceAll(name, "-", "_")}
	for _, t := range all.Templates() {
		var b bytes.Buffer
		if err := t.Execute(&b, data); err != nil {
			return err
		}
		file := strings.TrimSuffix(t.Name(), ".tmpl")
		if file == "gitignore" {
			file = ".gitignore"
		}
		if err := os.WriteFile(filepath.Join(dir, file), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644)
}

func pluginTest(g *global) *cobra.Command {
	var out, site string
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Vet, test and compile the Go plugin in DIR, and check it by the rules of the lock",
		Args:  cobra.ExactArgs(1),
		Long: "Runs go vet and go test in DIR, compiles it to DIR/build/NAME.wasm, then loads " +
			"the module as a host would and shows what the lock will say of it.",
		RunE: g.does(func(v *verb) error {
			dir, err := filepath.Abs(v.args[0])
			if err != nil {
				return err
			}
			file, err := filepath.Abs(cmp.Or(out,
				filepath.Join(dir, "build", filepath.Base(dir)+".wasm")))
			if err != nil {
				return err
			}
			if err := vetted(v.ctx, dir, file, v.say); err != nil {
				return err
			}
			e, err := describe(v.ctx, file)
			if err != nil {
				return err
			}
			if err := v.inspect(e); err != nil {
				return err
			}
			return checkClaims(site, e)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write (default DIR/build/NAME.wasm)")
	siteFlag(cmd, &site)
	return cmd
}

// vetted runs go vet and go test in dir and compiles it to out. The go tool writes to say.
func vetted(ctx context.Context, dir, out string, say io.Writer) error {
	for _, step := range []string{"vet", "test"} {
		run := exec.CommandContext(ctx, "go", step, "./...")
		run.Dir, run.Stdout, run.Stderr = dir, say, say
		if err := run.Run(); err != nil {
			return fmt.Errorf("go %s in %s: %w", step, dir, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return compile(ctx, dir, out, say)
}

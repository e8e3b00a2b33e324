package main

import (
	"bytes"
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
	"slices"
	"strings"
	"text/template"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plugin"
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

func pluginNew() *cobra.Command {
	var sdk, module string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a folder with a plugin that works, to be changed",
		Args:  cobra.ExactArgs(1),
		Long: "Writes the folder NAME: a Go module with one tool, its tests and a README. --sdk " +
			"names a checkout of Caponier to take the SDK from; " +
			"without it, the checkout that this program was built in, else its released version.",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			name := filepath.Base(dir)
			if !pluginName.MatchString(name) {
				return fmt.Errorf(
					"%q is no name for a plugin: a small letter, then at most 31 small letters, "+
						"digits and hyphens",
					name)
			}
			mod, err := goMod(sdk, cmpOr(module, "example.com/"+name))
			if err != nil {
				return err
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				return failed(err) // also when there is one already: nothing is overwritten
			}
			if err := scaffold(dir, name, mod); err != nil {
				return failed(
					fmt.Errorf("writing %s: %w", dir, errors.Join(err, os.RemoveAll(dir))))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%s is written. Next:\n  cd %s\n  caponier plugin test .\n  caponier plugin lock "+
					"--lock plugins.lock --dir build\n",
				dir, dir)
			return err
		},
	}
	cmd.Flags().StringVar(&sdk, "sdk", "", "take the SDK from this checkout `DIR`")
	cmd.Flags().StringVar(&module, "module", "", "the Go module `PATH` (default example.com/NAME)")
	return cmd
}

// goMod is the go.mod of a new plugin.
func goMod(sdk, module string) (string, error) {
	if sdk == "" {
		sdk = checkout()
	}
	if sdk == "" {
		if !release.MatchString(version) {
			return "", fmt.Errorf(
				"this is version %s, whose SDK is nowhere published: name a checkout of Caponier "+
					"with --sdk DIR",
				version)
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
	var out string
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Vet, test and compile the Go plugin in DIR, and hold it to the rules of the lock",
		Args:  cobra.ExactArgs(1),
		Long: "Runs go vet and go test in DIR, compiles it to DIR/build/NAME.wasm, then loads " +
			"the module as a host would and shows what the lock will say of it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Join(dir, "build", filepath.Base(dir)+".wasm")
			}
			if out, err = filepath.Abs(out); err != nil {
				return err
			}
			if err := vetted(cmd.Context(), dir, out, cmd.ErrOrStderr()); err != nil {
				return failed(err)
			}
			e, err := describe(cmd.Context(), out)
			if err != nil {
				return failed(err)
			}
			if err := inspect(cmd.OutOrStdout(), e, g.json); err != nil {
				return failed(err)
			}
			return failed(undeclared(e))
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write (default DIR/build/NAME.wasm)")
	return cmd
}

// vetted runs go vet and go test in dir and compiles it to out; the go tool speaks to say.
func vetted(ctx context.Context, dir, out string, say io.Writer) error {
	for _, step := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
		run := exec.CommandContext(ctx, "go", step...)
		run.Dir, run.Stdout, run.Stderr = dir, say, say
		if err := run.Run(); err != nil {
			return fmt.Errorf("go %s in %s: %w", strings.Join(step, " "), dir, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return compile(ctx, dir, out, say)
}

// undeclared reports imports of the module that none of its tools declares.
func undeclared(e plugin.Entry) error {
	tools, err := e.Tools()
	if err != nil {
		return err
	}
	unused := slices.DeleteFunc(slices.Clone(e.Imports), func(i string) bool {
		return slices.ContainsFunc(tools, func(t *gate.Tool) bool {
			return slices.Contains(t.Imports, i)
		})
	})
	if len(unused) == 0 {
		return nil
	}
	return fmt.Errorf("the module imports %s, which none of its tools declares: every such "+
		"operation would be refused; name it in the Hints of the tool that uses it",
		strings.Join(unused, " "))
}

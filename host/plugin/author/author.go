// Package author is what people who write plugins begin with.
package author

import (
	"bytes"
	"cmp"
	"context"
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
)

const sdkModule = "github.com/caponier-mcp/caponier/sdk"

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	goLine     = regexp.MustCompile(`(?m)^go (\S+)$`)
	moduleLine = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(sdkModule) + `$`)
	release    = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)
)

// CheckName reports why a plugin cannot have a name.
func CheckName(name string) error {
	if !pluginName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a plugin: it must be 1 to 32 small "+
			"letters, digits and hyphens, and begin with a letter", name)
	}
	return nil
}

// GoMod returns the go.mod of a new plugin. The SDK is that of a checkout, or else of a version
// that is released.
func GoMod(name, module, sdk, version string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	module = cmp.Or(module, "example.com/"+name)
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

// New writes the folder of a new plugin in a language, which must not exist. Mod is the go.mod of
// one in Go.
func New(dir, name, lang, mod string) error {
	l, err := languageOf(lang)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err // also when it exists: nothing is overwritten
	}
	if err := l.scaffold(dir, name, mod); err != nil {
		return fmt.Errorf("writing %s: %w", dir, errors.Join(err, os.RemoveAll(dir)))
	}
	return nil
}

func (l language) scaffold(dir, name, mod string) error {
	data := map[string]string{"Name": name, "Tool": strings.ReplaceAll(name, "-", "_"),
		"Language": l.name, "Needs": l.needs, "Sdk": l.sdkName()}
	for _, folder := range l.folders {
		all, err := template.ParseFS(templates, "templates/"+folder+"/*.tmpl")
		if err != nil {
			return err
		}
		for _, t := range all.Templates() {
			var b bytes.Buffer
			if err := t.Execute(&b, data); err != nil {
				return err
			}
			file := strings.TrimSuffix(t.Name(), ".tmpl")
			if file == "gitignore" {
				file = ".gitignore"
			}
			if suffix, source := strings.CutPrefix(file, "plugin."); source {
				file = name + "." + suffix
			}
			if err := os.WriteFile(filepath.Join(dir, file), b.Bytes(), 0o644); err != nil {
				return err
			}
		}
	}
	if mod != "" {
		return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644)
	}
	return os.CopyFS(dir, l.sdk)
}

// Test runs go vet and go test in dir and compiles it to out. The go tool writes to say.
func Test(ctx context.Context, dir, out string, say io.Writer) error {
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
	return Build(ctx, dir, out, say)
}

// Build builds the Go plugin in dir to the file out; the compiler speaks to say.
func Build(ctx context.Context, dir, out string, say io.Writer) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w", "-buildmode=c-shared", "-o", out, ".")
	build.Dir, build.Stdout, build.Stderr = dir, say, say
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build in %s: %w", dir, err)
	}
	return nil
}

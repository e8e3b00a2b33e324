//go:build ignore

// Command dist makes what is given away: go run packaging/dist.go -version 1.0.0 -out build/dist
//
// It compiles the program and the plugins, holds them to plugins.lock, and writes a tar.gz to
// install from, a bundle for desktop clients (.mcpb), their registry entry (server.json) and
// SHA256SUMS. The same sources give the same bytes, wherever they lie: make dist-check.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// when is the time of every file: what is in an archive says enough about its age.
var when = time.Unix(1767225600, 0).UTC() // 2026-01-01

type entry struct {
	name string // in the archive
	data []byte
	exec bool
}

func main() {
	log.SetFlags(0)
	version := flag.String("version", "0.0.0", "`VERSION`, without v")
	out := flag.String("out", "build/dist", "`DIR` to write to")
	goarch := flag.String("arch", runtime.GOARCH, "`GOARCH` of the program; its system is linux")
	flag.Parse()
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`).MatchString(*version) {
		log.Fatalf("-version %q: want a version such as 1.2.3", *version)
	}
	stage, err := os.MkdirTemp("", "caponier-dist-*")
	check(err)
	defer os.RemoveAll(stage)
	all := build(stage, *version, *goarch)

	check(os.MkdirAll(*out, 0o755))
	name := fmt.Sprintf("caponier-%s-linux-%s", *version, *goarch)
	files := map[string][]byte{name + ".tar.gz": tarball(name, all)}
	order := []string{name + ".tar.gz"}
	if *goarch == "amd64" {
		b := bundle(all, *version)
		files[name+".mcpb"] = b
		server := fill(read("packaging/server.json"), *version)
		files["server.json"] = bytes.ReplaceAll(server, []byte("{{sha256}}"),
			fmt.Appendf(nil, "%x", sha256.Sum256(b)))
		order = append(order, name+".mcpb", "server.json")
	}
	sums := ""
	for _, f := range order {
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(files[f]), f)
		check(os.WriteFile(filepath.Join(*out, f), files[f], 0o644))
	}
	check(os.WriteFile(filepath.Join(*out, "SHA256SUMS"), []byte(sums), 0o644))
	fmt.Print(sums)
}

// build compiles everything and lists what belongs into the archives.
func build(stage, version, goarch string) (all []entry) {
	program := filepath.Join(stage, "caponier")
	goBuild(program, "./host/cmd/caponier", "-s -w -X main.version="+version, "GOOS=linux",
		"GOARCH="+goarch)
	mains, err := filepath.Glob("plugins/*/main.go")
	check(err)
	for _, m := range mains {
		p := path.Base(path.Dir(m))
		goBuild(filepath.Join(stage, "plugins", p+".wasm"), "./plugins/"+p, "-s -w", "GOOS=wasip1",
			"GOARCH=wasm")
		all = append(all, entry{
			"build/plugins/" + p + ".wasm",
			read(filepath.Join(stage, "plugins", p+".wasm")),
			false,
		})
	}
	checker := program
	if goarch != runtime.GOARCH {
		checker = filepath.Join(stage, "native")
		goBuild(checker, "./host/cmd/caponier", "-s -w")
	}
	run(
		exec.Command(checker, "plugin", "lock", "--check", "--lock", "plugins.lock", "--dir",
			filepath.Join(stage, "plugins")),
	)

	all = append(all, entry{"caponier", read(program), true})
	for _, f := range []string{"plugins.lock", "config.toml", "README.md", "CHANGELOG.md",
		"LICENSE", "SECURITY.md", "packaging/caponier.service", "packaging/README.md"} {
		all = append(all, entry{f, read(f), false})
	}
	all = append(all,
		entry{"packaging/node/caponier-gate", read("packaging/node/caponier-gate"), true},
		entry{"packaging/node/caponier.sudoers", read("packaging/node/caponier.sudoers"), false})
	for _, dir := range []string{"docs", "examples/clients", "policies/examples", "policies/site",
		"policies/schemas"} {
		check(fs.WalkDir(os.DirFS("."), dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				all = append(all, entry{name, read(name), false})
			}
			return err
		}))
	}
	return all
}

func goBuild(out, pkg, ldflags string, env ...string) {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + ldflags, "-o", out}
	if strings.HasSuffix(out, ".wasm") {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	run(cmd)
}

func run(cmd *exec.Cmd) {
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		log.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
}

func tarball(top string, all []entry) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	check(err)
	t := tar.NewWriter(z)
	for _, e := range all {
		h := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     top + "/" + e.name,
			Size:     int64(len(e.data)),
			Mode:     mode(e),
			ModTime:  when,
			Format:   tar.FormatUSTAR,
		}
		check(t.WriteHeader(h))
		_, err := t.Write(e.data)
		check(err)
	}
	check(t.Close())
	check(z.Close())
	return b.Bytes()
}

// bundle is the archive as a desktop client installs it: the same files under server/, with a
// manifest.
func bundle(all []entry, version string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	all = append(
		[]entry{{"manifest.json", fill(read("packaging/manifest.json"), version), false}},
		all...)
	for _, e := range all {
		if e.name != "manifest.json" {
			e.name = "server/" + e.name
		}
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when}
		h.SetMode(fs.FileMode(mode(e)))
		w, err := z.CreateHeader(h)
		check(err)
		_, err = w.Write(e.data)
		check(err)
	}
	check(z.Close())
	return b.Bytes()
}

func mode(e entry) int64 {
	if e.exec {
		return 0o755
	}
	return 0o644
}

func fill(text []byte, version string) []byte {
	return bytes.ReplaceAll(text, []byte("{{version}}"), []byte(version))
}

func read(file string) []byte {
	data, err := os.ReadFile(file)
	check(err)
	return data
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

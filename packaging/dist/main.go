// Command dist makes what is given away: go run ./packaging/dist -version 1.0.0 -out build/dist
//
// It compiles the program and the plugins, holds the plugins to plugins.lock, and writes for each
// architecture a tar.gz, a .deb, an .rpm, an OCI image, caponier-keyless and SBOMs; bundles for
// desktop clients (.mcpb) and their registry entry (server.json); a Homebrew formula; a statement
// of provenance, VERIFY.md and SHA256SUMS. The same sources give the same bytes, wherever they lie:
// make dist-check.
package main

import (
	"bytes"
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
	"slices"
	"strings"
	"time"
)

// when is the time of every file: what is in an archive says enough about its age.
var when = time.Unix(1767225600, 0).UTC() // 2026-01-01

// entry is a file of an archive. A link has no data.
type entry struct {
	name string // in the archive
	data []byte
	exec bool
	link string // where a symbolic link points to
}

// release is one run: what it was asked for, and what it has made so far, by file name.
type release struct {
	version, commit, stage, out string
	native                      string // the program for this machine
	names                       []string
}

func main() {
	log.SetFlags(0)
	r := &release{}
	flag.StringVar(&r.version, "version", "0.0.0", "`VERSION`, without v")
	flag.StringVar(&r.out, "out", "build/dist", "`DIR` to write to; what is in it is deleted")
	systems := flag.String("connect", "", "the `SYSTEMS` that get caponier-connect, such as "+
		"darwin/arm64, with commas between")
	arches := flag.String("arch", runtime.GOARCH, "`GOARCHES` of the program, with commas between")
	flag.StringVar(&r.commit, "commit", "unknown", "the git `COMMIT` of these sources")
	flag.Parse()
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`).MatchString(r.version) {
		log.Fatalf("-version %q: want a version such as 1.2.3", r.version)
	}
	var err error
	r.stage, err = os.MkdirTemp("", "caponier-dist-*")
	check(err)
	defer os.RemoveAll(r.stage)
	r.out, err = filepath.Abs(r.out)
	check(err)
	check(os.RemoveAll(r.out))
	check(os.MkdirAll(r.out, 0o755))

	shared := append(r.plugins(), sources()...)
	r.native = filepath.Join(r.stage, "native")
	goBuild(r.native, "./host/cmd/caponier", "-s -w -X main.version="+r.version)
	run(exec.Command(r.native, "plugin", "lock", "--check", "--lock", "plugins.lock", "--dir",
		filepath.Join(r.stage, "plugins")))
	for _, arch := range strings.Split(*arches, ",") {
		r.architecture(arch, shared)
	}
	for _, system := range strings.FieldsFunc(*systems, func(c rune) bool { return c == ',' }) {
		r.connect(system)
	}
	if *systems != "" {
		r.connectBundle()
	}
	r.entries("packaging/server.json", "packaging/caponier.rb")
	r.write("provenance.json", r.provenance(*arches))
	r.write("VERIFY.md", r.fill("packaging/VERIFY.md"))
	r.sums()
}

// architecture writes what there is once for each architecture.
func (r *release) architecture(arch string, shared []entry) {
	program := r.program(arch, "caponier", "./host/cmd/caponier")
	all := append([]entry{
		{name: "build/caponier", data: program, exec: true},
		{name: "build/pvelab", data: r.program(arch, "pvelab", "./test/pvelab/cmd/pvelab"),
			exec: true},
		{name: "caponier", link: "build/caponier"},
	}, shared...)
	name := fmt.Sprintf("caponier-%s-linux-%s", r.version, arch)
	pages := manual(r.native, r.version)
	r.write(name+".tar.gz", tarball(name, append(all, pages...)))
	r.packages(name, arch, all, pages)
	r.write(name+".oci.tar", image(r.version, arch, string(read("packaging/Dockerfile")), roots(),
		all))
	r.write(name+".cdx.json", r.sbom(filepath.Join(r.stage, arch, "caponier")))
	r.keyless(arch)
	if arch == "amd64" {
		r.write(name+".mcpb", bundle(all, r.fill("packaging/manifest.json")))
	}
}

// program compiles one of the programs for an architecture.
func (r *release) program(arch, name, pkg string) []byte {
	file := filepath.Join(r.stage, arch, name)
	goBuild(file, pkg, "-s -w -X main.version="+r.version, "GOOS=linux", "GOARCH="+arch)
	return read(file)
}

// keyless writes caponier-keyless, a module of its own and in no archive: few need its 18 MB.
func (r *release) keyless(arch string) {
	name := fmt.Sprintf("caponier-keyless-%s-linux-%s", r.version, arch)
	file := filepath.Join(r.stage, arch, name)
	goBuild(file, "-C=keyless", "-s -w -X main.version="+r.version, "GOOS=linux", "GOARCH="+arch)
	r.write(name, read(file))
	r.write(name+".cdx.json", r.sbom(file))
}

// plugins compiles the plugins, which are the same on every machine.
func (r *release) plugins() (all []entry) {
	mains, err := filepath.Glob("plugins/*/main.go")
	check(err)
	for _, m := range mains {
		p := path.Base(path.Dir(m))
		file := filepath.Join(r.stage, "plugins", p+".wasm")
		goBuild(file, "./plugins/"+p, "-s -w", "GOOS=wasip1", "GOARCH=wasm")
		all = append(all, entry{name: "build/plugins/" + p + ".wasm", data: read(file)})
	}
	return all
}

// sources lists what the docs speak of and the program does not hold: no page needs a checkout.
func sources() (all []entry) {
	for _, f := range []string{"plugins.lock", "config.toml", "README.md", "CHANGELOG.md",
		"LICENSE", "SECURITY.md", "CONTRIBUTING.md"} {
		all = append(all, entry{name: f, data: read(f)})
	}
	all = append(all, entry{name: "Makefile", data: read("packaging/archive.mk")})
	for _, dir := range []string{"docs", "examples", "packaging", "plugins", "policies", "sdk"} {
		check(fs.WalkDir(os.DirFS("."), dir, func(name string, d fs.DirEntry, err error) error {
			made := strings.HasSuffix(name, ".wasm") || strings.Contains(name, "/build/") ||
				strings.HasSuffix(name, "/plugins.lock") || // of an example that was tried
				strings.HasPrefix(name, "packaging/dist/") ||
				strings.HasPrefix(name, "packaging/tools/")
			if err == nil && d.Type().IsRegular() && !made {
				info, err := d.Info()
				check(err)
				all = append(all, entry{name: name, data: read(name),
					exec: info.Mode()&0o100 != 0})
			}
			return err
		}))
	}
	return all
}

// goBuild compiles a package of this module, or with -C=DIR the program that the module in DIR is.
func goBuild(out, pkg, ldflags string, env ...string) {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + ldflags, "-o", out}
	if strings.HasPrefix(pkg, "-C=") {
		args, pkg = slices.Insert(args, 1, pkg), "."
	}
	if strings.HasSuffix(out, ".wasm") {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	run(cmd)
}

// run runs a command, and returns what it wrote.
func run(cmd *exec.Cmd) []byte {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return out
}

// tool is a command of packaging/tools/go.mod, whose dependencies are not the program's.
func tool(name string, args ...string) *exec.Cmd {
	return exec.Command("go", append([]string{"tool", "-modfile=packaging/tools/go.mod", name},
		args...)...)
}

func (r *release) write(name string, data []byte) {
	check(os.WriteFile(filepath.Join(r.out, name), data, 0o644))
	r.names = append(r.names, name)
}

// fill returns a file with its {{version}} and {{commit}} filled in.
func (r *release) fill(file string) []byte {
	return []byte(strings.NewReplacer("{{version}}", r.version, "{{commit}}", r.commit).
		Replace(string(read(file))))
}

// sums writes SHA256SUMS, which names everything that was made.
func (r *release) sums() {
	slices.Sort(r.names)
	var sums bytes.Buffer
	for _, f := range r.names {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(read(filepath.Join(r.out, f))), f)
	}
	check(os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644))
	fmt.Print(sums.String())
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

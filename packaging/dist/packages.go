package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// home is where packages put the whole archive. The program finds the SDK beside itself.
const home = "/usr/lib/caponier/"

// content is a line of nfpm's list of contents.
type content struct {
	Src  string    `json:"src,omitempty"`
	Dst  string    `json:"dst"`
	Type string    `json:"type,omitempty"`
	Info *fileInfo `json:"file_info,omitempty"`
}

type fileInfo struct {
	Mode uint32 `json:"mode"`
}

// packages writes the .deb and the .rpm: the archive, the program on the path, the units, the
// manual. nfpm reads YAML, of which JSON is a part.
func (r *release) packages(name, arch string, all, pages []entry) {
	dir := filepath.Join(r.stage, arch, "package")
	var contents []content
	add := func(dst string, data []byte, perm uint32) {
		file := filepath.Join(dir, dst)
		check(os.MkdirAll(filepath.Dir(file), 0o755))
		check(os.WriteFile(file, data, 0o644))
		contents = append(contents, content{file, dst, "", &fileInfo{perm}})
	}
	for _, e := range all {
		if e.link != "" {
			contents = append(contents, link(e.link, home+e.name))
			continue
		}
		add(home+e.name, e.data, uint32(mode(e)))
	}
	for _, p := range pages {
		add("/usr/share/man/man1/"+filepath.Base(p.name)+".gz", zipped(p.data), 0o644)
	}
	unit := strings.ReplaceAll(string(read("packaging/caponier.service")), "/usr/local/bin",
		"/usr/bin")
	add("/usr/lib/systemd/system/caponier.service", []byte(unit), 0o644)
	for _, f := range []string{"README.md", "CHANGELOG.md"} {
		add("/usr/share/doc/caponier/"+f, read(f), 0o644)
	}
	add("/usr/share/doc/caponier/copyright", read("LICENSE"), 0o644)
	contents = append(contents,
		link(home+"build/caponier", "/usr/bin/caponier"),
		content{Dst: "/etc/caponier", Type: "dir", Info: &fileInfo{0o750}},
		content{Dst: "/var/lib/caponier", Type: "dir", Info: &fileInfo{0o700}})
	config, err := json.MarshalIndent(map[string]any{
		"name": "caponier", "arch": arch, "platform": "linux", "section": "admin",
		"version": r.version, "mtime": when, "license": "Apache-2.0",
		"maintainer":  "The Caponier authors <caponier@users.noreply.github.com>",
		"homepage":    "https://github.com/caponier-mcp/caponier",
		"description": "Lets MCP clients operate Proxmox nodes, each step decided by policy",
		"contents":    contents,
		"overrides": map[string]any{
			"deb": map[string]any{"depends": []string{"passwd"},
				"recommends": []string{"ca-certificates", "openssh-client"}},
			"rpm": map[string]any{"depends": []string{"shadow-utils"},
				"recommends": []string{"ca-certificates", "openssh-clients"}},
		},
		"scripts": map[string]string{
			"postinstall": "packaging/linux/postinstall.sh",
			"preremove":   "packaging/linux/preremove.sh",
			"postremove":  "packaging/linux/postremove.sh",
		},
		"rpm": map[string]any{"summary": "MCP host for Proxmox, each step decided by policy",
			"buildhost": "localhost"},
	}, "", "  ")
	check(err)
	file := filepath.Join(dir, "nfpm.json")
	check(os.WriteFile(file, config, 0o600))
	for _, kind := range []string{"deb", "rpm"} {
		out := filepath.Join(dir, name+"."+kind)
		run(tool("nfpm", "package", "--config", file, "--packager", kind, "--target", out))
		r.write(name+"."+kind, read(out))
	}
}

func zipped(data []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	check(err)
	_, err = z.Write(data)
	check(err)
	check(z.Close())
	return b.Bytes()
}

// verbs finds the subcommands in what --help prints.
var verbs = regexp.MustCompile(`(?s)\nAvailable Commands:\n(.*?)\n\n`)

// manual makes a page of the manual for the program and for each of its commands, from --help.
func manual(program, version string) []entry {
	var pages []entry
	var visit func(words []string)
	visit = func(words []string) {
		help := string(run(exec.Command(program, append(words[1:len(words):len(words)],
			"--help")...)))
		name := strings.Join(words, "-")
		pages = append(pages, entry{name: "man/" + name + ".1",
			data: []byte(page(name, version, help))})
		if m := verbs.FindStringSubmatch(help); m != nil {
			for line := range strings.Lines(m[1]) {
				verb := strings.Fields(line)[0]
				if verb != "help" && verb != "completion" {
					visit(append(words[:len(words):len(words)], verb))
				}
			}
		}
	}
	visit([]string{"caponier"})
	return pages
}

// page writes one page of the manual: the first paragraph of the help describes the command, every
// "Heading:" begins a section, whose lines stay as they are.
func page(name, version, help string) string {
	text := strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace
	about, rest, _ := strings.Cut(help, "\nUsage:\n")
	first, _, _ := strings.Cut(about, "\n")
	out := fmt.Sprintf(".TH %s 1 \"\" \"Caponier %s\" \"Caponier\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(text(name)), version, text(name), text(strings.TrimSuffix(first, ".")))
	section := func(heading, body string) {
		out += ".SH " + strings.ToUpper(heading) + "\n.nf\n"
		for line := range strings.Lines(strings.Trim(body, "\n") + "\n") {
			if line = text(line); strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
				line = `\&` + line
			}
			out += line
		}
		out += ".fi\n"
	}
	heading, body := "Synopsis", ""
	for line := range strings.Lines(rest) {
		if h, ok := strings.CutSuffix(line, ":\n"); ok && line[0] != ' ' {
			section(heading, body)
			heading, body = h, ""
			continue
		}
		body += line
	}
	section(heading, body)
	if strings.Count(strings.TrimSpace(about), "\n") > 0 || len(about) > 80 {
		section("Description", about)
	}
	return out
}

// link is a symbolic link with a mode: without one nfpm takes that of whatever this machine has at
// the target.
func link(to, at string) content {
	return content{Src: to, Dst: at, Type: "symlink", Info: &fileInfo{0o777}}
}

// Command site makes pages of HTML from the Markdown of the repository, with pages of reference
// that it takes from the program and config.toml, and a search that needs no server:
//
//	go -C packaging/tools run ./site -root ../.. -out ../../build/site
//
// A link to nothing, a picture that is missing and an anchor that no heading has end it.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"html/template"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var (
	//go:embed page.html
	frame string
	//go:embed search.html
	search string
	//go:embed style.css
	style string
)

// page is a page of the site. Its name is that of its Markdown in the repository.
type page struct {
	Name, Title string
	source      []byte
	tree        ast.Node
	anchors     map[string]bool
}

// URL is where the page is, below the site's folder.
func (p *page) URL() string {
	return strings.TrimSuffix(strings.Replace(p.Name, "README.md", "index.md", 1), ".md") + ".html"
}

// site is one run.
type site struct {
	root, out string
	pages     map[string]*page
	copies    map[string]bool // files that pages link to
	wrong     []string
}

const repository = "https://github.com/caponier-mcp/caponier/blob/main/"

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

func main() {
	log.SetFlags(0)
	s := &site{pages: map[string]*page{}, copies: map[string]bool{}}
	flag.StringVar(&s.root, "root", "../..", "the `DIR` of the repository, with build/caponier")
	flag.StringVar(&s.out, "out", "../../build/site",
		"the `DIR` to write; what is in it is deleted")
	flag.Parse()
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md",
		"packaging/*.md"} {
		files, err := filepath.Glob(filepath.Join(s.root, glob))
		check(err)
		for _, f := range files {
			name, err := filepath.Rel(s.root, f)
			check(err)
			s.add(filepath.ToSlash(name), read(f))
		}
	}
	s.references()
	check(os.RemoveAll(s.out))
	names := slices.Sorted(func(yield func(string) bool) {
		for n := range s.pages {
			if !yield(n) {
				return
			}
		}
	})
	var index []map[string]string
	for _, name := range names {
		index = append(index, s.write(s.pages[name])...)
	}
	data, err := json.Marshal(index)
	check(err)
	s.file("search.js", append(append([]byte("const pages = "), data...), ";\n"...))
	s.file("search.html", []byte(search))
	s.file("style.css", []byte(style))
	for name := range s.copies {
		s.file(name, read(filepath.Join(s.root, name)))
	}
	if len(s.wrong) > 0 {
		log.Fatalf("%s\nsite: %d links lead nowhere", strings.Join(s.wrong, "\n"), len(s.wrong))
	}
	fmt.Printf("%s: %d pages, %d sections to search\n", s.out, len(names), len(index))
}

// add parses a page.
func (s *site) add(name string, source []byte) {
	p := &page{Name: name, Title: name, source: source, anchors: map[string]bool{}}
	p.tree = markdown.Parser().Parse(text.NewReader(source))
	titled := false
	check(ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if h, ok := n.(*ast.Heading); ok && entering {
			if id, ok := h.AttributeString("id"); ok {
				p.anchors[string(id.([]byte))] = true
			}
			if h.Level == 1 && !titled {
				p.Title, titled = words(h, source), true
			}
		}
		return ast.WalkContinue, nil
	}))
	s.pages[name] = p
}

// words is the text of a node without its markup.
func words(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(source))
				b.WriteByte(' ')
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		case *ast.FencedCodeBlock:
			if entering {
				b.Write(n.Lines().Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

var abroad = regexp.MustCompile(`^[a-z]+:`)

// link returns where a link of a page leads on the site: to another page, to a copied file, or to
// the repository. A link that leads nowhere is noted.
func (s *site) link(p *page, to string) string {
	if abroad.MatchString(to) {
		return to
	}
	file, anchor, _ := strings.Cut(to, "#")
	target, name := p, p.Name
	if file != "" {
		name = path.Join(path.Dir(p.Name), file)
		if info, err := os.Stat(filepath.Join(s.root, name)); err == nil && info.IsDir() {
			if s.pages[name+"/README.md"] == nil {
				return repository + name
			}
			name += "/README.md"
		}
		target = s.pages[name]
	}
	if target == nil {
		if _, err := os.Stat(filepath.Join(s.root, name)); err != nil {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: there is no %s", p.Name, to))
			return to
		}
		if slices.Contains([]string{".png", ".svg", ".json"}, path.Ext(name)) {
			s.copies[name] = true
			return relative(p.URL(), name)
		}
		return repository + name
	}
	if anchor != "" && !target.anchors[anchor] {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %s has no heading #%s", p.Name, name, anchor))
	}
	if file == "" {
		return to
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	return relative(p.URL(), target.URL()) + anchor
}

// relative is the way from one page to another.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}

// write writes a page and returns its sections, for the search.
func (s *site) write(p *page) (sections []map[string]string) {
	at := map[string]string{"u": p.URL(), "t": p.Title, "b": ""}
	check(ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				n.Destination = []byte(s.link(p, string(n.Destination)))
			}
		case *ast.Image:
			if entering {
				n.Destination = []byte(s.link(p, string(n.Destination)))
			}
		}
		return ast.WalkContinue, nil
	}))
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level > 1 {
			sections = append(sections, at)
			id, _ := h.AttributeString("id")
			at = map[string]string{"u": fmt.Sprintf("%s#%s", p.URL(), id), "b": "",
				"t": p.Title + ": " + words(h, p.source)}
			continue
		}
		at["b"] += words(n, p.source) + " "
	}
	var body, all bytes.Buffer
	check(markdown.Renderer().Render(&body, p.source, p.tree))
	check(template.Must(template.New("page").Parse(frame)).Execute(&all, map[string]any{
		"Title": p.Title, "Up": strings.Repeat("../", strings.Count(p.URL(), "/")),
		"Body": template.HTML(body.String()), "Menu": s.menu(p)}))
	s.file(p.URL(), all.Bytes())
	return append(sections, at)
}

// entry is a line of the menu.
type entry struct {
	Title, URL string
	Here       bool
}

func (s *site) menu(at *page) (all []entry) {
	for _, name := range []string{"README.md", "docs/first-node.md", "docs/uses/README.md",
		"docs/clients/README.md", "docs/identity/README.md", "docs/policy.md", "docs/approvals.md",
		"docs/operating.md", "docs/procedures.md", "docs/tools.md", "docs/plugins.md",
		"docs/reference/cli.md", "docs/reference/configuration.md", "docs/reference/metrics.md",
		"docs/reference/errors.md", "docs/threats.md", "docs/design.md", "docs/glossary.md"} {
		p := s.pages[name]
		if p == nil {
			s.wrong = append(s.wrong, "the menu: there is no "+name)
			continue
		}
		all = append(all, entry{p.Title, relative(at.URL(), p.URL()), p == at})
	}
	return all
}

func (s *site) file(name string, data []byte) {
	file := filepath.Join(s.out, filepath.FromSlash(name))
	check(os.MkdirAll(filepath.Dir(file), 0o755))
	check(os.WriteFile(file, data, 0o644))
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

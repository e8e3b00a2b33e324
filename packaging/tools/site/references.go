package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// references adds the pages that are made from the program and its sources.
func (s *site) references() {
	s.add("docs/reference/cli.md", []byte(s.cli()))
	s.add("docs/reference/configuration.md", []byte("# Configuration reference\n\n"+
		"This is `config.toml` of the repository, which names every key with its default or an "+
		"example.\n\n```toml\n"+string(read(filepath.Join(s.root, "config.toml")))+"```\n"))
	s.add("docs/reference/metrics.md", []byte(s.metrics()))
	s.add("docs/reference/errors.md", []byte(s.errors()))
	s.clients()
}

// a client of examples/clients/README.md: its title, its name for client add, its file, where that
// goes
var client = regexp.MustCompile("(?m)^\\| ([^|(]+?)(?: \\(`([a-z-]+)`\\))? \\| " +
	"\\[([^]]+)\\].* \\| (.*) \\|$")

// clients makes a page for each client, of the file that a test starts the host from.
func (s *site) clients() {
	index := "# Clients\n\nA page for each MCP client whose file is known. [What holds for all]" +
		"(../../examples/clients/README.md).\n\n"
	found := client.FindAllStringSubmatch(string(read(filepath.Join(s.root,
		"examples/clients/README.md"))), -1)
	if len(found) < 9 {
		check(fmt.Errorf("only %d clients were found", len(found)))
	}
	for _, m := range found {
		title, name, file, place := m[1], m[2], m[3], m[4]
		page := strings.ToLower(strings.ReplaceAll(title, " ", "-")) + ".md"
		text := fmt.Sprintf("# %s\n\nIts file: %s.\n\n", title, place)
		if name != "" {
			text += fmt.Sprintf("```text\ncaponier client add %s --print   # shows the entry\n"+
				"caponier client add %s           # writes it; the old file stays beside it\n"+
				"caponier client remove %s        # takes it out again\n```\n\n", name, name, name)
		}
		text += fmt.Sprintf("By hand, with your paths:\n\n```%s\n%s```\n\nThe client starts "+
			"the host "+
			"under your account. A host on another machine it reaches with `caponier connect URL "+
			"--token-file FILE` as its command, or with the `.mcpb` bundle of caponier-connect. "+
			"[What holds for all clients](../../examples/clients/README.md).\n",
			strings.TrimPrefix(filepath.Ext(file), "."),
			read(filepath.Join(s.root, "examples/clients", file)))
		s.add("docs/clients/"+page, []byte(text))
		index += fmt.Sprintf("- [%s](%s)\n", title, page)
	}
	s.add("docs/clients/README.md", []byte(index))
}

var verbs = regexp.MustCompile(`(?s)\nAvailable Commands:\n(.*?)\n\n`)

var (
	described = regexp.MustCompile(`(?s)# description: (.*?)\n# [a-z]+:`)
	remedy    = regexp.MustCompile(`(?m)^remedy := "(.*)"$`)
)

// cli is the help of each command.
func (s *site) cli() string {
	all := "# Command reference\n\nWhat `--help` prints of each command of this version.\n"
	var visit func(line []string)
	visit = func(line []string) {
		args := append(line[1:len(line):len(line)], "--help")
		program, err := filepath.Abs(filepath.Join(s.root, "build/caponier"))
		check(err)
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"HOME=/"}
		help, err := cmd.Output()
		check(err)
		all += "\n## " + strings.Join(line, " ") + "\n\n```text\n" + string(help) + "```\n"
		if m := verbs.FindSubmatch(help); m != nil {
			for l := range strings.Lines(string(m[1])) {
				if verb := strings.Fields(l)[0]; verb != "help" && verb != "completion" {
					visit(append(line[:len(line):len(line)], verb))
				}
			}
		}
	}
	visit([]string{"caponier"})
	return all
}

// metrics lists what the sources name so, with its help.
func (s *site) metrics() string {
	rows := map[string]string{}
	s.sources("host", func(n ast.Node) {
		var parts []ast.Expr
		switch n := n.(type) {
		case *ast.CallExpr:
			parts = n.Args
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					e = kv.Value
				}
				parts = append(parts, e)
			}
		}
		var words []string
		for _, p := range parts {
			if w, ok := literal(p); ok {
				words = append(words, w)
			}
		}
		if len(words) < 2 || !strings.HasPrefix(words[0], "caponier_") {
			return
		}
		help := slices.MaxFunc(words[1:], func(a, b string) int { return len(a) - len(b) })
		if strings.Contains(help, " ") {
			rows[words[0]] = help
		}
	})
	if len(rows) < 20 {
		check(fmt.Errorf("only %d metrics were found in host/", len(rows)))
	}
	return "# Metrics reference\n\nWhat `/metrics` serves, beside the `go_` and `process_` " +
		"metrics of every Go program. [operating.md](../operating.md#monitoring) says " +
		"what to watch.\n\n" +
		table("metric", "", rows)
}

// errors lists why a call can be refused, and the codes of errors with what can be done.
func (s *site) errors() string {
	refusals := map[string]string{}
	files, err := filepath.Glob(filepath.Join(s.root, "policies/core/check/*.rego"))
	check(err)
	for _, f := range files {
		m := described.FindSubmatch(read(f))
		if id := strings.TrimSuffix(filepath.Base(f), ".rego"); m != nil {
			about := strings.Join(strings.Fields(strings.ReplaceAll(string(m[1]), "#", "")), " ")
			refusals[id] = strings.TrimPrefix(about, ">- ")
			if r := remedy.FindSubmatch(read(f)); r != nil {
				refusals[id] += " *To change it:* " + string(r[1])
			}
		}
	}
	remedies := map[string]string{}
	constants := map[string]string{}
	s.sources("plugins/internal/pve", func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return
		}
		if text, ok := literal(spec.Values[0]); ok {
			constants[spec.Names[0].Name] = text
		}
		if lit, ok := spec.Values[0].(*ast.CompositeLit); ok && spec.Names[0].Name == "remedies" {
			for _, e := range lit.Elts {
				kv := e.(*ast.KeyValueExpr)
				key, _ := literal(kv.Key)
				text, ok := literal(kv.Value)
				if id, is := kv.Value.(*ast.Ident); is && !ok {
					text = constants[id.Name]
				}
				remedies[key] = text
			}
		}
	})
	if len(refusals) < 20 || len(remedies) < 15 {
		check(fmt.Errorf("only %d refusals and %d errors were found", len(refusals), len(remedies)))
	}
	return "# Error reference\n\n## Refusals\n\nA call is refused while one of these checks does " +
		"not hold. The answer says which, what was found, and what would work.\n\n" +
		table("check", "holds when", refusals) +
		"\n## Errors of operations\n\n" + table("code", "what to do", remedies) +
		"\n## Exit codes\n\nOf every command: 0 done, 1 the tool or the check failed, 2 " +
		"wrong usage or configuration, 3 refused by policy, 4 waits for a person, 5 " +
		"the outcome is not known.\n"
}

// sources visits the nodes of the Go files below a directory.
func (s *site) sources(dir string, visit func(ast.Node)) {
	check(filepath.WalkDir(filepath.Join(s.root, dir), func(file string, d fs.DirEntry,
		err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err == nil {
			ast.Inspect(f, func(n ast.Node) bool { visit(n); return true })
		}
		return err
	}))
}

// literal is the text of a constant expression of string literals.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := literal(e.X)
		b, also := literal(e.Y)
		return a + b, ok && also
	}
	return "", false
}

func table(key, value string, rows map[string]string) string {
	var keys []string
	for k := range rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	text := fmt.Sprintf("| %s | %s |\n|---|---|\n", key, value)
	for _, k := range keys {
		text += fmt.Sprintf("| `%s` | %s |\n", k, strings.NewReplacer("|", `\|`, "\n", " ", "<",
			"&lt;").Replace(rows[k]))
	}
	return text
}

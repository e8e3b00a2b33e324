package shell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/caponier-mcp/caponier/host/terms"
)

// The parser reads bash, although the rendering runs in any POSIX shell, because bash's grammar is
// larger. More of the syntax that shells read differently (braces, $'…', [[, process substitution)
// is parsed as a named construct and refused, instead of as plain words.
const variant = syntax.LangBash

// glue is the text around the quoted words of calls: operators between them, and harmless
// redirections after each call.
type glue struct{ joiners, tails []string }

// lower parses text into calls and the glue around them.
func lower(text string) (terms.Lowered, glue) {
	if len(text) > maxScript {
		return refuse(fmt.Sprintf("the command text is %d bytes, over the limit of %d",
			len(text), maxScript)), glue{}
	}
	if !utf8.ValidString(text) {
		return refuse("the command text is not valid UTF-8", "control"), glue{}
	}
	if i := strings.IndexFunc(text, control); i >= 0 {
		r, _ := utf8.DecodeRuneInString(text[i:])
		return refuse(fmt.Sprintf("control character %U at byte %d: "+
			"shells do not agree on what it separates", r, i+1), "control"), glue{}
	}
	file, err := parse(text)
	if err != nil {
		return refuse(err.Error(), "syntax"), glue{}
	}
	s := scan{text: text}
	s.continuations(file)
	syntax.Walk(file, s.node)
	for i, st := range file.Stmts {
		if s.problem != "" {
			break
		}
		if i > 0 {
			s.joiners = append(s.joiners, ";")
			s.feature("sequence")
		}
		s.statement(st)
	}
	slices.Sort(s.features)
	switch {
	case s.problem != "":
		return refuse(s.problem, s.features...), glue{}
	case len(s.calls) == 0:
		return refuse("there is no command in the text", s.features...), glue{}
	}
	features := append([]string{}, s.features...)
	return terms.Lowered{Parsed: true, Features: features, Calls: s.calls}, s.glue
}

// continuations refuses a backslash before a line break outside single quotes. The parser and real
// shells join such lines differently: a shell reads "$\⏎(id)" as a substitution, but the parser
// reads it as plain text; after #…\⏎ a shell starts a new command, but the parser continues the old
// one. Both read the text in the same way up to the first continuation, so its quotes are known.
func (s *scan) continuations(file *syntax.File) {
	var quoted [][2]int
	syntax.Walk(file, func(n syntax.Node) bool {
		if q, is := n.(*syntax.SglQuoted); is && !q.Dollar {
			quoted = append(quoted, [2]int{int(q.Left.Offset()), int(q.End().Offset())})
		}
		return true
	})
	for from := 0; ; {
		i := strings.Index(s.text[from:], "\\\n")
		if i < 0 {
			return
		}
		at := from + i
		if !slices.ContainsFunc(quoted, func(q [2]int) bool { return q[0] < at && at < q[1]-1 }) {
			s.feature("continuation")
			line := 1 + strings.Count(s.text[:at], "\n")
			s.problem = fmt.Sprintf("a backslash before a line break, at the end of line %d, "+
				"cannot be sent: shells do not agree on what it joins; write one line", line)
			return
		}
		from = at + 2
	}
}

func control(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0
}

func parse(text string) (file *syntax.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser broke: %v", p)
		}
	}()
	file, err = syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(text), "")
	if at := (syntax.ParseError{}); errors.As(err, &at) {
		err = fmt.Errorf("%s at line %d, column %d", at.Text, at.Pos.Line(), at.Pos.Col())
	}
	return file, err
}

// scan lowers one text and collects what cannot be lowered. Calls mean nothing once there is a
// problem.
type scan struct {
	text     string
	problem  string // the first
	features []string
	calls    []terms.Simple
	glue
}

func (s *scan) feature(name string) {
	if !slices.Contains(s.features, name) {
		s.features = append(s.features, name)
	}
}

func (s *scan) refuse(feature, what string, at syntax.Pos) {
	s.feature(feature)
	if s.problem != "" {
		return
	}
	near := s.text[min(int(at.Offset()), len(s.text)):]
	if i := strings.IndexAny(near, " \n"); i > 0 {
		near = near[:i]
	}
	for len(near) > 24 || !utf8.ValidString(near) {
		near = near[:len(near)-1]
	}
	s.problem = fmt.Sprintf("%s at line %d, column %d (%q) cannot be sent: use plain words joined "+
		"by | && || ;, and quote characters that are meant as they are",
		what, at.Line(), at.Col(), near)
}

// node refuses every construct that is not a plain word, so that all features are named. A kind of
// node that is not listed here is refused.
func (s *scan) node(n syntax.Node) bool {
	switch n := n.(type) {
	case nil, *syntax.File, *syntax.CallExpr, *syntax.Lit, *syntax.Comment:
	case *syntax.Stmt:
		if n.Negated {
			s.refuse("negation", "negation", n.Position)
		}
		if n.Background || n.Coprocess || n.Disown {
			s.refuse("background", "a background command", n.Semicolon)
		}
	case *syntax.BinaryCmd:
		if n.Op == syntax.PipeAll {
			s.refuse("redirection", "a pipe of stderr", n.OpPos)
		}
	case *syntax.Redirect:
		s.redirection(n)
	case *syntax.Word:
		s.word(n, true)
	case *syntax.SglQuoted:
		if n.Dollar {
			s.refuse("dollar_quote", "$'…'", n.Pos())
		}
	case *syntax.DblQuoted:
		if n.Dollar {
			s.refuse("dollar_quote", `$"…"`, n.Pos())
		}
	case *syntax.ParamExp:
		s.refuse("expansion", "an expansion", n.Pos())
	case *syntax.CmdSubst, *syntax.ProcSubst:
		s.refuse("substitution", "a substitution", n.Pos())
	case *syntax.ExtGlob:
		s.refuse("glob", "a glob", n.Pos())
	case *syntax.BraceExp:
		s.refuse("brace", "a brace", n.Pos())
	case *syntax.Assign, *syntax.DeclClause, *syntax.ArrayExpr, *syntax.ArrayElem:
		s.refuse("assignment", "an assignment", n.Pos())
	case *syntax.FuncDecl:
		s.refuse("function", "a function", n.Pos())
	case *syntax.Subshell:
		s.refuse("subshell", "a subshell", n.Pos())
	case *syntax.Block:
		s.refuse("group", "a group", n.Pos())
	case *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.WordIter,
		*syntax.CStyleLoop, *syntax.CaseClause, *syntax.CaseItem:
		s.refuse("control", "control flow", n.Pos())
	case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.BinaryArithm,
		*syntax.UnaryArithm, *syntax.ParenArithm:
		s.refuse("arithmetic", "arithmetic", n.Pos())
	case *syntax.TestClause, *syntax.BinaryTest, *syntax.UnaryTest, *syntax.ParenTest:
		s.refuse("test", "a [[ test", n.Pos())
	case *syntax.TimeClause:
		s.refuse("time", "the word time", n.Pos())
	case *syntax.CoprocClause:
		s.refuse("background", "a coprocess", n.Pos())
	default:
		s.refuse("syntax", fmt.Sprintf("a construct of the kind %T", n), n.Pos())
	}
	return true
}

func (s *scan) redirection(n *syntax.Redirect) {
	next := s.text[min(int(n.End().Offset()), len(s.text)):]
	if _, features := harmless(n); features != nil && !strings.HasPrefix(next, ">") &&
		!strings.HasPrefix(next, "<") { // dash does not read 2>&1>x
		for _, f := range features {
			s.feature(f)
		}
	} else if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc || n.Op == syntax.WordHdoc {
		s.refuse("heredoc", "a here-document", n.OpPos)
	} else {
		s.refuse("redirection", "a redirection", n.OpPos)
	}
}

// harmless renders a redirection that touches no file: to or from /dev/null ("discard"), or of one
// output to the other ("merge"). Both are features, so that a site decides on them. Nil features
// mean another redirection. Bash's &> is one of those: other shells read it as a command in the
// background and the beginning of a second command.
func harmless(r *syntax.Redirect) (rendered string, features []string) {
	fd, to := "", r.Word.Lit()
	if r.N != nil {
		fd = r.N.Value
	}
	null := to == "/dev/null"
	switch output := fd == "" || fd == "1" || fd == "2"; {
	case null && r.Op == syntax.RdrOut && output:
		return " " + fd + ">/dev/null", []string{"discard"}
	case null && r.Op == syntax.RdrIn && (fd == "" || fd == "0"):
		return " </dev/null", []string{"discard"}
	case r.Op == syntax.DplOut && output && (to == "1" || to == "2"):
		return " " + fd + ">&" + to, []string{"merge"}
	}
	return "", nil
}

var operators = map[syntax.BinCmdOperator][2]string{
	syntax.AndStmt: {"&&", "and"},
	syntax.OrStmt:  {"||", "or"},
	syntax.Pipe:    {"|", "pipe"},
}

// statement lowers what node did not refuse. The tree of joiners becomes a flat list: | binds
// tighter than && and ||, which bind equally and group from the left, and node refused groups.
func (s *scan) statement(st *syntax.Stmt) {
	switch c := st.Cmd.(type) {
	case *syntax.BinaryCmd:
		s.statement(c.X)
		op, known := operators[c.Op]
		if !known {
			s.refuse("syntax", "the operator "+c.Op.String(), c.OpPos)
		}
		s.joiners = append(s.joiners, op[0])
		s.feature(op[1])
		s.statement(c.Y)
	case *syntax.CallExpr:
		argv := make([]string, 0, len(c.Args))
		for _, w := range c.Args {
			argv = append(argv, s.word(w, false))
		}
		if len(argv) == 0 || argv[0] == "" {
			s.refuse("syntax", "a command without a name", c.Pos())
			return
		}
		if why := evaluates(argv); why != "" {
			s.refuse("builtin", why, c.Pos())
		}
		// ksh takes é=x for an assignment, and if: for a reserved word
		if lit, is := c.Args[0].Parts[0].(*syntax.Lit); is && strings.ContainsAny(lit.Value, "=:") {
			s.refuse("assignment", "an assignment", c.Pos())
		}
		s.calls = append(s.calls, terms.Simple{Argv: argv, Static: true})
		tail := ""
		for _, r := range st.Redirs {
			part, _ := harmless(r)
			tail += part
		}
		s.tails = append(s.tails, tail)
	default:
		s.refuse("syntax", "something that is not a command", st.Position)
	}
}

// word returns the string that every shell makes of the word. node has already refused parts that
// are not literal. With look, word also refuses unquoted characters that some shell expands.
func (s *scan) word(w *syntax.Word, look bool) string {
	var b strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(p.Value, ""))
			s.dollar(p)
			// "[" by itself is the name of a program
			if look && !(len(w.Parts) == 1 && p.Value == "[") {
				s.unquoted(p, p == w.Parts[0])
			}
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, in := range p.Parts {
				if lit, is := in.(*syntax.Lit); is {
					s.dollar(lit)
					b.WriteString(unescape(lit.Value, "$`\"\\"))
				}
			}
		}
	}
	return b.String()
}

// dollar refuses a $ that the parser takes as it is and some shell may not, as ksh does $é.
func (s *scan) dollar(p *syntax.Lit) {
	escaped := false
	for i := int(p.Pos().Offset()); i < int(p.End().Offset()); i++ {
		if s.text[i] == '$' && !escaped && i+1 < len(s.text) &&
			!strings.ContainsRune(" \t\n|&;<>)/\"", rune(s.text[i+1])) {
			s.refuse("expansion", "an expansion", p.Pos())
		}
		escaped = !escaped && s.text[i] == '\\'
	}
}

// unquoted refuses what the parser calls literal and a shell would expand.
func (s *scan) unquoted(p *syntax.Lit, first bool) {
	v, escaped := p.Value, false
	for i, r := range v {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
			if i == len(v)-1 {
				s.refuse("syntax", "a backslash with nothing after it", p.Pos())
			}
		case r == '*' || r == '?' || r == '[':
			s.refuse("glob", "a glob", p.Pos())
		case r == '{' || r == '}':
			s.refuse("brace", "a brace", p.Pos())
		case r == '~' && (i == 0 && first || i > 0 && (v[i-1] == '=' || v[i-1] == ':')):
			s.refuse("tilde", "a tilde", p.Pos())
		case r == '`' || r == '\'' || r == '"' || r <= ' ':
			s.refuse("syntax", fmt.Sprintf("an unquoted %q", r), p.Pos())
		}
	}
}

// unescape removes backslashes as a shell does: before any character when only is empty, else
// before the characters in only. There are no line continuations in v.
func unescape(v, only string) string {
	if !strings.Contains(v, `\`) {
		return v
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if next := i + 1; v[i] == '\\' && next < len(v) &&
			(only == "" || strings.IndexByte(only, v[next]) >= 0) {
			i = next
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// maxScript is the longest command text in bytes. It is checked before parsing: nested text of a
// few hundred kilobytes overflows the parser's stack, and Go cannot recover from that.
const maxScript = 10_000

// refuse is the only way to make a Lowered that is not parsed. It has no calls, because a part of a
// command proves nothing about the whole.
func refuse(why string, features ...string) terms.Lowered {
	return terms.Lowered{
		Error: why, Features: append([]string{}, features...), Calls: []terms.Simple{},
	}
}

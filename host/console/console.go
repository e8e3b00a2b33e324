// Package console shows people what happens: the calls of the journal, and the state of the host.
// It changes nothing, but for a freeze.
package console

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

//go:embed console.html
var html string

//go:embed console.css
var css string

var pages = template.Must(template.New("").Funcs(template.FuncMap{"show": plaintext.Show,
	"text": text, "join": strings.Join, "time": clock, "about": about}).Parse(html))

// Path is where the console is served, below the page of approvals.
const Path = "/approvals/console"

// Options are what the console shows. Whoever is not named in Viewers sees nothing.
type Options struct {
	Viewers  []string // of those who may sign in; "*" is all of them
	Freezers []string // may freeze, of the viewers; "*" is all of them

	Index *index.Index
	// Plan tells for people what a call planned and did, from its records.
	Plan func(call string, records []gate.Record) (string, error)
	// Explain tells why a recorded decision was made.
	Explain func(ctx context.Context, r gate.Record) (string, error)
	Panels  []Panel
	// Frozen lists what is frozen, and Freeze freezes as `caponier freeze` does.
	Frozen func() (Table, error)
	Freeze func(by, scope, name, reason string) error
}

// Panel is a page of tables about the host.
type Panel struct {
	Name, Title string // the name is part of its address
	Load        func(ctx context.Context) ([]Table, error)
}

// Table is text of any origin. A row that has fewer cells than there are heads is shown so.
type Table struct {
	Caption string
	Head    []string
	Rows    [][]string
}

// Visit is a request of a person who is signed in.
type Visit struct {
	Who   string
	Token func(path string) string // of a form with that address; it was checked for a POST
}

// Console serves the pages. It is safe for concurrent use.
type Console struct{ opt Options }

// New makes a console.
func New(o Options) *Console { return &Console{o} }

func named(who string, all []string) bool {
	return who != "" && (slices.Contains(all, who) || slices.Contains(all, "*"))
}

// Serve answers a request below Path. The caller has set the headers, with a content security
// policy, and has found out who it is.
func (c *Console) Serve(w http.ResponseWriter, r *http.Request, v Visit) {
	if !named(v.Who, c.opt.Viewers) {
		c.fail(w, v, http.StatusForbidden, "You may approve here, and not see the console: "+
			"[approval] console in the host's configuration names who may.")
		return
	}
	mux := http.NewServeMux()
	for path, serve := range map[string]func(http.ResponseWriter, *http.Request, Visit){
		"GET " + Path: c.calls, "GET " + Path + "/call/{id}": c.call,
		"GET " + Path + "/call/{id}/explain/{decision}": c.explain,
		"GET " + Path + "/panel/{name}":                 c.panel,
		"GET " + Path + "/freeze":                       c.frozen,
		"POST " + Path + "/freeze":                      c.freeze,
		"GET " + Path + "/console.css":                  style,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { serve(w, r, v) })
	}
	mux.ServeHTTP(w, r)
}

func style(w http.ResponseWriter, _ *http.Request, _ Visit) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	fmt.Fprint(w, css)
}

// view is what every template sees.
type view struct {
	Who, Title, Error, Out string
	Refresh                bool
	Panels                 []Panel
	Data                   any
}

func (c *Console) render(w http.ResponseWriter, v Visit, status int, name string, p view) {
	p.Who, p.Panels, p.Out = v.Who, c.opt.Panels, v.Token("/approvals/logout")
	if !named(v.Who, c.opt.Viewers) {
		p.Panels = nil
	}
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, p); err != nil {
		slog.Error("the console", "template", name, "error", err)
		http.Error(w, "the page is broken; the host's log says how, and `caponier audit` still "+
			"works", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w)
}

func (c *Console) fail(w http.ResponseWriter, v Visit, status int, msg string) {
	c.render(w, v, status, "failed", view{Title: "Not done", Error: msg})
}

// broken tells the log what went wrong, and the reader that something did.
func (c *Console) broken(w http.ResponseWriter, v Visit, what string, err error) {
	slog.Error("the console", "what", what, "error", err)
	c.fail(w, v, http.StatusInternalServerError, what+" cannot be read now; the host's log says "+
		"why.")
}

func (c *Console) panel(w http.ResponseWriter, r *http.Request, v Visit) {
	at := slices.IndexFunc(c.opt.Panels, func(p Panel) bool {
		return p.Name == r.PathValue("name")
	})
	if at < 0 {
		c.fail(w, v, http.StatusNotFound, "There is no such page.")
		return
	}
	p := c.opt.Panels[at]
	tables, err := p.Load(r.Context())
	if err != nil {
		c.broken(w, v, p.Title, err)
		return
	}
	c.render(w, v, http.StatusOK, "panel", view{Title: p.Title, Refresh: true, Data: tables})
}

// form is the form that freezes, "" where it may not be used.
type form struct {
	Token  string
	Frozen Table
	Kinds  []string
}

// kinds are what can be frozen.
var kinds = []string{"principal", "node", "tool", "all"}

func (c *Console) frozen(w http.ResponseWriter, _ *http.Request, v Visit) {
	f := form{Kinds: kinds}
	var err error
	if f.Frozen, err = c.opt.Frozen(); err != nil {
		c.broken(w, v, "The list of freezes", err)
		return
	}
	if named(v.Who, c.opt.Freezers) {
		f.Token = v.Token(Path + "/freeze")
	}
	c.render(w, v, http.StatusOK, "freeze", view{Title: "Freeze", Data: f})
}

func (c *Console) freeze(w http.ResponseWriter, r *http.Request, v Visit) {
	if !named(v.Who, c.opt.Freezers) {
		c.fail(w, v, http.StatusForbidden, "You may not freeze here: [approval] freezers in the "+
			"host's configuration names who may. `caponier freeze` works on the host.")
		return
	}
	scope, name := r.PostFormValue("scope"), r.PostFormValue("name")
	if !slices.Contains(kinds, scope) || (scope == "all") != (name == "") {
		c.fail(w, v, http.StatusBadRequest, "Say what to freeze: a principal, node or tool by its "+
			"name, or everything without a name.")
		return
	}
	if err := c.opt.Freeze(v.Who, scope, name, r.PostFormValue("reason")); err != nil {
		slog.Warn("a freeze on the console was not done", "by", v.Who, "error", err)
		c.fail(w, v, http.StatusConflict, fmt.Sprintf("Not frozen: %s", err))
		return
	}
	http.Redirect(w, r, Path+"/freeze", http.StatusSeeOther)
}

// Package console shows people what happens. It changes nothing, but for a freeze.
package console

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
)

//go:embed console.css
var css string

// New makes a console.
func New(o Options) *Console { return &Console{opt: o} }

// Serve answers a request below Path. The caller has set the headers, with a content security
// policy, and has found out who it is.
func (c *Console) Serve(w http.ResponseWriter, r *http.Request, v Visit) {
	if !named(v.Who, c.opt.Viewers) {
		c.fail(w, v, http.StatusForbidden, "You may approve here, and not see the console: "+
			"[approval] console in the host's configuration names who may.")
		return
	}
	end, ok := c.turn(r.Context(), v.Who)
	if !ok {
		c.fail(w, v, http.StatusTooManyRequests, "Your other pages are still being made: try "+
			"again when they are there.")
		return
	}
	defer end()
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

// turn waits until no other page is made for this person, since each can take much of a processor.
func (c *Console) turn(ctx context.Context, who string) (end func(), ok bool) {
	of, _ := c.turns.LoadOrStore(who, make(chan struct{}, 1))
	turn := of.(chan struct{})
	ctx, cancel := context.WithTimeout(ctx, c.opt.wait())
	defer cancel()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, true
	case <-ctx.Done():
		return nil, false
	}
}

func style(w http.ResponseWriter, _ *http.Request, _ Visit) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	fmt.Fprint(w, css)
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
	c.render(w, v, http.StatusOK, "panel", live(r, view{Title: p.Title, Data: tables}))
}

// form is the form that freezes, "" where it may not be used.
type form struct {
	Token  string
	Frozen Table
	Kinds  []string
}

// kinds are what can be frozen.
var kinds = []string{"principal", "node", "tool", "all"}

func (c *Console) frozen(w http.ResponseWriter, r *http.Request, v Visit) {
	f := form{Kinds: kinds}
	var err error
	if f.Frozen, err = c.opt.Frozen(r.Context()); err != nil {
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

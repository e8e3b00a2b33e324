package console

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

//go:embed console.html
var html string

var pages = template.Must(template.New("").Funcs(template.FuncMap{"show": plaintext.Show,
	"text": text, "join": strings.Join, "time": clock, "about": audit.About}).Parse(html))

const maxText = 32_000 // bytes of one text on a page

// Path is where the console is served, below the page of approvals.
const Path = "/approvals/console"

// Options are what the console shows. Whoever is not named in Viewers sees nothing.
type Options struct {
	Viewers  []string // of those who may sign in; "*" is all of them
	Freezers []string // may freeze, of the viewers; "*" is all of them

	Index *index.Index
	// Plan tells for people what a call planned and did, from its records.
	Plan func(call string, records []terms.Record) (string, error)
	// Explain tells why a recorded decision was made.
	Explain func(ctx context.Context, r terms.Record) (string, error)
	Panels  []Panel
	// Frozen lists what is frozen, and Freeze freezes as `caponier freeze` does.
	Frozen func(context.Context) (Table, error)
	Freeze func(by, scope, name, reason string) error
	// Wait is how long a page waits for an earlier one of the same person; 0 is 10 seconds.
	Wait time.Duration
}

func (o Options) wait() time.Duration { return cmp.Or(o.Wait, 10*time.Second) }

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
type Console struct {
	opt   Options
	turns sync.Map // chan struct{}, by the name of a person
}

func named(who string, all []string) bool {
	return who != "" && (slices.Contains(all, who) || slices.Contains(all, "*"))
}

// view is what every template sees.
type view struct {
	Who, Title, Error, Out string
	Refresh                bool   // it loads itself again
	Live                   string // the address that does, or not any longer; "" for none
	Panels                 []Panel
	Data                   any
}

// live makes a page load itself again if its reader asked for that.
func live(r *http.Request, p view) view {
	q := r.URL.Query()
	if p.Refresh = q.Get("live") == "1"; p.Refresh {
		q.Del("live")
	} else {
		q.Set("live", "1")
	}
	p.Live = (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
	return p
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

// text makes text of any origin with lines harmless, and bounds it.
func text(s string) string {
	cut := ""
	if len(s) > maxText {
		s, cut = strings.ToValidUTF8(s[:maxText], "\uFFFD"), "\n… (cut)"
	}
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = plaintext.Show(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n") + cut
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

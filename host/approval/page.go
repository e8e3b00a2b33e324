package approval

import (
	"bytes"
	"context"
	"crypto/subtle"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed icon.svg
var icon string

//go:embed app.webmanifest
var manifest string

// files are for everybody, by their names below /approvals. The manifest and the icon let a phone
// install the page (W3C Web Application Manifest).
var files = map[string]struct{ kind, text string }{
	"style.css":       {"text/css; charset=utf-8", pageCSS},
	"icon.svg":        {"image/svg+xml", icon},
	"app.webmanifest": {"application/manifest+json", manifest},
}

var pages = template.Must(template.New("").Funcs(shows).Parse(pageHTML))

const (
	cookieName = "caponier_approvals"
	// consolePath is below the cookie's
	consolePath = "/approvals/console"
	maxForm     = 16 << 10
	lookTime    = 20 * time.Second // less than the page's own time to answer
)

// view is what the templates see.
type view struct {
	Who, Form, Out       string // Form and Out are tokens of the decision and of signing out
	List                 []shown
	Row                  shown
	Ticket, Title, Error string
	Console              bool // this person may see it
	// Refresh: it loads itself again, which a person may ask of pages that are Live. Closed: the
	// site takes no yes of this person here
	Own, Live, Refresh, Closed bool
	// token of the form that looks, "" when there is nothing to look with
	Look     string
	Readings []Reading
	Looked   bool
	// the identity provider's host, when people may sign in there, and where to go on there
	Provider, Next string
	For            string  // the request that a person who is not signed in came for
	Typed          Verdict // what the person wrote, in a page with an Error about it
}

func (a *Approvals) render(w http.ResponseWriter, status int, name string, v view) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, v); err != nil {
		a.opt.Log.Error("the approvals page", "template", name, "error", err)
		http.Error(w,
			"the page is broken; the host's log says how, and `caponier approvals` still "+
				"works", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w)
}

func (a *Approvals) fail(w http.ResponseWriter, status int, who, msg string) {
	title := "Not done"
	if status == http.StatusOK {
		title = "Done"
	}
	v := view{Who: who, Title: title, Error: msg}
	if who == "" {
		v.Provider = a.provider()
	}
	a.render(w, status, "error", v)
}

// greet asks a person to sign in.
func (a *Approvals) greet(w http.ResponseWriter, r *http.Request, msg string) {
	a.render(w, http.StatusUnauthorized, "error", view{Title: "Not done", Error: msg,
		Provider: a.provider(), For: r.PathValue("id")})
}

// loginForm only shows a button: the ticket is used when it is pressed, not when the link is looked
// at.
func (a *Approvals) loginForm(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query().Get("ticket")
	l, err := a.find(r.Context(), linkMark, given)
	if err != nil {
		a.fail(w, http.StatusUnauthorized, "",
			"This link is not valid, or no longer: it can be used "+
				"once, within "+linkLife.String()+". Make another: caponier approvals link")
		return
	}
	a.render(w, http.StatusOK, "login", view{Title: "Sign in", Ticket: given, Who: l.Name})
}

func (a *Approvals) login(w http.ResponseWriter, r *http.Request) {
	session, until, err := a.signIn(r.Context(), r.PostFormValue("ticket"))
	if err != nil {
		a.opt.Log.Warn("signing in to the approvals page", "error", err)
		a.fail(w, http.StatusUnauthorized, "",
			"This link is not valid, was used already, or is too "+
				"old. Make another: caponier approvals link")
		return
	}
	a.setCookie(w, session, until)
	http.Redirect(w, r, "/approvals", http.StatusSeeOther)
}

// setCookie: Lax, so that a person who follows a link in a chat is signed in. GET changes nothing,
// and every POST has its form's token.
func (a *Approvals) setCookie(w http.ResponseWriter, session string, until time.Time) {
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: session, Path: "/approvals",
		Expires: until, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(a.opt.URL, "https:")})
}

// signed is who is signed in, by which session.
type signed struct{ who, id, secret string }

// out is the token of the form that signs out.
func (s signed) out() string { return formToken(s.secret, "/approvals/logout") }

// signedIn shows nothing without a session, not even whether what a URL names exists. A POST needs
// the form's own token too.
func (a *Approvals) signedIn(
	next func(http.ResponseWriter, *http.Request, signed),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		const link = " An operator can make a link: caponier approvals link"
		c, err := r.Cookie(cookieName)
		if err != nil {
			a.greet(w, r, "Sign in first."+link)
			return
		}
		in, err := a.find(r.Context(), "", c.Value)
		if err != nil {
			a.greet(w, r, "You are not signed in, or no longer."+link)
			return
		}
		if r.Method == http.MethodPost {
			want, given := formToken(c.Value, r.URL.Path), r.PostFormValue("form")
			if subtle.ConstantTimeCompare([]byte(want), []byte(given)) != 1 {
				a.fail(w, http.StatusForbidden, in.Name,
					"This form was not made for you here. Open the request again.")
				return
			}
		}
		next(w, r, signed{in.Name, in.ID, c.Value})
	}
}

func (a *Approvals) console(w http.ResponseWriter, r *http.Request, s signed) {
	a.opt.Console(w, r, s.who, func(path string) string { return formToken(s.secret, path) })
}

func (a *Approvals) logout(w http.ResponseWriter, r *http.Request, s signed) {
	if _, err := a.store.EndSessions(r.Context(), s.id, ""); err != nil {
		a.opt.Log.Error("the approvals page", "error", err)
		a.fail(w, http.StatusInternalServerError, s.who,
			"The session cannot be ended now: try again.")
		return
	}
	a.setCookie(w, "", time.Unix(1, 0))
	a.fail(w, http.StatusOK, "", "You are signed out.")
}

func (a *Approvals) list(w http.ResponseWriter, r *http.Request, s signed) {
	all, err := a.store.Requests(r.Context(), "", "")
	if err != nil {
		a.opt.Log.Error("the approvals page", "error", err)
		a.fail(w, http.StatusInternalServerError, s.who, "The requests cannot be read.")
		return
	}
	v := view{Who: s.who, Title: "Approvals", Out: s.out(),
		Refresh: r.URL.Query().Get("live") == "1", Live: true,
		Console: a.opt.Console != nil && named(s.who, a.opt.Viewers)}
	for _, waiting := range []bool{true, false} {
		for _, q := range all {
			if (q.State == Waiting) != waiting {
				continue
			}
			row, err := q.shown(a.opt.Now())
			if err != nil {
				a.opt.Log.Error("the approvals page", "error", err)
				continue
			}
			v.List = append(v.List, row)
		}
		if waiting && len(v.List) > 0 {
			v.Title = fmt.Sprintf("Approvals (%d waiting)", len(v.List))
		}
	}
	a.render(w, http.StatusOK, "list", v)
}

func (a *Approvals) one(w http.ResponseWriter, r *http.Request, s signed) {
	a.show(w, r, s, wish{})
}

// look reads the present state as the person who is signed in: a POST, because it runs something.
func (a *Approvals) look(w http.ResponseWriter, r *http.Request, s signed) {
	a.show(w, r, s, wish{look: true})
}

// wish is what a person wants of the page of a request.
type wish struct {
	look    bool
	typed   Verdict
	problem string // with what was typed
}

func (a *Approvals) show(w http.ResponseWriter, r *http.Request, s signed, want wish) {
	list, err := a.store.Requests(r.Context(), r.PathValue("id"), "")
	if err != nil || len(list) != 1 {
		a.fail(w, http.StatusNotFound, s.who, "There is no such request, or it has expired.")
		return
	}
	q, err := list[0].shown(a.opt.Now())
	if err != nil {
		a.opt.Log.Error("the approvals page", "id", list[0].ID, "error", err)
		a.fail(w, http.StatusInternalServerError, s.who,
			"The request cannot be shown, so it must not be approved.")
		return
	}
	v := view{Who: s.who, Row: q, Title: "Approval " + q.ID, Out: s.out(),
		Own: strings.EqualFold(q.Principal, s.who), Form: formToken(s.secret, "/approvals/"+q.ID),
		Closed: !slices.Contains(q.D.Channels, Web) || !named(s.who, q.D.Approvers)}
	if a.opt.Look != nil && len(a.opt.Looks) > 0 && !v.Own {
		v.Look = formToken(s.secret, "/approvals/"+q.ID+"/look")
	}
	if want.look && v.Look != "" {
		ctx, cancel := context.WithTimeout(r.Context(), lookTime)
		defer cancel()
		v.Readings, v.Looked = a.opt.Look(ctx, s.who, q.D), true
	}
	status := http.StatusOK
	if v.Typed, v.Error = want.typed, want.problem; v.Error != "" {
		status = http.StatusUnprocessableEntity
	}
	a.render(w, status, "one", v)
}

func (a *Approvals) decide(w http.ResponseWriter, r *http.Request, s signed) {
	verdict := Verdict{Request: r.PathValue("id"), By: s.who, Channel: Web,
		Ticket: strings.TrimSpace(r.PostFormValue("ticket")), Note: r.PostFormValue("note")}
	switch r.PostFormValue("verdict") {
	case "approve":
		verdict.Approve = true
	case "deny":
	default:
		a.fail(w, http.StatusBadRequest, s.who, "Say approve or deny.")
		return
	}
	if _, err := a.Decide(r.Context(), verdict); err != nil {
		a.opt.Log.Warn("a decision on the approvals page was not taken", "id", verdict.Request,
			"by", s.who, "error", err)
		if errors.Is(err, ErrLacks) {
			a.show(w, r, s, wish{typed: verdict, problem: err.Error()})
			return
		}
		a.fail(w, http.StatusConflict, s.who, plaintext.Show(err.Error()))
		return
	}
	http.Redirect(w, r, "/approvals/"+url.PathEscape(verdict.Request), http.StatusSeeOther)
}

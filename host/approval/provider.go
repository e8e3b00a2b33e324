package approval

import (
	"crypto/rand"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/signin"
)

const (
	providerPath  = "/approvals/oidc"
	attemptCookie = "caponier_signin"
	attemptMark   = "oidc-" // begins the ids of attempts, which the store keeps beside sessions
	attemptLife   = 10 * time.Minute
	// is no approver's name; the request that the person came for may follow
	attemptName = "(signing in)"

	// providerLife bounds how long a person who is removed at the provider stays signed in.
	providerLife = time.Hour
)

// toProvider begins an attempt. It answers with a page, not with a redirect: browsers hold those of
// a form against form-action, and the provider may send people on to others.
func (a *Approvals) toProvider(w http.ResponseWriter, r *http.Request) {
	secret, name, now := rand.Text(), attemptName, a.opt.Now()
	if id := r.PostFormValue("request"); requestForm.MatchString(id) {
		name += id
	}
	to, err := a.oidc.URL(r.Context(), secret)
	if err == nil {
		err = a.store.Begin(r.Context(), Session{ID: sessionID(attemptMark, secret),
			Name: name, Created: now, Expires: now.Add(attemptLife)})
	}
	if err != nil {
		a.notSignedIn(w, err)
		return
	}
	a.attempt(w, secret, now.Add(attemptLife))
	w.Header().Set("Refresh", "0; url="+to)
	a.render(w, http.StatusOK, "next", view{Title: "Sign in", Provider: a.provider(), Next: to})
}

// fromProvider ends an attempt. All that the address says counts only with the cookie of the
// browser that began it, and once. Where it goes on does not depend on the address: to the request
// that the person came for, or to the list.
func (a *Approvals) fromProvider(w http.ResponseWriter, r *http.Request) {
	secret := ""
	if c, err := r.Cookie(attemptCookie); err == nil {
		secret = c.Value
	}
	back := r.URL.Query()
	if secret == "" || back.Get("state") != signin.State(secret) {
		a.notSignedIn(w, errors.New("the response is not for an attempt of this browser"))
		return // an attempt that this browser may have goes on
	}
	a.attempt(w, "", time.Unix(1, 0))
	attempts, err := a.store.Sessions(r.Context(), sessionID(attemptMark, secret))
	n := int64(0)
	if err == nil {
		n, err = a.store.EndSessions(r.Context(), sessionID(attemptMark, secret), "")
	}
	if err != nil || n != 1 || len(attempts) != 1 {
		a.notSignedIn(w, errors.Join(errors.New("the attempt is over, or too old"), err))
		return
	}
	name, err := a.oidc.Name(r.Context(), secret, back)
	if err != nil {
		a.notSignedIn(w, err)
		return
	}
	session, until, err := a.begin(r.Context(), "", name,
		min(a.opt.Session, providerLife))
	if err != nil {
		a.notSignedIn(w, err)
		return
	}
	a.opt.Log.Info("signed in to the approvals page", "name", name, "issuer", a.opt.OIDC.Issuer)
	a.setCookie(w, session, until)
	to := "/approvals"
	if id := strings.TrimPrefix(attempts[0].Name, attemptName); id != "" {
		to += "/" + id
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// requestForm is the form of newID.
var requestForm = regexp.MustCompile(`^[a-z0-9]{16}$`)

func (a *Approvals) attempt(w http.ResponseWriter, secret string, until time.Time) {
	http.SetCookie(w, &http.Cookie{Name: attemptCookie, Value: secret, Path: "/approvals",
		Expires: until, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(a.opt.URL, "https:")})
}

// notSignedIn tells the person what to do; the log says what was wrong.
func (a *Approvals) notSignedIn(w http.ResponseWriter, err error) {
	a.opt.Log.Warn("signing in to the approvals page", "issuer", a.opt.OIDC.Issuer, "error", err)
	status, msg := http.StatusUnauthorized, "You are not signed in: what came back does not "+
		"belong to an attempt of this browser, or no longer. Begin here, and within "+
		attemptLife.String()+"."
	switch {
	case errors.Is(err, signin.ErrOften):
		status, msg = http.StatusTooManyRequests, "Too many people sign in at this moment. Try "+
			"again in a minute, or have an operator make a link: caponier approvals link"
	case errors.Is(err, signin.ErrProvider):
		status, msg = http.StatusServiceUnavailable, "The identity provider cannot be asked now; "+
			"the host's log says why. An operator can make a link: caponier approvals link"
	case errors.Is(err, signin.ErrUnknown):
		status, msg = http.StatusForbidden, "The identity provider knows you, and you may not "+
			"sign in here; the host's log says which claim it gave. Names are in approval.oidc."
	}
	a.fail(w, status, "", msg)
}

package approval_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/signin"
	"github.com/caponier-mcp/caponier/host/signin/signintest"
)

// jar is a browser with all its cookies.
type jar struct {
	t       *testing.T
	h       http.Handler
	cookies map[string]string
}

func (j *jar) send(method, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	j.t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:8443"
	for k, v := range j.cookies {
		r.AddCookie(&http.Cookie{Name: k, Value: v})
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	j.h.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/approvals" {
			j.t.Errorf("cookie %v is not for the page alone", c)
		}
		if j.cookies[c.Name] = c.Value; c.Value == "" {
			delete(j.cookies, c.Name)
		}
	}
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp,
		"form-action 'self'") {
		j.t.Errorf("the policy is %q", csp)
	}
	return w
}

func (w *world) jar() *jar {
	return &jar{w.t.(*testing.T), w.a.Handler(), map[string]string{}}
}

// begun is the URL of the provider that an attempt goes on to.
func (j *jar) begun() string {
	j.t.Helper()
	got := j.send("POST", "/approvals/oidc")
	to, ok := strings.CutPrefix(got.Header().Get("Refresh"), "0; url=")
	if got.Code != http.StatusOK || !ok || !strings.Contains(got.Body.String(), "Go on to") {
		j.t.Fatalf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	return to
}

func (j *jar) back(v url.Values) *httptest.ResponseRecorder {
	return j.send("GET", "/approvals/oidc/callback?"+v.Encode())
}

func withProvider(t *testing.T) (*world, *signintest.Provider) {
	idp := signintest.New(t)
	return newWorld(t, func(o *approval.Options) {
		o.OIDC = signin.Options{Issuer: idp.Issuer, ClientID: signintest.ClientID,
			ClientSecret: signintest.ClientSecret,
			People:       []signin.Person{{Claim: "auth0|ann", Name: "ann"}}}
	}), idp
}

func (j *jar) isIn() bool { return j.send("GET", "/approvals").Code == http.StatusOK }

func TestAnApproverSignsInAtTheProvider(t *testing.T) {
	w, idp := withProvider(t)
	j := w.jar()
	if p := j.send("GET", "/approvals"); p.Code != http.StatusUnauthorized ||
		!strings.Contains(p.Body.String(), `<form method="post" action="/approvals/oidc">`) {
		t.Fatal(p.Code, p.Body)
	}
	to := j.begun()
	if u, err := url.Parse(to); err != nil || u.Query().Get("redirect_uri") !=
		"http://127.0.0.1:8443/approvals/oidc/callback" {
		t.Error(to)
	}
	if all, err := w.a.Sessions(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("an attempt is a session: %v %v", all, err)
	}
	if j.cookies["caponier_approvals"] = j.cookies["caponier_signin"]; j.isIn() {
		t.Error("an attempt signs in")
	}
	delete(j.cookies, "caponier_approvals")
	back := idp.Agree(t, to, "auth0|ann")
	for _, k := range []string{"next", "redirect", "redirect_uri", "return_to"} {
		back.Set(k, "//evil.example")
	}
	got := j.back(back)
	if got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/approvals" ||
		!j.isIn() || j.cookies["caponier_signin"] != "" {
		t.Fatal(got.Code, got.Header(), got.Body)
	}
	all, err := w.a.Sessions(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "ann" {
		t.Error(all, err)
	}
}

// Who came by the link of a message is shown that request after signing in, and nothing that the
// form was given instead. The sign-in is over after an hour.
func TestAfterSigningInTheRequestIsShown(t *testing.T) {
	w, idp := withProvider(t)
	id := w.waits(call())
	p := w.jar().send("GET", "/approvals/"+id)
	if p.Code != http.StatusUnauthorized || !strings.Contains(p.Body.String(),
		`<input type="hidden" name="request" value="`+id+`">`) {
		t.Fatal(p.Code, p.Body)
	}
	for given, want := range map[string]string{id: "/approvals/" + id, "": "/approvals",
		"//evil.example": "/approvals", id + "/../x": "/approvals", "console": "/approvals",
		strings.ToUpper(id): "/approvals"} {
		j := w.jar()
		got := j.send("POST", "/approvals/oidc", func(r *http.Request) {
			body := url.Values{"request": {given}}.Encode()
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
		to, _ := strings.CutPrefix(got.Header().Get("Refresh"), "0; url=")
		got = j.back(idp.Agree(t, to, "auth0|ann"))
		if got.Code != http.StatusSeeOther || got.Header().Get("Location") != want || !j.isIn() {
			t.Errorf("%q: %d %v", given, got.Code, got.Header())
		}
	}
	all, err := w.a.Sessions(t.Context())
	if err != nil || len(all) != 6 || all[0].Expires.Sub(all[0].Created).Round(time.Minute) !=
		time.Hour {
		t.Error(all, err)
	}
}

// A response counts once, soon, and in the browser that began.
func TestAResponseOfTheProviderCountsOnceWhereItBegan(t *testing.T) {
	const notHere = "does not belong to an attempt of this browser"
	for name, c := range map[string]struct {
		do   func(w *world, idp *signintest.Provider, mine *jar) *httptest.ResponseRecorder
		code int
		text string
	}{
		"in another browser (login CSRF)": {func(w *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			other := w.jar()
			other.begun()
			back := idp.Agree(t, mine.begun(), "auth0|ann")
			mine.cookies = other.cookies
			return mine.back(back)
		}, http.StatusUnauthorized, notHere},
		"without a cookie": {func(_ *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			back := idp.Agree(t, mine.begun(), "auth0|ann")
			clear(mine.cookies)
			return mine.back(back)
		}, http.StatusUnauthorized, notHere},
		"with a cookie that was never given": {func(_ *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			back := idp.Agree(t, mine.begun(), "auth0|ann")
			mine.cookies["caponier_signin"] = "made up"
			back.Set("state", signin.State("made up"))
			return mine.back(back)
		}, http.StatusUnauthorized, notHere},
		"again": {func(_ *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			to := mine.begun()
			cookie := mine.cookies["caponier_signin"]
			if mine.back(idp.Agree(t, to, "auth0|ann")); !mine.isIn() {
				t.Fatal("the first does not count")
			}
			mine.cookies = map[string]string{"caponier_signin": cookie}
			return mine.back(idp.Agree(t, to, "auth0|ann")) // with a new code
		}, http.StatusUnauthorized, notHere},
		"too late": {func(w *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			to := mine.begun()
			w.ahead.Add((10 * time.Minute).Milliseconds())
			return mine.back(idp.Agree(t, to, "auth0|ann"))
		}, http.StatusUnauthorized, notHere},
		"of somebody else": {func(_ *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			return mine.back(idp.Agree(t, mine.begun(), "auth0|eve"))
		}, http.StatusForbidden, "you may not sign in here"},
		"of another issuer (mix-up)": {func(_ *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			back := idp.Agree(t, mine.begun(), "auth0|ann")
			back.Set("iss", "https://evil.example")
			return mine.back(back)
		}, http.StatusUnauthorized, notHere},
		"of a provider that is down": {func(_ *world, idp *signintest.Provider,
			mine *jar) *httptest.ResponseRecorder {
			back := idp.Agree(t, mine.begun(), "auth0|ann")
			idp.Serve = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			}
			return mine.back(back)
		}, http.StatusServiceUnavailable, "caponier approvals link"},
	} {
		w, idp := withProvider(t)
		mine := w.jar()
		got := c.do(w, idp, mine)
		if got.Code != c.code || !strings.Contains(got.Body.String(), c.text) || mine.isIn() {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
}

// A page elsewhere begins nothing, and without a provider there is nothing to begin.
func TestOnlyThePageItselfBegins(t *testing.T) {
	w, _ := withProvider(t)
	for name, value := range map[string]string{"Origin": "https://evil.example",
		"Sec-Fetch-Site": "cross-site"} {
		j := w.jar()
		if got := j.send("POST", "/approvals/oidc", func(r *http.Request) {
			r.Header.Set(name, value)
		}); got.Code != http.StatusForbidden || len(j.cookies) != 0 {
			t.Errorf("%s: %d %v", name, got.Code, j.cookies)
		}
	}
	if got := w.jar().send("GET", "/approvals/oidc"); got.Header().Get("Refresh") != "" {
		t.Error(got.Code, got.Header())
	}
	for _, path := range []string{"/approvals/oidc", "/approvals/oidc/callback"} {
		j := newWorld(t).jar()
		if got := j.send("POST", path); got.Code == http.StatusOK || len(j.cookies) != 0 {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
}

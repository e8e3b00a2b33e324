package approval

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Handler serves the page under /approvals. GET changes nothing, so that a preview of a link
// decides nothing.
func (a *Approvals) Handler() http.Handler {
	mux := http.NewServeMux()
	handleFiles(mux)
	mux.HandleFunc("GET /approvals/login", a.loginForm)
	mux.HandleFunc("POST /approvals/login", a.login)
	if a.oidc != nil {
		mux.HandleFunc("POST "+providerPath, a.toProvider)
		mux.HandleFunc("GET "+callbackPath, a.fromProvider)
	}
	mux.HandleFunc("GET /approvals", a.signedIn(a.list))
	mux.HandleFunc("GET /approvals/{id}", a.signedIn(a.one))
	mux.HandleFunc("POST /approvals/{id}", a.signedIn(a.decide))
	mux.HandleFunc("POST /approvals/{id}/look", a.signedIn(a.look))
	mux.HandleFunc("POST /approvals/logout", a.signedIn(a.logout))
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.opt.Console != nil && (r.URL.Path == consolePath ||
			strings.HasPrefix(r.URL.Path, consolePath+"/")) {
			a.signedIn(a.console)(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	// The standard library's check looks at Sec-Fetch-Site and Origin of every request that is not
	// GET or HEAD.
	guarded := http.NewCrossOriginProtection().Handler(inner)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'" +
				"; img-src 'self'; manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Frame-Options":        "DENY",
			"X-Content-Type-Options": "nosniff",
			// a ticket goes nowhere else; with no-referrer, browsers send our own forms with the
			// Origin null
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			w.Header().Set(name, value)
		}
		if !a.ours(r.Host) {
			http.Error(w, "this Host is not served; approval.url names the one that is",
				http.StatusForbidden)
			return
		}
		// Behind a proxy the Host may be the proxy's inner one, so the Origin is compared with the
		// address that people type.
		if o := r.Header.Get("Origin"); o != "" && r.Method != http.MethodGet &&
			o != "http://"+r.Host && o != "https://"+r.Host {
			http.Error(w, "requests from other sites are not served", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		guarded.ServeHTTP(w, r)
	})
}

func handleFiles(mux *http.ServeMux) {
	for name, file := range files {
		mux.HandleFunc("GET /approvals/"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", file.kind)
			fmt.Fprint(w, file.text)
		})
	}
}

// ours reports whether a Host is the configured one or loopback: any other name may be one that
// a stranger's DNS points here.
func (a *Approvals) ours(host string) bool {
	if u, err := url.Parse(a.opt.URL); err == nil && u.Host != "" &&
		strings.EqualFold(u.Host, host) {
		return true
	}
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		return loopback(name)
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return loopback(host)
}

// Serve serves the page until ctx ends.
func (a *Approvals) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		_ = s.Shutdown(soon)
	})
	err := s.Serve(l)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

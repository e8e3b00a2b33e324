package oauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

const patience = 5 * time.Minute // for a person

// browse has a person agree at the provider, and returns what the browser brings back.
func (s *SignIn) browse(ctx context.Context, l net.Listener, to string) (
	*auth.AuthorizationResult, error) {
	u, err := url.Parse(to)
	if err != nil || !safe(u) {
		return nil, fmt.Errorf("the provider's page %q is neither https nor on this machine", to)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	back := make(chan url.Values, 1)
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
		Handler: returned(u.Query().Get("state"), back)}
	go func() { _ = server.Serve(l) }()
	defer func() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(soon) // the page is still to be sent
	}()
	fmt.Fprintf(s.o.Say, "caponier connect: sign in to %s in a browser of this machine:\n%s\n",
		s.o.URL, u)
	if s.o.Open != nil {
		if err := s.o.Open(u.String()); err != nil {
			fmt.Fprintf(s.o.Say, "caponier connect: no browser could be opened (%v)\n", err)
		}
	}
	select {
	case v := <-back:
		if v.Get("error") != "" {
			return nil, fmt.Errorf("the provider says %.60q: %.200q", v.Get("error"),
				v.Get("error_description"))
		}
		return &auth.AuthorizationResult{Code: v.Get("code"), State: v.Get("state"),
			Iss: v.Get("iss")}, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("nobody signed in within %s", patience)
		}
		return nil, context.Cause(ctx)
	}
}

// returned takes the first request that knows the state. Whoever else comes to the port changes
// nothing.
func returned(state string, back chan<- url.Values) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		v := r.URL.Query()
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if state == "" || len(v["state"]) != 1 || len(v["code"]) > 1 || len(v["iss"]) > 1 ||
			subtle.ConstantTimeCompare([]byte(v.Get("state")), []byte(state)) != 1 {
			http.Error(w, "This is no answer to the sign-in that waits here.",
				http.StatusBadRequest)
			return
		}
		select {
		case back <- v:
			fmt.Fprintln(w, "You can close this page and go back to your client.")
		default:
			http.Error(w, "This sign-in is over.", http.StatusConflict)
		}
	})
	return mux
}

// Browser opens a URL in the browser of this system. No shell reads the URL.
func Browser(to string) error {
	name, args := "xdg-open", []string{to}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", to}
	}
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

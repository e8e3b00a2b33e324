package http

import (
	"context"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// handler serves /mcp, /health and /ready, and what Options.Identity publishes about itself. Every
// route checks Host and Origin; /mcp requires a known caller.
func (s *Server) handler() http.Handler {
	routes := map[string]http.Handler{
		"/mcp":    s.private(s.versions()),
		"/health": s.noted("method", s.told.ServeHealth),
		"/ready":  s.noted("method", s.told.ServeReady),
	}
	if public, has := s.opts.Identity.(interface {
		Metadata() (paths []string, h http.Handler)
	}); has {
		paths, h := public.Metadata()
		for _, path := range paths {
			routes[path] = h
		}
	}
	return s.countRefusals(Guard(s.opts)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"Authorization", "Content-Type", versionHeader,
				sessionHeader, "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
				if len(r.Header[name]) > 1 {
					refuse(w, "header", http.StatusBadRequest, name+" is there twice")
					return
				}
			}
			// A compressed body would be another message to a reader that does not decompress it.
			if e := r.Header["Content-Encoding"]; len(e) > 1 ||
				len(e) == 1 && !strings.EqualFold(e[0], "identity") {
				refuse(w, "header", http.StatusUnsupportedMediaType,
					"send bodies as they are, without a Content-Encoding")
				return
			}
			if h := routes[r.URL.EscapedPath()]; h != nil {
				h.ServeHTTP(w, r)
				return
			}
			refuse(w, "path", http.StatusNotFound, "this server has /mcp, /health and /ready")
		})))
}

func (s *Server) noted(reason string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setReason(w, reason)
		h(w, r)
	})
}

// private lets only known callers through, and hands them to the SDK. The SDK takes callers only
// from a bearer token, so that it gets one that says nothing; the client's own goes no further.
func (s *Server) private(next http.Handler) http.Handler {
	verify := func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		who, ok := s.caller(ctx)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return who.TokenInfo(), nil
	}
	bound := auth.RequireBearerToken(verify,
		&auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	known := s.opts.Identity.Middleware(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			setReason(w, "protocol")
			if c := connOf(r.Context()); c != nil {
				c.setKnown(true)
			}
			r = r.Clone(context.WithValue(r.Context(), turnKey{}, &turn{}))
			r.Header.Set("Authorization", "Bearer -")
			r.Header.Del("Cookie")
			bound.ServeHTTP(w, r)
		}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setReason(w, "identity")
		known.ServeHTTP(w, r)
	})
}

// countRefusals counts refused requests. The reason protocol means that the SDK refused it.
func (s *Server) countRefusals(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &statusRecorder{ResponseWriter: w, reason: "protocol"}
		defer func() {
			if v.status >= 400 {
				s.meter.Refused(v.reason)
			}
		}()
		next.ServeHTTP(v, r)
	})
}

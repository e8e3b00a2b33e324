package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/front/mcp"
)

// Serve serves HTTP on the listener until ctx ends. Then it cancels running calls, waits for their
// answers and closes every stream, all within the StopTimeout of the mcp.Server. It refuses to
// serve more than loopback without authentication and TLS.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if addr, isTCP := l.Addr().(*net.TCPAddr); !isTCP || !addr.IP.IsLoopback() {
		switch {
		case !s.opts.Identity.Authenticates():
			return fmt.Errorf("serving HTTP on %s: more than loopback needs callers who prove who "+
				"they are: configure tokens or OIDC in [identity]", l.Addr())
		case s.opts.TLSCert == "" && !s.opts.BehindProxy:
			return fmt.Errorf("serving HTTP on %s: more than loopback needs TLS: set "+
				"front.tls_cert and front.tls_key, or front.behind_proxy if a proxy does it",
				l.Addr())
		}
	}
	l = newLimitListener(l, s.opts.MaxConns, s.unauthTimeout)
	if s.opts.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(s.opts.TLSCert, s.opts.TLSKey)
		if err != nil {
			return fmt.Errorf("front.tls_cert and front.tls_key: %w", err)
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert},
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	mcp.IgnoreBrokenPipe()
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug)}
	watchConns(web, func() { s.meter.Refused("request") })
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	err := s.hangUp(web)
	if !errors.Is(ctx.Err(), context.Canceled) {
		err = errors.Join(err, ctx.Err())
	}
	return err
}

// hangUp closes sessions before the server, whose Shutdown would wait for their open streams.
func (s *Server) hangUp(web *http.Server) error {
	s.told.Stopping()
	s.mcp.Stop()
	most := s.mcp.Options().StopTimeout
	end, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	var late error
	if !mcp.WaitFor(func() bool { return s.running.Load() == 0 }, most*9/10) {
		late = fmt.Errorf("stopping: %d calls did not end after they were cancelled",
			s.running.Load())
	}
	var closing sync.WaitGroup
	for session := range s.mcp.SDK().Sessions() {
		closing.Go(func() { _ = session.Close() })
	}
	if err := web.Shutdown(end); err != nil {
		return errors.Join(late, fmt.Errorf("stopping: %w", err), web.Close())
	}
	if late == nil { // otherwise they may wait for a call that never ends
		closing.Wait()
		s.ending.Wait()
	}
	return late
}

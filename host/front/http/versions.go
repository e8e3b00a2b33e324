package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/front/mcp"
)

// sessionVersions are the protocol versions with sessions, by name: a version that is neither here
// nor in mcp.StatelessVersions is refused, however new. A test holds both to the SDK's.
var sessionVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
)

// versionRouter reads a message's envelope and passes it to the handler of its protocol version.
type versionRouter struct {
	*Server
	sessions, stateless http.Handler
}

func (s *Server) versions() http.Handler {
	server := func(*http.Request) *sdk.Server { return s.mcp.SDK() }
	// The SDK would log the mistakes of clients, which the clients are told.
	quiet := slog.New(slog.DiscardHandler)
	most := s.mcp.Options().MaxBody
	// Guard checks the Host, and unlike the SDK's check it knows front.hosts.
	return &versionRouter{Server: s,
		sessions: sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
			SessionTimeout: s.opts.SessionIdle, DisableLocalhostProtection: true,
			MaxRequestBodyBytes: most, Logger: quiet}),
		stateless: sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
			Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true,
			MaxRequestBodyBytes: most, Logger: quiet}),
	}
}

func (v *versionRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := r.Header.Get(versionHeader)
	modern := slices.Contains(mcp.StatelessVersions(), version)
	who, ok := v.caller(r.Context())
	if !ok { // private has seen that there is one
		refuse(w, "identity", http.StatusUnauthorized, "the caller is not known")
		return
	}
	var env mcp.Envelope
	turn := turnOf(r.Context())
	defer turn.end()
	if r.Method == http.MethodPost {
		b := &budget{s: v.Server, who: who.ID}
		defer b.release()
		data, e, ok := v.message(w, r, who.ID, b)
		if !ok {
			return
		}
		env, r.Body = e, io.NopCloser(bytes.NewReader(data))
	}
	if !modern && version != "" && !slices.Contains(sessionVersions, version) {
		unsupported(w, env, version)
		return
	}
	w = patientWriter{w, http.NewResponseController(w), v.ioTimeout, turn}
	stream := r.Method == http.MethodGet || env.Method == "subscriptions/listen"
	begins := stream || env.Method == "initialize" || env.Method == "server/discover"
	if begins {
		turn.end() // what follows is decided, in turns of its own
	}
	if begins && !v.mcp.HasGrant(r.Context(), who) {
		refuse(w, "grant", http.StatusForbidden, "nothing on this server is granted to "+
			"this principal; ask the operator")
		return
	}
	if stream {
		if !v.streams.TryAcquire(who.ID) {
			w.Header().Set("Retry-After", "30")
			refuse(w, "sessions", http.StatusServiceUnavailable, fmt.Sprintf("half of the %d "+
				"connections are open streams, or you have half of these; close one",
				v.opts.MaxConns))
			return
		}
		defer v.streams.Release(who.ID)
		var stop func()
		r, stop = v.whileAdmitted(r)
		defer stop()
	}
	if env.Method == "tools/call" {
		v.running.Add(1)
		defer v.running.Add(-1)
	}
	v.route(w, r, who, env, modern)
}

func (v *versionRouter) route(w http.ResponseWriter, r *http.Request, who mcp.Caller,
	env mcp.Envelope, modern bool) {
	first := r.Method == http.MethodPost && r.Header.Get(sessionHeader) == ""
	switch {
	case modern:
		v.stateless.ServeHTTP(w, r)
	case first && env.Method == "initialize":
		v.begin(w, r, who)
	case first && env.Version == "" && env.Method != "ping" && env.Method != "server/discover":
		setReason(w, "session")
		reply(w, http.StatusBadRequest, env.ID, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
			Message: "there is no session: send initialize first, then its " + sessionHeader +
				" with every request"})
	default:
		v.sessions.ServeHTTP(w, r)
	}
}

func unsupported(w http.ResponseWriter, env mcp.Envelope, version string) {
	setReason(w, "version")
	data, err := json.Marshal(sdk.UnsupportedProtocolVersionData{
		Supported: sdk.SupportedProtocolVersions(), Requested: version})
	if err != nil { // it is made of strings
		panic(err)
	}
	reply(w, http.StatusBadRequest, env.ID, &jsonrpc.Error{
		Code: sdk.CodeUnsupportedProtocolVersion, Data: data,
		Message: "unsupported protocol version"})
}

// begin lets the SDK make a session if there is room for one, and counts it until it ends.
func (v *versionRouter) begin(w http.ResponseWriter, r *http.Request, who mcp.Caller) {
	count := v.Server.sessions
	if v.mcp.Stopped() || !count.TryAcquire(who.ID) {
		w.Header().Set("Retry-After", "30")
		refuse(w, "sessions", http.StatusServiceUnavailable, fmt.Sprintf("all %d sessions are "+
			"taken, or you have half of them; end one with DELETE; protocol version %s needs none",
			v.opts.MaxSessions, mcp.StatelessVersions()[0]))
		return
	}
	defer func() {
		for session := range v.mcp.SDK().Sessions() {
			if id := w.Header().Get(sessionHeader); id != "" && session.ID() == id {
				v.ending.Go(func() {
					defer count.Release(who.ID)
					_ = session.Wait() // how it ended does not matter
				})
				return
			}
		}
		count.Release(who.ID)
	}()
	v.sessions.ServeHTTP(w, r)
}

// patientWriter gives up on a client that does not read its answer. Streams may be silent for as
// long as they like.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	most    time.Duration
	turn    *turn // which ends before anything is written
}

func (p patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p patientWriter) Write(b []byte) (int, error) {
	p.turn.end()
	// Recorders of tests have no deadlines; every connection of ours has.
	_ = p.control.SetWriteDeadline(time.Now().Add(p.most))
	defer func() { _ = p.control.SetWriteDeadline(time.Time{}) }()
	return p.ResponseWriter.Write(b)
}

// FlushError sends what has been written.
func (p patientWriter) FlushError() error {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.most))
	defer func() { _ = p.control.SetWriteDeadline(time.Time{}) }()
	return p.control.Flush()
}

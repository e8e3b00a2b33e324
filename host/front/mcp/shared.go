package mcp

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// opener derives from a state the name of its round, and what seals that. A state is used once.
func opener(state string) (name string, seal cipher.AEAD, err error) {
	key, err := hkdf.Key(sha256.New, []byte(state), nil, "caponier round", 64)
	if err != nil {
		return "", nil, err
	}
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		return "", nil, err
	}
	seal, err = cipher.NewGCM(block)
	return hex.EncodeToString(key[32:]), seal, err
}

// kept keeps a round on this host, or where all hosts find it.
func (s *Server) kept(ctx context.Context, r round) (state string, err error) {
	if s.opts.Rounds == nil {
		return s.rounds.keep(r, time.Now()), nil
	}
	state = rand.Text()
	name, seal, err := opener(state)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	kept, err := s.opts.Rounds.KeepRound(ctx, name, r.Caller,
		seal.Seal(nil, make([]byte, seal.NonceSize()), data, []byte(name)), maxMine, maxRounds,
		askTime)
	switch {
	case err != nil:
		s.log.Error("a call cannot wait for an answer", "error", err)
		return "", errUnkept
	case !kept:
		return "", &jsonrpc.Error{Code: codeBusy, Message: "too many calls wait for answers; " +
			"make the call again in a moment"}
	}
	return state, nil
}

var errState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState was not " +
	"given to this call, was used already or has expired; make the call again without it"}

// errUnkept is for the client; the host's log says why.
var errUnkept = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "your user cannot be " +
	"asked, or what was answered cannot be read: the store of the hosts is away; make the call " +
	"again in a moment"}

// taken returns the round of a state, once.
func (s *Server) taken(ctx context.Context, state string) (r round, found bool, err error) {
	if s.opts.Rounds == nil {
		r, found = s.rounds.take(state, time.Now())
		return r, found, nil
	}
	name, seal, err := opener(state)
	if err != nil {
		return r, false, err
	}
	sealed, err := s.opts.Rounds.TakeRound(ctx, name)
	if err != nil {
		s.log.Error("what a user answered cannot be used", "error", err)
		return r, false, errUnkept
	}
	if sealed == nil {
		return r, false, nil
	}
	data, err := seal.Open(nil, make([]byte, seal.NonceSize()), sealed, []byte(name))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil { // somebody wrote to the store
		s.log.Error("a round of a call was changed in the store", "error", err)
		return round{}, false, errState
	}
	return r, true, nil
}

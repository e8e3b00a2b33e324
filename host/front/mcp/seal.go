package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

const (
	maxPending = 10_000 // states that wait for an answer at a time
	maxMine    = 100    // of them those of one caller
)

// sealed is what a call's state says. It leaves the host only encrypted, and counts once.
type sealed struct {
	Caller   string          `json:"caller"`
	Tool     string          `json:"tool"` // kind, name and digest of its plugin
	Args     string          `json:"args"` // digest
	Nonce    string          `json:"nonce"`
	Expires  time.Time       `json:"expires"`
	Round    int             `json:"round"` // that asked
	Asked    []string        `json:"asked"`
	Answers  map[string]said `json:"answers"`
	Approval string          `json:"approval"` // request that the user was asked to approve, or ""
}

// seals keeps the key of a process's states, and which of them still count.
type seals struct {
	once sync.Once
	aead cipher.AEAD

	mu   sync.Mutex         // guards the following
	open map[string][]nonce // by caller, the oldest first
	all  int
}

type nonce struct {
	id      string
	expires time.Time
}

func (s *seals) cipher() cipher.AEAD {
	s.once.Do(func() {
		var key [32]byte
		rand.Read(key[:])
		block, err := aes.NewCipher(key[:])
		if err == nil {
			s.aead, err = cipher.NewGCMWithRandomNonce(block)
		}
		if err != nil { // the key has the right size
			panic(err)
		}
	})
	return s.aead
}

// seal returns the state as the client gets it. At its limit, a caller's oldest state stops
// counting.
func (s *seals) seal(v sealed, now time.Time) (string, error) {
	v.Nonce, v.Expires = rand.Text(), now.Add(askTime)
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.open[v.Caller]; len(mine) >= maxMine || s.all >= maxPending && len(mine) > 0 {
		s.keep(v.Caller, mine[1:])
	}
	s.keep(v.Caller, append(s.open[v.Caller], nonce{v.Nonce, v.Expires}))
	return base64.RawURLEncoding.EncodeToString(s.cipher().Seal(nil, nil, plain, nil)), nil
}

// keep sets which states of a caller count.
func (s *seals) keep(caller string, mine []nonce) {
	s.all += len(mine) - len(s.open[caller])
	if len(mine) == 0 {
		delete(s.open, caller)
		return
	}
	if s.open == nil {
		s.open = map[string][]nonce{}
	}
	s.open[caller] = mine
}

// room reports whether the caller may be asked something. A caller with an open question may, in
// its place; running calls may go over the limit by one each.
func (s *seals) room(caller string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxPending {
		for of, theirs := range s.open {
			s.keep(of, slices.DeleteFunc(theirs,
				func(n nonce) bool { return now.After(n.expires) }))
		}
	}
	return s.all < maxPending || len(s.open[caller]) > 0
}

// unseal returns what seal sealed, once.
func (s *seals) unseal(state string, now time.Time) (v sealed, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(state)
	if err != nil {
		return v, false
	}
	plain, err := s.cipher().Open(nil, nil, raw, nil)
	if err != nil || json.Unmarshal(plain, &v) != nil {
		return v, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.open[v.Caller]
	at := slices.IndexFunc(mine, func(n nonce) bool { return n.id == v.Nonce })
	if at < 0 {
		return v, false
	}
	s.keep(v.Caller, slices.Concat(mine[:at], mine[at+1:]))
	return v, now.Before(v.Expires)
}

package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"sync"
	"time"
)

const (
	maxAsks    = 8 // questions of one call, over all its rounds
	askTime    = 10 * time.Minute
	maxRounds  = 10_000   // calls that wait for answers at a time
	maxMine    = 100      // of them those of one caller
	maxAnswers = 16 << 10 // bytes of what one call was answered
)

// round is what a call asked, until the same call comes again with the answers.
type round struct {
	Caller, Tool, Args string // the call: its caller, the plugin's digest too, a digest
	Number             int
	Asked              []string        // keys of the plugin's questions
	Answers            json.RawMessage // to those of earlier rounds, at most maxAnswers bytes
	Approval           string          // request that the user was asked to approve, or ""
	expires            time.Time
}

// Rounds keeps rounds for several hosts. It sees neither what they hold nor the states that open
// them: only the client of a call has the key.
type Rounds interface {
	// KeepRound keeps what is sealed under a name. Over most of one caller, or all of everybody,
	// the caller's oldest round goes, and without one of its own it is not kept.
	KeepRound(ctx context.Context, name, caller string, sealed []byte, most, all int64,
		ttl time.Duration) (kept bool, err error)
	// TakeRound returns what is sealed, once; nil when there is no such round.
	TakeRound(ctx context.Context, name string) ([]byte, error)
}

// rounds keeps the rounds that wait for answers, each by the state that the client repeats. A state
// is a secret of its caller and counts once.
type rounds struct {
	mu      sync.Mutex // guards waiting
	waiting map[string]round
}

// keep returns the state of a round. At its limit, a caller's oldest round stops waiting.
func (s *rounds) keep(r round, now time.Time) (state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[string]round{}
	}
	s.expire(now)
	if mine, oldest := s.of(r.Caller); mine >= maxMine || len(s.waiting) >= maxRounds {
		delete(s.waiting, oldest)
	}
	state, r.expires = rand.Text(), now.Add(askTime)
	s.waiting[state] = r
	return state
}

// of counts a caller's rounds and finds the oldest of them.
func (s *rounds) of(caller string) (mine int, oldest string) {
	for state, r := range s.waiting {
		if r.Caller != caller {
			continue
		}
		if mine++; mine == 1 || r.expires.Before(s.waiting[oldest].expires) {
			oldest = state
		}
	}
	return mine, oldest
}

// room reports whether the caller may be asked something. A caller with an open question may, in
// its place; running calls may exceed the limit by one each.
func (s *rounds) room(caller string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) < maxRounds {
		return true
	}
	s.expire(now)
	mine, _ := s.of(caller)
	return len(s.waiting) < maxRounds || mine > 0
}

func (s *rounds) expire(now time.Time) {
	maps.DeleteFunc(s.waiting, func(_ string, r round) bool { return now.After(r.expires) })
}

// take returns the round of a state, once.
func (s *rounds) take(state string, now time.Time) (r round, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found = s.waiting[state]
	delete(s.waiting, state)
	return r, found && now.Before(r.expires)
}

package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// pass is the only way to an effect: decide, journal the intent, refuse or act on the very question
// that was decided, journal the outcome. Each error before act is a refusal. An outcome that could
// not be journaled is noted in the call. Act may fill in its record: without an outcome there, the
// error is it.
func pass[T any](ctx context.Context, s *state, q terms.Question,
	act func(context.Context, terms.Question, terms.Decision, *terms.Record) (T, error),
) (result T, err error) {
	q.ID, q.Time = newID(s.Now()), s.Now()
	dec, giveBack := s.decide(ctx, &q)
	rec := terms.NewRecord(q, dec)
	if dec.NeedsApproval && s.Confirmer != nil || waits(dec) { // refused for now
		rec.Outcome = terms.Waits
	}
	// One sync covers every intent before it, the call's included. So only what can have an effect
	// waits for the disk.
	durable := dec.Allow && q.Kind == terms.KindOperation && dec.Tier != terms.Green &&
		!q.Call.Planning
	if err := s.Journal.Intent(ctx, rec, durable); err != nil && dec.Allow {
		dec = deny("journal.unavailable",
			"the journal cannot be written, so nothing may be done: "+err.Error())
	}
	if !dec.Allow {
		giveBack()
		return result, refused(rec, dec)
	}
	began := s.Now()
	rec.Outcome, rec.Input, rec.Masked = "", nil, false
	result, err = guarded(ctx, q, dec, &rec, act)
	outcome, code := terms.Ended(err)
	rec.Type, rec.Time, rec.DurationUS = "outcome", s.Now(), s.Now().Sub(began).Microseconds()
	rec.Outcome, rec.Code = cmp.Or(rec.Outcome, outcome), code
	if s.Journal.Outcome(context.WithoutCancel(ctx), rec) != nil {
		s.unwritten.Store(true)
	}
	return result, err
}

// guarded turns a panic of act into an unknown outcome, which is journaled.
func guarded[T any](ctx context.Context, q terms.Question, dec terms.Decision, rec *terms.Record,
	act func(context.Context, terms.Question, terms.Decision, *terms.Record) (T, error),
) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("the host panicked while acting", "panic", p, "stack", string(debug.Stack()))
			rec.Outcome = terms.Unknown
			err = &terms.OpError{Code: "panic", Outcome: terms.Unknown,
				Message: "the host panicked while doing this; what it did is unknown"}
		}
	}()
	return act(ctx, q, dec, rec)
}

// decide turns every way of not getting an answer into a refusal. Q becomes what was decided.
func (s *state) decide(ctx context.Context, q *terms.Question) (dec terms.Decision,
	giveBack func()) {
	giveBack = func() {}
	defer func() {
		if p := recover(); p != nil {
			dec = deny("policy.panic", fmt.Sprint("the policy engine panicked: ", p))
		}
	}()
	if t := q.Call.Tool; s.HiddenReason != nil && s.HiddenReason(t) != "" {
		why := t.Name + " is not offered by this host: it " + s.HiddenReason(t)
		return deny("withheld", why), giveBack
	}
	if s.Look != nil && q.Kind != terms.KindVisible {
		ctx = s.Look(ctx, *q)
	}
	if q.Kind == terms.KindCall {
		counts, back, err := s.Ledger.Take(ctx, q.Call)
		if err != nil {
			return deny("ledger.unavailable", "calls cannot be counted: "+err.Error()), giveBack
		}
		q.Facts.Counts, giveBack = counts, back
	}
	dec, err := s.answer(ctx, q)
	if len(dec.Guests) > 0 && s.Guests != nil && q.Kind != terms.KindVisible {
		q.Facts.Guests = s.Guests(ctx, *q, dec) // which takes time
		dec, err = s.answer(ctx, q)
	}
	switch {
	case err != nil:
		failed := deny("policy.error", "the policy engine did not answer: "+err.Error())
		failed.Input, failed.Masked = dec.Input, dec.Masked
		return failed, func() {} // a question that breaks the engine counts
	case dec.Allow && (dec.Tier < terms.Green || dec.Tier >= terms.Black ||
		len(dec.Failed)+len(dec.Denied) > 0):
		dec.Allow = false
		dec.Failed = append(dec.Failed, "policy.contradiction")
	case !dec.Allow && len(dec.Failed) == 0:
		dec.Failed = []string{"policy.undefined"}
	}
	return dec, giveBack
}

// answer has the question decided in a turn of its principal, as everything is then.
func (s *state) answer(ctx context.Context, q *terms.Question) (terms.Decision, error) {
	end, err := s.turn(ctx, q.Call)
	if err != nil {
		return terms.Decision{}, err
	}
	defer end()
	if q.Time, q.Mode = s.Now(), s.Mode(ctx); s.current != nil {
		if err := s.current(ctx); err != nil {
			return deny("revoked", "the call may not go on: "+err.Error()), nil
		}
	}
	return s.Decider.Decide(ctx, *q)
}

// turn waits until the host may compute for the call. The call is charged until end is called.
func (s *state) turn(ctx context.Context, c *terms.Call) (end func(), err error) {
	who := c.Principal.ID
	if s.Turns != nil {
		if err := s.Turns.Acquire(ctx, who); err != nil {
			return nil, err
		}
	}
	began := s.Now()
	return func() {
		s.spent.Add(int64(s.Now().Sub(began)))
		if s.Turns != nil {
			s.Turns.Release(who)
		}
	}, nil
}

// waits reports that only facts are missing, which can be looked up.
func waits(d terms.Decision) bool { return d.Units != nil || d.Lacks != nil }

func deny(id, msg string) terms.Decision {
	return terms.Decision{Failed: []string{id}, Denied: []terms.Reason{{ID: id, Msg: msg}}}
}

// newID returns 26 characters that sort by time: 48 bits of milliseconds, 80 random bits.
func newID(t time.Time) string {
	var b [16]byte
	rand.Read(b[:])
	ms := binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli()))
	copy(b[:6], ms[2:])
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// refused returns the error for a decision that was recorded as this.
func refused(rec terms.Record, dec terms.Decision) *terms.Refused {
	return &terms.Refused{DecisionID: rec.ID, Kind: rec.Kind, Op: rec.Op, Phase: rec.Phase,
		Failed: dec.Failed, Denied: dec.Denied, NeedsApproval: dec.NeedsApproval, Decision: dec}
}

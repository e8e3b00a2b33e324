package gate

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// maxRefused is how many calls of one principal may come to nothing in a minute, in one process.
// They take none of the rate, because nothing was used; each is journaled all the same, and a disk
// that is full of them would refuse everybody.
const maxRefused = 600

// throttle counts calls that came to nothing. The zero value is ready.
type throttle struct {
	mu sync.Mutex
	by map[string]*nothings
}

// nothings are those of one principal since a minute began.
type nothings struct {
	since, told time.Time
	n, untold   int
}

// note counts a call that came to nothing.
func (t *throttle) note(who string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]*nothings{}
	}
	for id, x := range t.by { // nobody's minute is kept longer than that
		if now.Sub(x.since) >= time.Minute {
			delete(t.by, id)
		}
	}
	if t.by[who] == nil {
		t.by[who] = &nothings{since: now}
	}
	t.by[who].n++
}

// full says how long a principal has to wait, 0 if not at all, and how many of its calls nobody was
// told of yet: once a second, not for each.
func (t *throttle) full(who string, now time.Time) (wait time.Duration, untold int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.by[who]
	if x == nil || x.n < maxRefused || now.Sub(x.since) >= time.Minute {
		return 0, 0
	}
	if x.untold++; now.Sub(x.told) >= time.Second {
		untold, x.untold, x.told = x.untold, 0, now
	}
	return x.since.Add(time.Minute).Sub(now), untold
}

// throttled refuses a principal whose calls came to nothing too often, before anything is read or
// decided.
func (d *Door) throttled(ctx context.Context, req Request) (a Answer, full bool) {
	now := d.Now()
	wait, untold := d.refusals.full(req.Principal.ID, now)
	if wait <= 0 {
		return a, false
	}
	dec := deny(
		"refusals",
		fmt.Sprintf(
			"%d calls of this principal came to nothing within a minute; it may call again in %d s",
			maxRefused,
			int(wait/time.Second)+1,
		),
	)
	rec := record(
		Question{
			ID:   newID(now),
			Time: now,
			Kind: KindCall,
			Call: &Call{
				ID:        newID(now),
				Source:    req.Source,
				Principal: req.Principal,
				Tool:      req.Tool,
			},
		},
		dec,
	)
	rec.Refused = untold
	a = Answer{
		CallID:  rec.CallID,
		Outcome: Refusal,
		Err: &Refused{
			DecisionID: rec.ID,
			Kind:       rec.Kind,
			Failed:     dec.Failed,
			Denied:     dec.Denied,
			Decision:   dec,
		},
	}
	if untold > 0 {
		a.JournalFailed = d.Journal.Intent(ctx, rec, false) != nil
	}
	return a, true
}

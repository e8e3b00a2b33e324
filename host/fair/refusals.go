package fair

import (
	"sync"
	"time"
)

// MaxRefusals is the number of calls of one principal that may come to nothing within a minute in
// one process. A call counts once more for each refusalTime that it took to refuse it, so that
// refusals cost at most a tenth of a processor.
const (
	MaxRefusals = 600
	refusalTime = 10 * time.Millisecond
)

// Refusals bounds the calls that come to nothing, by principal. Such calls take nothing from a rate
// limit, since nothing was used, but each is journaled: without a bound they would fill the disk.
// The zero value is ready. It is safe for concurrent use.
type Refusals struct {
	mu sync.Mutex
	by map[string]*refused
}

// refused counts one principal's refusals since its minute began.
type refused struct {
	since, recorded time.Time
	n, unrecorded   int
}

// Note counts a call that came to nothing after it was computed on for as long as cost.
func (r *Refusals) Note(principal string, now time.Time, cost time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]*refused{}
	}
	for id, x := range r.by {
		if now.Sub(x.since) >= time.Minute {
			delete(r.by, id)
		}
	}
	if r.by[principal] == nil {
		r.by[principal] = &refused{since: now}
	}
	r.by[principal].n += 1 + int(cost/refusalTime)
}

// Wait returns how long the principal has to wait before its next call, 0 for not at all. Then
// unrecorded is the number of its calls to be recorded now as one, which is above 0 at most once a
// second.
func (r *Refusals) Wait(principal string, now time.Time) (wait time.Duration, unrecorded int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.by[principal]
	if x == nil || x.n < MaxRefusals || now.Sub(x.since) >= time.Minute {
		return 0, 0
	}
	if x.unrecorded++; now.Sub(x.recorded) >= time.Second {
		unrecorded, x.unrecorded, x.recorded = x.unrecorded, 0, now
	}
	return x.since.Add(time.Minute).Sub(now), unrecorded
}

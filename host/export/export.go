// Package export sends the journal to where others keep it, at least once and in the order of each
// chain.
//
// It reads the journal's files, of all processes that share the directory, and so delays no call.
// Each sink has a cursor of its own on the disk, which moves on when the sink has taken a batch. A
// sink that fails is tried again, later and later, without end.
package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

const (
	batchBytes  = 1 << 20
	batchEvents = 500
	lookEvery   = 10 * time.Second // at a cursor that another process moves
	sayEvery    = 5 * time.Minute  // a failure that stays the same
)

// Exporter sends one journal to the sinks. Its methods are safe for concurrent use.
type Exporter struct {
	every time.Duration
	to    []*delivery
}

// State is how one sink does.
type State struct {
	Sink      string    `json:"sink"`
	Kind      string    `json:"kind"`
	Error     string    `json:"error,omitempty"` // of the last attempt
	Since     time.Time `json:"since,omitzero"`  // the first of the failures in a row
	Delivered time.Time `json:"delivered,omitzero"`
	Behind    int64     `json:"behind_bytes"` // of the journal
	Elsewhere bool      `json:"elsewhere"`    // another process of this state directory sends
	Events    int64     `json:"events"`       // that the sink took from this process
	Failures  int64     `json:"failures"`
	Gaps      int64     `json:"gaps"`    // parts of the journal that were gone before
	Omitted   int64     `json:"omitted"` // events sent without their input: the sink takes no more
	Dropped   int64     `json:"dropped"` // events that the receiver said it dropped
}

// New returns an exporter of the journal in dir, or nil if no sink is set.
func New(o Options, dir string) (*Exporter, error) {
	if err := o.Validate(); err != nil || len(o.Sinks) == 0 {
		return nil, err
	}
	x := &Exporter{every: cmp.Or(o.Every, time.Second)}
	for i, s := range o.Sinks {
		to, err := s.open(o)
		if err != nil {
			return nil, fmt.Errorf("export.sinks[%d].%w", i, err)
		}
		x.to = append(x.to, &delivery{journal: dir, instance: o.name(), sink: to,
			bytes: min(batchBytes, 8*s.limit()), limit: batchEvents,
			first: time.Second, longest: 5 * time.Minute,
			cursor: &keptCursor{path: filepath.Join(o.Dir, s.Name+".json")},
			state:  State{Sink: s.Name, Kind: s.Kind}})
	}
	return x, nil
}

// States returns how each sink does.
func (x *Exporter) States() (all []State) {
	if x == nil {
		return nil
	}
	for _, d := range x.to {
		all = append(all, d.now())
	}
	return all
}

// Run sends what is written until ctx ends.
func (x *Exporter) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, d := range x.to {
		running.Go(func() { d.run(ctx, x.every) })
	}
	running.Wait()
}

// Once sends to each sink what stands behind its cursor now. The error names the sinks that did not
// take all of it.
func (x *Exporter) Once(ctx context.Context) error {
	all := make([]error, len(x.to))
	var running sync.WaitGroup
	for i, d := range x.to {
		running.Go(func() {
			if err := d.round(ctx); err != nil {
				all[i] = fmt.Errorf("export to %s: %w", d.state.Sink, err)
			}
			d.cursor.close()
		})
	}
	running.Wait()
	return errors.Join(all...)
}

// delivery sends the journal to one sink. Apart from the state, one goroutine uses it.
type delivery struct {
	journal, instance string
	sink              sink
	cursor            *keptCursor
	bytes             int           // of encoded events in a batch; one more may stand over it
	limit             int           // of events in it; less after the sink refused more
	first, longest    time.Duration // between attempts
	said              time.Time     // of the last failure in the log

	mu    sync.Mutex // guards state
	state State
}

func (d *delivery) now() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

func (d *delivery) set(change func(*State)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.state)
}

func (d *delivery) run(ctx context.Context, every time.Duration) {
	defer d.cursor.close()
	failures := 0
	for {
		err := d.round(ctx)
		wait := every
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errElsewhere):
			failures, wait = 0, lookEvery
		case err != nil:
			wait = d.backoff(failures, err)
			failures++
		default:
			failures = 0
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// backoff returns how long to wait after so many failures: twice as long each time, up to a limit,
// less up to a half by chance, so that hosts do not come together. A sink that names a time is
// asked again no earlier than that.
func (d *delivery) backoff(failures int, err error) time.Duration {
	wait := min(d.first<<min(failures, 20), d.longest)
	wait -= rand.N(wait/2 + 1)
	if at := (later{}); errors.As(err, &at) {
		wait = min(max(wait, at.after), d.longest)
	}
	return wait
}

// round sends everything that stands behind the cursor.
func (d *delivery) round(ctx context.Context) error {
	err := d.cursor.open()
	if err == nil {
		err = d.deliver(ctx)
		left := d.cursor.Left(d.journal)
		d.set(func(s *State) { s.Behind = left })
	}
	d.report(ctx, err)
	return err
}

// report keeps the result of a round, and logs what is new about it.
func (d *delivery) report(ctx context.Context, err error) {
	before := d.now()
	if ctx.Err() != nil {
		return
	}
	elsewhere := errors.Is(err, errElsewhere)
	d.set(func(s *State) {
		if s.Elsewhere = elsewhere; err == nil || elsewhere {
			s.Error, s.Since = "", time.Time{}
			return
		}
		s.Failures++
		if s.Error == "" {
			s.Since = time.Now()
		}
		s.Error = err.Error()
	})
	switch {
	case err != nil && !elsewhere && (before.Error != err.Error() || time.Since(d.said) > sayEvery):
		d.said = time.Now()
		slog.Warn("the journal cannot be exported; it is kept, and sent later", "sink",
			before.Sink, "error", err)
	case err == nil && before.Error != "":
		slog.Info("the journal is exported again", "sink", before.Sink)
	}
}

// batch are events that are sent together, with where the cursor is behind them.
type batch struct {
	events  []event
	encoded [][]byte
	bytes   int
	steps   []audit.Step // the last one of each file, and those that tell of files that are away
	omitted int64
}

func (d *delivery) deliver(ctx context.Context) error {
	var b batch
	for step, err := range audit.Behind(d.journal, &d.cursor.Cursor) {
		if err != nil {
			return errors.Join(err, d.flush(ctx, &b))
		}
		if err := d.add(&b, step); err != nil {
			return err
		}
		if b.bytes >= d.bytes || len(b.events) >= d.limit {
			if err := d.flush(ctx, &b); err != nil {
				return err
			}
		}
	}
	return d.flush(ctx, &b)
}

// add puts a step into a batch.
func (d *delivery) add(b *batch, step audit.Step) error {
	if e, is := eventOf(step, d.instance, time.Now()); is {
		text, err := d.sink.encode(e)
		for small, ok := e.small(); ok && errors.Is(err, errTooLarge); small, ok = e.small() {
			e = small
			text, err = d.sink.encode(e)
		}
		if err != nil && !errors.Is(err, errTooLarge) { // else whatever the sink makes of it
			return err
		}
		if len(e.Omitted) > 0 && text != nil {
			b.omitted++
		}
		if e.Gap != "" {
			slog.Error("the journal lacks something that was not exported", "sink",
				d.state.Sink, "gap", e.Gap)
			d.set(func(s *State) { s.Gaps++ })
		}
		if text != nil {
			b.events, b.encoded = append(b.events, e), append(b.encoded, text)
			b.bytes += len(text)
		}
	}
	step.Entry.Record = nil // its input stands in the batch
	if n := len(b.steps); n > 0 && step.Follows(b.steps[n-1]) {
		b.steps[n-1] = step
	} else {
		b.steps = append(b.steps, step)
	}
	return nil
}

// flush sends a batch, and then moves the cursor behind it.
func (d *delivery) flush(ctx context.Context, b *batch) error {
	if err := ctx.Err(); err != nil || len(b.steps) == 0 {
		return err
	}
	dropped, err := d.send(ctx, b.events, b.encoded, &b.omitted)
	if err != nil {
		return err
	}
	for _, s := range b.steps {
		d.cursor.Take(s)
	}
	if err := d.cursor.save(); err != nil {
		return err
	}
	sent, omitted := int64(len(b.events)), b.omitted
	d.set(func(s *State) {
		s.Events, s.Omitted, s.Dropped = s.Events+sent, s.Omitted+omitted, s.Dropped+dropped
		if sent > 0 {
			s.Delivered = time.Now()
		}
	})
	if dropped > 0 {
		slog.Error("the receiver of the journal dropped events", "sink", d.state.Sink, "count",
			dropped)
	}
	d.limit = min(batchEvents, d.limit+d.limit/8+1)
	*b = batch{}
	return nil
}

// send sends events, in parts where the sink does not take all of them at once, and an event that
// is too large alone without its input, and then without the messages of its refusals.
func (d *delivery) send(ctx context.Context, events []event, encoded [][]byte, omitted *int64) (
	dropped int64, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	var refused *refusal
	switch err = d.sink.send(ctx, encoded); {
	case errors.As(err, &refused):
		return refused.events, nil
	case !errors.Is(err, errTooLarge):
		return 0, err
	case len(events) > 1:
		half := len(events) / 2
		d.limit = max(1, half)
		first, err := d.send(ctx, events[:half], encoded[:half], omitted)
		if err != nil {
			return first, err
		}
		second, err := d.send(ctx, events[half:], encoded[half:], omitted)
		return first + second, err
	}
	small, ok := events[0].small()
	if !ok {
		return 0, fmt.Errorf("%w, even of one event without its input", err)
	}
	if len(events[0].Omitted) == 0 {
		*omitted++
	}
	text, err := d.sink.encode(small)
	if err != nil && !errors.Is(err, errTooLarge) {
		return 0, err
	}
	return d.send(ctx, []event{small}, [][]byte{text}, omitted)
}

// Print writes the records of the journal in dir since a time, one on each line, as a sink of this
// kind gets them, with characters escaped that do not show.
func Print(w io.Writer, kind string, o Options, dir string, since time.Time) error {
	forms := map[string]sink{"jsonl": lines{}, "opa": opa{labels: labels(o)},
		"otlp": otlp{instance: o.name(), version: o.Version}, "otlp-traces": traces{}}
	to := forms[kind]
	if to == nil {
		return fmt.Errorf("%q is not jsonl, opa, otlp or otlp-traces", kind)
	}
	for step, err := range audit.Behind(dir, &audit.Cursor{}) {
		if err != nil {
			return err
		}
		e, is := eventOf(step, o.name(), time.Now())
		if !is || e.Time.Before(since) {
			continue
		}
		text, err := to.encode(e)
		if err == nil && text != nil {
			err = plaintext.JSON(w, json.RawMessage(text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

package audit

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

const pollEvery = 200 * time.Millisecond

// Member is the journal of a host, or a copy of one.
type Member struct {
	Host string // its name; "" for the only one
	Dir  string
}

// Union is the journals of several hosts. Nothing relates their chains to each other: what one
// yields is ordered by the clocks of the hosts.
type Union []Member

// told is a record of a host, or else what its candidate policy answers.
type told struct {
	Host string `json:"host,omitempty"`
	*terms.Record
	Shadow *Shadow `json:"shadow,omitempty"`
}

// call returns the id of the call that it is about.
func (t told) call() string {
	if t.Shadow != nil {
		return t.Shadow.CallID
	}
	return t.CallID
}

// ParseUnion reads journals as NAME=DIR, or as DIR, whose name is that of the folder, or of the
// folder above if it is called journal. Names must differ. One DIR alone has no name.
func ParseUnion(texts []string) (u Union, err error) {
	for _, text := range texts {
		host, dir, named := strings.Cut(text, "=")
		if !named {
			if dir = text; len(texts) > 1 {
				host = filepath.Base(strings.TrimSuffix(filepath.Clean(dir), "/journal"))
			} else {
				host = ""
			}
		}
		same := func(j Member) bool { return j.Host == host }
		switch {
		case dir == "" || named && host == "":
			return nil, fmt.Errorf("--journal %q: want NAME=DIR, or DIR", text)
		case slices.ContainsFunc(u, same):
			return nil, fmt.Errorf("--journal %s: another journal is named %s too; write NAME=DIR",
				text, host)
		}
		u = append(u, Member{host, dir})
	}
	return u, nil
}

func (u Union) String() string {
	var names []string
	for _, m := range u {
		names = append(names, m.Dir)
	}
	return "the journal in " + strings.Join(names, ", or in ")
}

// Records yields the entries of all journals, as [Records] does of one, each with its host.
func (u Union) Records() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { u.pass(u.readers(), yield) }
}

// Shadows returns what candidate policies answer to the questions of a call.
func (u Union) Shadows(call string) []Shadow {
	all := []Shadow{}
	for e := range u.Records() {
		if e.Shadow != nil && e.Shadow.CallID == call {
			all = append(all, *e.Shadow)
		}
	}
	return all
}

// follow yields what Records yields, and then what is written until ctx ends.
func (u Union) follow(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		readers, tick := u.readers(), time.NewTicker(pollEvery)
		defer tick.Stop()
		for u.pass(readers, yield) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (u Union) readers() (all []*reader) {
	for _, j := range u {
		all = append(all, newReader(j.Dir))
	}
	return all
}

// pass yields what there is to read now. It reports whether the caller wants more.
func (u Union) pass(readers []*reader, yield func(Entry, error) bool) (more bool) {
	var sources []iter.Seq2[Entry, error]
	more = true
	for i, r := range readers {
		sources = append(sources, func(yield func(Entry, error) bool) {
			more = r.pass(func(e Entry, err error) bool {
				e.Host = u[i].Host
				return yield(e, u[i].wrap(err))
			}) && more
		})
	}
	for e, err := range merged(sources, Entry.when) {
		if !yield(e, err) {
			return false
		}
	}
	return more
}

// wrap says whose journal an error is about.
func (j Member) wrap(err error) error {
	if err == nil || j.Host == "" {
		return err
	}
	return fmt.Errorf("%s: %w", j.Host, err)
}

// Calls yields the calls of all journals that a query wants, each with its host, in the order in
// which they ended; those without an outcome come last. The limit holds for all of them together.
func (u Union) Calls(q Query) iter.Seq2[Found, error] {
	var sources []iter.Seq2[Found, error]
	for _, j := range u {
		sources = append(sources, func(yield func(Found, error) bool) {
			for f, err := range callsIn(j.Dir, q) {
				f.Host = j.Host
				if !yield(f, j.wrap(err)) {
					return
				}
			}
		})
	}
	ended := func(f Found) time.Time {
		return f.Time.Add(time.Duration(f.DurationUS) * time.Microsecond)
	}
	all := merged(sources, ended)
	if q.Limit <= 0 || len(u) == 1 {
		return all
	}
	return func(yield func(Found, error) bool) {
		var newest []Found
		for f, err := range all {
			if err == nil {
				newest = append(newest, f)
			} else if !yield(f, err) {
				return
			}
		}
		for _, f := range newest[max(0, len(newest)-q.Limit):] {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// merged yields what ordered sources yield in one order. Of errors no time is known: they are
// yielded as soon as they are there.
func merged[T any](sources []iter.Seq2[T, error], when func(T) time.Time) iter.Seq2[T, error] {
	if len(sources) == 1 {
		return sources[0]
	}
	type head struct {
		value T
		next  func() (T, error, bool)
	}
	return func(yield func(T, error) bool) {
		var heads []*head
		// advance reports whether the source has a value, and whether the caller wants more.
		advance := func(h *head) (has, more bool) {
			for {
				v, err, ok := h.next()
				if ok && err != nil {
					if !yield(v, err) {
						return false, false
					}
					continue
				}
				h.value = v
				return ok, true
			}
		}
		for _, s := range sources {
			next, stop := iter.Pull2(s)
			defer stop()
			h := &head{next: next}
			switch has, more := advance(h); {
			case !more:
				return
			case has:
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			first := slices.MinFunc(heads, func(a, b *head) int {
				return when(a.value).Compare(when(b.value))
			})
			if !yield(first.value, nil) {
				return
			}
			switch has, more := advance(first); {
			case !more:
				return
			case !has:
				heads = slices.DeleteFunc(heads, func(h *head) bool { return h == first })
			}
		}
	}
}

// HostReport is the report of the journal of one host.
type HostReport struct {
	Host string    `json:"host,omitempty"`
	Last time.Time `json:"last"` // when its last record was made
	// no process writes it, its last file has no end, and others went on for longer than asked
	Stopped bool `json:"stopped,omitempty"`
	Report
}

// Verify checks each journal, as [Verify] does, against what others saw of it, by host. A journal
// without an orderly end has stopped if another one has records that are so much newer.
func (u Union) Verify(seen map[string][]Seen, after time.Duration) (all []HostReport, err error) {
	newest := time.Time{}
	for _, j := range u {
		r, err := Verify(j.Dir, seen[j.Host]...)
		if err != nil {
			return nil, j.wrap(err)
		}
		h := HostReport{Host: j.Host, Report: r}
		for _, f := range r.Files {
			if f.Last.After(h.Last) {
				h.Last, h.Stopped = f.Last, f.State == "killed"
			} else if f.State == "running" {
				h.Stopped = false
			}
		}
		if h.Last.After(newest) {
			newest = h.Last
		}
		all = append(all, h)
	}
	for i, h := range all {
		all[i].Stopped = h.Stopped && newest.Sub(h.Last) > after
	}
	slices.SortStableFunc(all, func(a, b HostReport) int { return cmp.Compare(a.Host, b.Host) })
	return all, nil
}

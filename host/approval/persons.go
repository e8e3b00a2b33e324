package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// After returns the request after an answer, with its new state. A yes of a person who gave one
// already changes nothing, and is an error; so is a second one at a terminal.
func (r Request) After(v Verdict) (Request, error) {
	switch {
	case v.By == "" || strings.EqualFold(v.By, r.Principal):
		return r, errors.New("the requester may not give it")
	case !r.takes(v):
		return r, fmt.Errorf("%w: it is %s already (by %s)", ErrAnswered, r.State, r.By)
	case !v.Approve:
		r.State, r.By, r.Channel, r.Note = Denied, v.By, v.Channel, v.Note
		return r, nil
	}
	for _, y := range r.Answers {
		if strings.EqualFold(y.By, v.By) {
			return r, fmt.Errorf("%w: another person, since %s said yes already", ErrLacks, y.By)
		}
		if y.Channel == Terminal && v.Channel == Terminal {
			return r, fmt.Errorf("%w: a yes on the page, since who is at a terminal can give any "+
				"name, and %s said yes there already", ErrLacks, y.By)
		}
	}
	r.Answers = append(slices.Clone(r.Answers), terms.Yes{By: v.By, Channel: v.Channel,
		Ticket: v.Ticket, Note: v.Note})
	if len(r.Answers) >= max(1, r.Need) {
		r.State, r.By, r.Channel, r.Note = Approved, v.By, v.Channel, v.Note
	}
	return r, nil
}

// Whole returns an error unless a request has what a Store needs to keep it.
func (r Request) Whole() error {
	if r.ID == "" || r.Key == "" || r.Principal == "" || r.TTL < time.Millisecond ||
		!json.Valid(r.Detail) {
		return errors.New("asking for an approval: it needs an id, a key, a principal, a time to " +
			"live and a detail in JSON")
	}
	return nil
}

// yes returns each yes of a request, also of one from before there was more than one.
func (r Request) yes() []terms.Yes {
	if len(r.Answers) == 0 && r.By != "" {
		return []terms.Yes{{By: r.By, Channel: r.Channel, Note: r.Note}}
	}
	return r.Answers
}

// takes reports whether the request takes an answer in its state: any while it waits, and a no that
// takes back a yes which was not used.
func (r Request) takes(v Verdict) bool {
	return r.State == Waiting || r.State == Approved && !v.Approve
}

// special reports whether a yes alone is not enough.
func special(n terms.Needs) bool { return n.Approvers > 1 || n.Ticket != "" || n.Reason }

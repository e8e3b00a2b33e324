package approval

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Decide records a person's answer to v.Request, in the journal first. A no also takes back a yes
// that was not used. The requester may not answer, nor may a name that is not listed, and a yes
// counts only on a channel and of a person that the site takes.
func (a *Approvals) Decide(ctx context.Context, v Verdict) (Request, error) {
	if err := a.known(v.By); err != nil {
		return Request{}, err
	}
	if len(v.Note) > 1000 {
		return Request{}, errors.New("the note is longer than 1000 bytes")
	}
	if v.Ticket != "" && !ticketForm.MatchString(v.Ticket) {
		return Request{}, errors.New("a ticket is 1 to 100 characters of ASCII without spaces")
	}
	list, err := a.store.Requests(ctx, v.Request, "")
	if err != nil {
		return Request{}, err
	}
	refuse := func(why string, args ...any) (Request, error) {
		return Request{}, fmt.Errorf("approval %s: "+why,
			append([]any{plaintext.Show(v.Request)}, args...)...)
	}
	if v.Request == "" || len(list) != 1 {
		return refuse("%w", ErrNone)
	}
	if strings.EqualFold(v.By, list[0].Principal) {
		return refuse("%s asks for it and may not give it", v.By)
	}
	d, err := list[0].Read()
	if err != nil {
		return Request{}, err
	}
	if v.Channel == Client || v.Approve && !slices.Contains(d.Channels, v.Channel) {
		return refuse("the site's policy takes no yes on %q, only on %q (approval.channels in its "+
			"data)", v.Channel, d.Channels)
	}
	if v.Approve && !named(v.By, d.Approvers) {
		return refuse("the site's policy takes no yes of %s (approval.approvers in its data)", v.By)
	}
	if err := meets(d.Needs, v); err != nil {
		return refuse("%w", err)
	}
	return a.record(ctx, list[0], v)
}

// No letter in a ticket turns or hides what stands beside it.
var ticketForm = regexp.MustCompile(`^[!-~]{1,100}$`)

// meets tells a person what a yes lacks. Policy decides on it again when it is used.
func meets(n terms.Needs, v Verdict) error {
	if !v.Approve {
		return nil
	}
	if n.Ticket != "" {
		re, err := regexp.Compile(`\A(?:` + n.Ticket + `)\z`)
		if err != nil {
			return fmt.Errorf("the site's pattern of tickets (approval.needs in its data): %w", err)
		}
		if !re.MatchString(v.Ticket) {
			return fmt.Errorf("%w: a ticket that matches %s", ErrLacks, n.Ticket)
		}
	}
	if n.Reason && strings.TrimSpace(v.Note) == "" {
		return fmt.Errorf("%w: a reason, as its note", ErrLacks)
	}
	return nil
}

// record journals an answer and then makes it count: an answer without a record must not count.
func (a *Approvals) record(ctx context.Context, r Request, v Verdict) (Request, error) {
	d, err := r.Read()
	if err != nil {
		return Request{}, err
	}
	if _, err := r.After(v); err != nil { // the store says so too, and that needs no record
		return a.store.Decide(ctx, r.ID, v)
	}
	if a.opt.Journal == nil {
		return Request{}, errors.New("there is no journal to write the answer to, so it cannot " +
			"count")
	}
	began := a.opt.Now()
	rec := terms.Record{Type: "intent", Time: began, ID: newID(), CallID: d.CallID,
		Kind: "approval", Op: "deny", Principal: r.Principal, Source: v.Channel, Plugin: d.Plugin,
		Tool: r.Tool, Tier: d.Tier, Revision: r.Revision, Plan: d.planDigest(),
		Verdict: &v}
	if v.Approve {
		rec.Op = "approve"
	}
	if err := a.opt.Journal.Intent(ctx, rec, true); err != nil {
		return Request{}, fmt.Errorf("approval %s: the answer cannot be written to the journal, "+
			"so it does not count: %w", r.ID, err)
	}
	now, err := a.store.Decide(ctx, r.ID, v)
	rec.Type, rec.Time, rec.Outcome = "outcome", a.opt.Now(), terms.Succeeded
	rec.DurationUS = rec.Time.Sub(began).Microseconds()
	if err != nil {
		rec.Outcome, rec.Code = terms.Failed, "not_taken"
	}
	// the journal takes no other record before this one
	if jerr := a.opt.Journal.Outcome(context.WithoutCancel(ctx), rec); jerr != nil {
		a.opt.Log.Error("how an approval was decided cannot be written to the journal",
			"id", r.ID, "error", jerr)
	}
	if err != nil {
		return Request{}, err
	}
	a.opt.Log.Info("approval decided", "id", now.ID, "state", now.State, "by", now.By,
		"channel", now.Channel, "principal", now.Principal, "tool", now.Tool)
	if now.State == Waiting { // for another person
		a.announce(now)
	}
	return now, nil
}

func answeredAlready(err error) bool {
	return errors.Is(err, ErrNone) || errors.Is(err, ErrAnswered)
}

// known returns an error if a name may not approve at all.
func (a *Approvals) known(name string) error {
	if !approverName.MatchString(name) {
		return fmt.Errorf("%q is not a name that can approve", name)
	}
	if len(a.opt.Approvers) > 0 && !slices.Contains(a.opt.Approvers, name) {
		return fmt.Errorf("%s may not approve: add the name to approvers in [approval]", name)
	}
	return nil
}

// Listed reports whether the configuration names who may approve. Otherwise only the account that
// the command runs as may.
func (a *Approvals) Listed() bool { return len(a.opt.Approvers) > 0 }

// mayUse holds a yes against the configuration and the policy in force when it is used: the right
// to give it may be gone by then.
func (a *Approvals) mayUse(r Request, site terms.Obligations) error {
	for _, y := range r.yes() {
		if err := a.counts(r, y, site); err != nil {
			return fmt.Errorf("the approval of %s does not count: %w", r.ID, err)
		}
	}
	return nil
}

func (a *Approvals) counts(r Request, y terms.Yes, site terms.Obligations) error {
	switch {
	case !slices.Contains(site.Channels, y.Channel):
		return fmt.Errorf("the site's policy takes no yes on %q", y.Channel)
	case strings.EqualFold(y.By, r.Principal) || y.By == "":
		return errors.New("the requester may not give it")
	case y.Channel == Client && y.By == "client of "+r.Principal:
		return nil // approverName matches no such name
	case !named(y.By, site.Approvers):
		return fmt.Errorf("the site's policy takes no yes of %s", y.By)
	}
	return a.known(y.By)
}

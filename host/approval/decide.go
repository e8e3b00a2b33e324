package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Decide records a person's answer to v.Request, in the journal first. Who asks may not answer,
// nobody may who is not listed, and none may on a channel that the site does not take.
func (a *Approvals) Decide(ctx context.Context, v Verdict) (Request, error) {
	if err := a.Known(v.By); err != nil {
		return Request{}, err
	}
	if len(v.Note) > 1000 {
		return Request{}, errors.New("the note is longer than 1000 bytes")
	}
	list, err := a.store.Requests(ctx, v.Request, "")
	if err != nil {
		return Request{}, err
	}
	if v.Request == "" || len(list) != 1 {
		return Request{}, fmt.Errorf("approval %s: %w", Visible(v.Request), ErrNone)
	}
	if strings.EqualFold(v.By, list[0].Principal) {
		return Request{}, fmt.Errorf(
			"approval %s: %s asks for it and may not give it",
			v.Request,
			v.By,
		)
	}
	d, err := list[0].Read()
	if err != nil {
		return Request{}, err
	}
	if v.Channel == Client || v.Approve && !slices.Contains(d.Channels, v.Channel) {
		return Request{}, fmt.Errorf(
			"approval %s: the site's policy takes no yes on %q, only on %q (approval.channels in its data)",
			v.Request,
			v.Channel,
			d.Channels,
		)
	}
	if v.Approve && !named(v.By, d.Approvers) {
		return Request{}, fmt.Errorf(
			"approval %s: the site's policy takes no yes of %s (approval.approvers in its data)",
			v.Request,
			v.By,
		)
	}
	return a.record(ctx, list[0], v)
}

// named says whether the site's list of approvers holds somebody.
func named(who string, approvers []string) bool {
	return slices.Contains(approvers, "*") || slices.Contains(approvers, who)
}

// record journals an answer, then lets it count: an answer that nobody could find later is none.
func (a *Approvals) record(ctx context.Context, r Request, v Verdict) (Request, error) {
	d, err := r.Read()
	if err != nil {
		return Request{}, err
	}
	if r.State != Waiting { // the store says it better, and needs no entry for it
		return a.store.Decide(ctx, r.ID, v)
	}
	if a.opt.Journal == nil {
		return Request{}, errors.New(
			"there is no journal to write the answer to, so it cannot count",
		)
	}
	began := a.opt.Now()
	rec := gate.Record{
		Type:      "intent",
		Time:      began,
		ID:        newID(),
		CallID:    d.CallID,
		Kind:      "approval",
		Op:        "deny",
		Principal: r.Principal,
		Source:    v.Channel,
		Plugin:    d.Plugin,
		Tool:      r.Tool,
		Tier:      d.Tier,
		Revision:  r.Revision,
		Verdict:   &v,
	}
	if v.Approve {
		rec.Op = "approve"
	}
	if err := a.opt.Journal.Intent(ctx, rec, true); err != nil {
		return Request{}, fmt.Errorf(
			"approval %s: the answer cannot be written to the journal, so it does not count: %w",
			r.ID,
			err,
		)
	}
	now, err := a.store.Decide(ctx, r.ID, v)
	rec.Type, rec.Time, rec.Outcome, rec.DurationUS = "outcome", a.opt.Now(), gate.Succeeded, a.opt.Now().
		Sub(began).
		Microseconds()
	if err != nil {
		rec.Outcome, rec.Code = gate.Failed, "not_taken"
	}
	// the journal takes nothing else before it has this
	if jerr := a.opt.Journal.Outcome(context.WithoutCancel(ctx), rec); jerr != nil {
		a.opt.Log.Error(
			"how an approval was decided cannot be written to the journal",
			"id",
			r.ID,
			"error",
			jerr,
		)
	}
	if err != nil {
		return Request{}, err
	}
	a.opt.Log.Info(
		"approval decided",
		"id",
		now.ID,
		"state",
		now.State,
		"by",
		now.By,
		"channel",
		now.Channel,
		"principal",
		now.Principal,
		"tool",
		now.Tool,
	)
	return now, nil
}

func answeredAlready(
	err error,
) bool {
	return errors.Is(err, ErrNone) || errors.Is(err, ErrAnswered)
}

// Known says whether somebody may approve at all.
func (a *Approvals) Known(name string) error {
	if !approverName.MatchString(name) {
		return fmt.Errorf("%q is not a name that can approve", name)
	}
	if len(a.opt.Approvers) > 0 && !slices.Contains(a.opt.Approvers, name) {
		return fmt.Errorf("%s may not approve: add the name to approvers in [approval]", name)
	}
	return nil
}

// Listed says whether the configuration names who may approve. Where it does not, only the account
// that the command runs as may.
func (a *Approvals) Listed() bool { return len(a.opt.Approvers) > 0 }

// mayUse holds a yes against the configuration and the policy in force when it is used: whoever
// lost the right meanwhile has no more say.
func (a *Approvals) mayUse(r Request, site gate.Obligations) error {
	switch {
	case !slices.Contains(site.Channels, r.Channel):
		return fmt.Errorf(
			"the approval of %s does not count: the site's policy takes no yes on %q",
			r.ID,
			r.Channel,
		)
	case strings.EqualFold(r.By, r.Principal) || r.By == "":
		return errors.New("who asks for an approval may not give it")
	case r.Channel == Client && r.By == "client of "+r.Principal:
		// no name that somebody could be given looks like this
		return nil
	case !named(r.By, site.Approvers):
		return fmt.Errorf(
			"the approval of %s does not count: the site's policy takes no yes of %s",
			r.ID,
			r.By,
		)
	}
	if err := a.Known(r.By); err != nil {
		return fmt.Errorf("the approval of %s does not count: %w", r.ID, err)
	}
	return nil
}

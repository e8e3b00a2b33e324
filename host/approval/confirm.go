package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Confirm waits for a person's answer about the call, at most Options.Wait. It returns a
// confirmation that stands for a yes, used up now; one whose state is expired; *terms.Waiting when
// there is no answer yet; or *terms.Refused.
func (a *Approvals) Confirm(
	ctx context.Context, c *terms.Call, d terms.Decision, progress func(message string),
) (none terms.Confirmation, _ error) {
	key, call, err := bindingKeys(c)
	detail, long := newDetail(c, d, call, a.opt.MaxDetail)
	if err = cmp.Or(err, long); err != nil {
		return none, refusal(c, d, "approval.detail", err.Error())
	}
	channels := d.Obligations.Channels
	user := c.User // nil when it is not to be asked
	needs := d.Obligations.Needs
	if !slices.Contains(channels, Client) || user != nil && !user.CanConfirm() || special(needs) {
		user = nil // whose word is that of one person without a name, and no ticket
	}
	if a.where("", channels, user != nil) == "" {
		return none, refusal(c, d, "approval.channels", fmt.Sprintf("no person can be asked to "+
			"approve it: the site takes a yes only on %q (approval.channels in its data), and "+
			"none of these is open for this call", channels))
	}
	if err := a.steady(ctx, c, d, key, call); err != nil {
		return none, err
	}
	patience := time.NewTimer(a.opt.Wait)
	defer patience.Stop()
	for {
		q := Request{ID: newID(), Key: key, Principal: c.Principal.ID, Tool: c.Tool.Name,
			TTL: a.opt.Expires, Revision: d.Revision, Detail: detail, Need: needs.Approvers}
		r, err := a.join(ctx, q, c, d)
		if err != nil {
			return none, err
		}
		switch r.State {
		case Waiting:
			again, confirmation, err := a.waits(ctx, r, c, d, user, patience.C, progress)
			if !again {
				return confirmation, err
			}
		case Approved:
			used, err := a.store.Consume(ctx, key)
			if errors.Is(err, ErrNone) { // another call took it, or it was taken back
				continue
			}
			if err != nil {
				return none, a.broken(c, d, err)
			}
			if err := a.mayUse(used, d.Obligations); err != nil {
				return none, refusal(c, d, "approval.approver", err.Error())
			}
			return terms.Confirmation{State: "approved", By: used.By, Channel: used.Channel,
				Answers: used.yes()}, nil
		case Denied:
			msg := r.By + " said no to this call at " + r.Decided.UTC().Format("15:04:05 MST")
			if r.Note != "" {
				msg += ": " + plaintext.Show(r.Note)
			}
			return none, refusal(c, d, "approval.denied", msg)
		default:
			return none, a.broken(c, d, fmt.Errorf("request %s has the state %q", r.ID, r.State))
		}
	}
}

// maxPlans is how many plans of one call may be asked about while none of them has been used.
const maxPlans = 3

// steady refuses a call that came to another plan each time that it was made. No yes could ever fit
// it, and its requests would keep the principal's other calls from being asked about.
func (a *Approvals) steady(
	ctx context.Context, c *terms.Call, d terms.Decision, key, call string,
) error {
	all, err := a.store.Requests(ctx, "", "")
	if err != nil {
		return a.broken(c, d, err)
	}
	others, until := 0, time.Time{}
	for _, r := range all {
		detail, err := r.Read()
		switch {
		case err != nil || detail.CallKey != call || r.State == Used:
		case r.Key == key:
			return nil
		default:
			if others++; until.IsZero() || r.Expires.Before(until) {
				until = r.Expires
			}
		}
	}
	if others < maxPlans {
		return nil
	}
	return refusal(c, d, "approval.unsteady", fmt.Sprintf("this call came to %d other plans "+
		"already, and now to another one: what the tool does depends on the time or on chance, or "+
		"what it reads keeps changing, so that no yes can fit. Nobody is asked about it again "+
		"before %s; `caponier plan` shows what it would do", others,
		until.UTC().Format("15:04:05 MST")))
}

// join finds the request for a call, or makes q and announces it.
func (a *Approvals) join(
	ctx context.Context, q Request, c *terms.Call, d terms.Decision,
) (Request, error) {
	r, err := a.store.Join(ctx, q, a.opt.PerPrincipal)
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("waiting for an approval: %w", context.Cause(ctx))
	case errors.Is(err, ErrFull):
		return r, refusal(c, d, "approval.flood", fmt.Sprintf("%d of your requests wait for a "+
			"person already, which is the most; have one decided, or wait until one expires",
			a.opt.PerPrincipal))
	case err != nil:
		return r, a.broken(c, d, err)
	}
	if r.ID == q.ID {
		a.announce(r)
	}
	return r, nil
}

// waits returns when the request no longer waits: then it must be read again. Otherwise it returns
// what Confirm does.
func (a *Approvals) waits(
	ctx context.Context, r Request, c *terms.Call, d terms.Decision, user terms.User,
	patience <-chan time.Time, progress func(message string),
) (again bool, _ terms.Confirmation, _ error) {
	var none terms.Confirmation
	asked, answered, err := a.askUser(ctx, r, user)
	if err != nil {
		return false, none, a.broken(c, d, err)
	}
	if answered {
		return true, none, nil
	}
	waiting := &terms.Waiting{ApprovalID: r.ID, Expires: r.Expires,
		Where: a.where(r.ID, d.Obligations.Channels, asked)}
	if asked {
		return false, none, waiting
	}
	progress(waiting.Error())
	expired, err := a.await(ctx, patience, r.ID)
	switch {
	case errors.Is(err, errPatience):
		return false, none, waiting
	case ctx.Err() != nil:
		return false, none, fmt.Errorf("waiting for approval %s: %w", r.ID, context.Cause(ctx))
	case err != nil:
		return false, none, a.broken(c, d, err)
	case expired:
		return false, terms.Confirmation{State: "expired"}, nil
	}
	return true, none, nil
}

var errPatience = errors.New("there is no answer yet")

// await returns when the request no longer waits, and reports whether it has expired.
func (a *Approvals) await(
	ctx context.Context, patience <-chan time.Time, id string,
) (expired bool, err error) {
	look := time.NewTicker(a.opt.Poll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-patience:
			return false, errPatience
		case <-look.C:
		}
		list, err := a.store.Requests(ctx, id, "")
		if err != nil {
			return false, err
		}
		if len(list) == 0 {
			return true, nil
		}
		if list[0].State != Waiting {
			return false, nil
		}
	}
}

// maxQuestion is the longest request, in bytes, that is put to the user of a client. A longer one
// must be looked at elsewhere, because it must not be cut.
const maxQuestion = 3000

// askUser puts the request to the user of the client where the site takes that user's word, and
// records what was answered: then the request no longer waits.
func (a *Approvals) askUser(
	ctx context.Context, r Request, user terms.User,
) (asked, answered bool, err error) {
	if user == nil {
		return false, false, nil
	}
	message, err := r.question()
	if err != nil || len(message) > maxQuestion {
		return false, false, err
	}
	v := Verdict{Request: r.ID, By: "client of " + r.Principal, Channel: Client}
	switch user.Confirm(r.ID, message) {
	case "approve":
		v.Approve = true
	case "deny":
	case "asked":
		return true, false, nil
	default:
		return false, false, nil
	}
	if _, err = a.record(ctx, r, v); answeredAlready(err) { // meanwhile, or it has expired
		err = nil
	}
	return false, err == nil, err
}

func refusal(c *terms.Call, d terms.Decision, id, msg string) *terms.Refused {
	return &terms.Refused{DecisionID: c.ID, Kind: "call", Failed: []string{id},
		Denied: []terms.Reason{{ID: id, Msg: msg}}, Decision: d}
}

// broken logs what went wrong; the client learns only that no person could be asked.
func (a *Approvals) broken(c *terms.Call, d terms.Decision, err error) error {
	a.opt.Log.Error("no person could be asked to approve a call", "call", c.ID, "tool", c.Tool.Name,
		"error", err)
	return refusal(c, d, "approval.unavailable",
		"no person can be asked to approve it: the host cannot keep the request, and its log "+
			"says why")
}

// where tells the caller how a person can decide, or "" when none can. It gives no authority.
func (a *Approvals) where(id string, channels []string, asked bool) string {
	var ways []string
	if asked {
		ways = append(ways, "your client is asked to ask its user")
	}
	if slices.Contains(channels, Terminal) {
		ways = append(ways, "a person can decide with: caponier approvals show "+id)
	}
	if base := a.opt.base(); base != "" && slices.Contains(channels, Web) {
		ways = append(ways, "a person can decide at "+base+"/approvals/"+id)
	}
	return strings.Join(ways, ", or ")
}

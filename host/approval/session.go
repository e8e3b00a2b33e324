package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	linkLife = 5 * time.Minute // how long a sign-in link may be used, once
	linkMark = "link-"         // begins the ids of links, which the store keeps beside sessions
)

var errSignedOut = errors.New("it is not valid, or no longer")

// sessionID names the session, or the link, of a secret. It does not tell the secret.
func sessionID(mark, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return mark + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:16]
}

// Link makes a one-time link that signs name in on the page. The link is the authority of that
// person: show it to the operator alone.
func (a *Approvals) Link(ctx context.Context, name string) (string, time.Time, error) {
	base := a.opt.base()
	if base == "" {
		return "", time.Time{}, errors.New("there is no page: set listen in [approval], such as " +
			"127.0.0.1:8443")
	}
	secret, until, err := a.begin(ctx, linkMark, name, linkLife)
	return base + "/approvals/login?ticket=" + secret, until, err
}

// begin keeps a session, or a link, of a name and returns its secret.
func (a *Approvals) begin(
	ctx context.Context, mark, name string, life time.Duration,
) (secret string, until time.Time, err error) {
	if err := a.signsIn(name); err != nil {
		return "", until, err
	}
	now := a.opt.Now()
	secret, until = rand.Text(), now.Add(life)
	err = a.store.Begin(ctx, Session{ID: sessionID(mark, secret), Name: name, Created: now,
		Expires: until})
	return secret, until, err
}

// find returns the session, or the link, of a secret. Its name must still be one that may approve.
func (a *Approvals) find(ctx context.Context, mark, secret string) (s Session, err error) {
	list, err := a.store.Sessions(ctx, sessionID(mark, secret))
	if err != nil {
		return s, err
	}
	if len(list) != 1 {
		return s, errSignedOut
	}
	return list[0], a.signsIn(list[0].Name)
}

// signIn uses up a link and begins a session.
func (a *Approvals) signIn(
	ctx context.Context, link string,
) (session string, until time.Time, err error) {
	l, err := a.find(ctx, linkMark, link)
	if err != nil {
		return "", until, err
	}
	if n, err := a.store.EndSessions(ctx, l.ID, ""); err != nil || n != 1 {
		return "", until, errors.Join(errSignedOut, err) // another request used it
	}
	return a.begin(ctx, "", l.Name, a.opt.Session)
}

// signsIn returns an error if a name may not use the page: names must be listed, because here no
// operating system vouches for them.
func (a *Approvals) signsIn(name string) error {
	if !a.Listed() {
		return errors.New("approvers in [approval] is empty: name who may approve on the page")
	}
	return a.known(name)
}

// formToken belongs to one session and one form: a page elsewhere cannot know it, and a form for
// one request cannot be sent for another.
func formToken(session, path string) string {
	return base64.RawURLEncoding.EncodeToString(mac([]byte(session), path))
}

// Sessions lists who is signed in on the page, newest first.
func (a *Approvals) Sessions(ctx context.Context) ([]Session, error) {
	all, err := a.store.Sessions(ctx, "")
	return slices.DeleteFunc(all,
		func(s Session) bool { return strings.Contains(s.ID, "-") }), err // no sign-in yet
}

// EndSessions ends the sessions with that id and that name, and counts them; an empty id or name is
// any. They end at their next request. Links that were not used end with the sessions of their
// name.
func (a *Approvals) EndSessions(ctx context.Context, id, name string) (int64, error) {
	return a.store.EndSessions(ctx, id, name)
}

package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
)

// linkLife is how long a sign-in link may be used, once.
const linkLife = 5 * time.Minute

// ticket is what a link or a session states, and a signature proves.
type ticket struct {
	Name    string `json:"n"`
	Expires int64  `json:"e"` // Unix milliseconds
	Nonce   string `json:"r"` // of a session: its id
}

// Kinds of tickets. The kind is signed too, so that neither passes for the other.
const (
	linkTicket    = "link"
	sessionTicket = "session"
	formTicket    = "form"
)

var errTicket = errors.New("it is not valid, or no longer")

// Link makes a one-time link that signs name in on the page. The link is the authority of that
// person: show it to the operator alone.
func (a *Approvals) Link(name string) (string, time.Time, error) {
	base := a.opt.base()
	if base == "" {
		return "", time.Time{}, errors.New("there is no page: set listen in [approval], such as " +
			"127.0.0.1:8443")
	}
	if err := a.signsIn(name); err != nil {
		return "", time.Time{}, err
	}
	until := a.opt.Now().Add(linkLife)
	t, err := a.seal(linkTicket, ticket{name, until.UnixMilli(), rand.Text()})
	if err != nil {
		return "", time.Time{}, err
	}
	return base + "/approvals/login?ticket=" + t, until, nil
}

// signsIn returns an error if a name may not use the page: names must be listed, because here no
// operating system vouches for them.
func (a *Approvals) signsIn(name string) error {
	if !a.Listed() {
		return errors.New("approvers in [approval] is empty: name who may approve on the page")
	}
	return a.known(name)
}

func (a *Approvals) seal(kind string, t ticket) (string, error) {
	key, err := a.key()
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	body := base64.RawURLEncoding.EncodeToString(payload)
	return body + "." + base64.RawURLEncoding.EncodeToString(mac(key, kind, body)), nil
}

// open checks a ticket: its signature, its kind, its time, and that its name may still approve.
func (a *Approvals) open(kind, sealed string) (t ticket, err error) {
	key, err := a.key()
	if err != nil {
		return t, err
	}
	body, sum, _ := strings.Cut(sealed, ".")
	given, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	if err != nil || len(sealed) > 1024 || !hmac.Equal(given, mac(key, kind, body)) {
		return t, errTicket
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return t, errTicket
	}
	if err := json.Unmarshal(payload, &t); err != nil || a.opt.Now().UnixMilli() >= t.Expires {
		return ticket{}, errTicket
	}
	return t, a.signsIn(t.Name)
}

// signIn uses up a link and begins a session.
func (a *Approvals) signIn(
	ctx context.Context, link string,
) (session string, until time.Time, err error) {
	t, err := a.open(linkTicket, link)
	if err != nil {
		return "", until, err
	}
	if err := a.store.Burn(ctx, "approval-link:"+t.Nonce, time.UnixMilli(t.Expires)); err != nil {
		return "", until, err
	}
	now := a.opt.Now()
	until = now.Add(a.opt.Session)
	s := Session{ID: newID(), Name: t.Name, Created: now, Expires: until}
	if err := a.store.Begin(ctx, s); err != nil {
		return "", until, err
	}
	session, err = a.seal(sessionTicket, ticket{s.Name, until.UnixMilli(), s.ID})
	return session, until, err
}

// session checks the ticket of a session that has not been ended.
func (a *Approvals) session(ctx context.Context, sealed string) (ticket, error) {
	t, err := a.open(sessionTicket, sealed)
	if err != nil || t.Nonce == "" {
		return ticket{}, errors.Join(errTicket, err)
	}
	list, err := a.store.Sessions(ctx, t.Nonce)
	if err != nil || len(list) != 1 || list[0].Name != t.Name {
		return ticket{}, errors.Join(errTicket, err)
	}
	return t, nil
}

// formToken belongs to one session and one form: a page elsewhere cannot know it, and a form for
// one request cannot be sent for another.
func (a *Approvals) formToken(session, path string) (string, error) {
	key, err := a.key()
	return base64.RawURLEncoding.EncodeToString(mac(key, formTicket, session, path)), err
}

// key reads the signing key, and makes it when there is none. Deleting the file ends every link and
// session.
func (a *Approvals) key() ([]byte, error) {
	file := a.opt.KeyFile
	if file == "" {
		return nil, errors.New("the page has no key file")
	}
	key, err := trusted.Read(file, 64)
	if errors.Is(err, os.ErrNotExist) {
		key, err = makeKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key of the approvals page: %w", err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 || len(key) != 32 || bytes.Count(key, key[:1]) == len(key) {
		return nil, fmt.Errorf("%s is not a key that only this user can read: delete it, and a "+
			"new one is made", file)
	}
	return key, nil
}

// makeKey links a complete file into place, so that of two processes one wins and both read the
// same.
func makeKey(file string) ([]byte, error) {
	key := make([]byte, 32)
	rand.Read(key)
	f, err := os.CreateTemp(filepath.Dir(file), ".key-*") // 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return os.ReadFile(file)
}

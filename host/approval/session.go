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
)

// linkLife is how long a sign-in link may be used, once.
const linkLife = 5 * time.Minute

// ticket is what a link or a session says, and a signature proves.
type ticket struct {
	Name    string `json:"n"`
	Expires int64  `json:"e"` // Unix milliseconds
	Nonce   string `json:"r"`
}

// Kinds of tickets. The kind is signed too, so that neither passes for the other.
const (
	linkTicket    = "link"
	sessionTicket = "session"
	formTicket    = "form"
)

var errTicket = errors.New("it is not valid, or no longer")

// Link makes a one-time link that signs somebody in on the page. Whoever holds it is that person:
// show it to the operator alone.
func (a *Approvals) Link(name string) (string, time.Time, error) {
	base := a.opt.base()
	if base == "" {
		return "", time.Time{}, errors.New(
			"there is no page: set listen in [approval], such as 127.0.0.1:8443",
		)
	}
	if err := a.signsIn(name); err != nil {
		return "", time.Time{}, err
	}
	until := a.opt.Now().Add(linkLife)
	t, err := a.seal(linkTicket, name, until)
	if err != nil {
		return "", time.Time{}, err
	}
	return base + "/approvals/login?ticket=" + t, until, nil
}

// signsIn says whether somebody may use the page: names must be listed, for here no operating
// system vouches for them.
func (a *Approvals) signsIn(name string) error {
	if !a.Listed() {
		return errors.New("approvers in [approval] is empty: name who may approve on the page")
	}
	return a.Known(name)
}

func (a *Approvals) seal(kind, name string, until time.Time) (string, error) {
	key, err := a.key()
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(ticket{name, until.UnixMilli(), rand.Text()})
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

// signIn uses up a link and makes a session.
func (a *Approvals) signIn(
	ctx context.Context,
	link string,
) (session string, until time.Time, err error) {
	t, err := a.open(linkTicket, link)
	if err != nil {
		return "", until, err
	}
	if err := a.store.Burn(ctx, "approval-link:"+t.Nonce, time.UnixMilli(t.Expires)); err != nil {
		return "", until, err
	}
	until = a.opt.Now().Add(a.opt.Session)
	session, err = a.seal(sessionTicket, t.Name, until)
	return session, until, err
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
	key, err := os.ReadFile(file)
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
		return nil, fmt.Errorf(
			"%s is not a key that only this user can read: delete it, and a new one is made",
			file,
		)
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

package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caponier-mcp/caponier/host/trusted"
)

// Token is the record of a bearer token; the token itself is shown once, when it is made.
type Token struct {
	Prefix    string    `json:"prefix"` // its first characters, which name it
	SHA256    string    `json:"sha256"` // hex, of the whole token
	Principal string    `json:"principal"`
	Roles     []string  `json:"roles,omitempty"` // of the principal's, only these; none for all
	CIDR      string    `json:"cidr,omitempty"`  // callers must be in it
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	Revoked   time.Time `json:"revoked,omitzero"`
	LastUsed  time.Time `json:"last_used,omitzero"` // to the minute; filled in by List
}

// Kept stores tokens for several hosts.
type Kept interface {
	// KeptTokens returns the token with this prefix, or none; with "" all.
	KeptTokens(ctx context.Context, prefix string) ([]Token, error)
	KeepToken(ctx context.Context, k Token) error // adds a token, or changes it
	UseToken(ctx context.Context, prefix string, at time.Time) error
}

// Tokens is a file of tokens, mode 0600. Several processes may use it at once.
type Tokens struct {
	Path string
	Kept Kept             // instead of the file; nil for the file
	Now  func() time.Time // nil for time.Now

	mu   sync.Mutex // guards the following
	info os.FileInfo
	all  []Token // as the file with that info holds them
}

const (
	tokenMark    = "cap_"
	prefixLength = len(tokenMark) + 8
	maxTokenFile = 4 << 20
	// maxLifetime is the longest that a token may be valid.
	maxLifetime = 366 * 24 * time.Hour
)

var errUnreadable = errors.New("the tokens cannot be read")

func (t *Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// New makes a token for a principal and returns it as the caller will send it; it cannot be shown
// again. Cidr may be "".
func (t *Tokens) New(
	principal string, roles []string, cidr string, lifetime time.Duration,
) (secret string, kept Token, err error) {
	if lifetime <= 0 || lifetime > maxLifetime {
		return "", kept, fmt.Errorf("the lifetime of a token must be over 0 and at most %s, not %s",
			maxLifetime, lifetime)
	}
	if cidr != "" {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return "", kept, fmt.Errorf("cidr %q: %w; write it as 192.0.2.0/24", cidr, err)
		}
		cidr = p.Masked().String()
	}
	if !idForm.MatchString(principal) || principal == reserved {
		return "", kept, fmt.Errorf("%q is not the id of a principal", principal)
	}
	var raw [32]byte
	rand.Read(raw[:])
	secret = tokenMark + base64.RawURLEncoding.EncodeToString(raw[:])
	now := t.now().UTC().Truncate(time.Second)
	kept = Token{Prefix: secret[:prefixLength], SHA256: digest(secret), Principal: principal,
		Roles: roles, CIDR: cidr, Created: now, Expires: now.Add(lifetime)}
	err = t.change(kept.Prefix, func(all []Token) ([]Token, error) {
		if find(all, kept.Prefix) >= 0 {
			return nil, fmt.Errorf("token %s exists; try again", kept.Prefix)
		}
		return append(all, kept), nil
	})
	if err != nil {
		return "", Token{}, err
	}
	return secret, kept, nil
}

// Revoke ends the token with this prefix: every process that reads the file refuses it at the next
// request, and at the next operation of a running call.
func (t *Tokens) Revoke(prefix string) error {
	return t.change(prefix, func(all []Token) ([]Token, error) {
		i := find(all, prefix)
		if i < 0 {
			return nil, fmt.Errorf("no token starts with %q; token list shows them", prefix)
		}
		if all[i].Revoked.IsZero() {
			all[i].Revoked = t.now().UTC().Truncate(time.Second)
		}
		return all, nil
	})
}

// find returns the index of the token with this prefix, or -1.
func find(all []Token, prefix string) int {
	return slices.IndexFunc(all, func(tok Token) bool { return tok.Prefix == prefix })
}

// List reads the file. A file that does not exist holds no tokens; one that others may read or
// change, or that is not whole, is an error.
func (t *Tokens) List() ([]Token, error) {
	all, err := t.read(context.Background(), "")
	if err != nil || t.Kept != nil {
		return all, err
	}
	for i := range all {
		if info, err := os.Stat(t.usedPath(all[i].Prefix)); err == nil {
			all[i].LastUsed = info.ModTime().UTC().Truncate(time.Minute)
		}
	}
	return all, nil
}

// read returns the tokens, or at least the one with the prefix if that is not "".
func (t *Tokens) read(ctx context.Context, prefix string) ([]Token, error) {
	if t.Kept != nil {
		all, err := t.Kept.KeptTokens(ctx, prefix)
		if err != nil {
			err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return all, err
	}
	info, err := os.Stat(t.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = errors.Join(trusted.Regular(t.Path, info), trusted.Dir(filepath.Dir(t.Path)))
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s can be read by others (mode %04o): chmod 600 %s",
			t.Path, info.Mode().Perm(), t.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// every change makes a new file
	if t.info != nil && os.SameFile(info, t.info) && info.ModTime().Equal(t.info.ModTime()) &&
		info.Size() == t.info.Size() {
		return slices.Clone(t.all), nil
	}
	data, err := trusted.Read(t.Path, maxTokenFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	all, err := parseTokens(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnreadable, t.Path, err)
	}
	t.info, t.all = info, all
	return slices.Clone(all), nil
}

// parseTokens reads one JSON object a line, strictly.
func parseTokens(data []byte) ([]Token, error) {
	var all []Token
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if line == "" && len(data) <= 1 {
			continue
		}
		tok, err := ParseToken(line)
		if err == nil && seen[tok.Prefix] {
			err = fmt.Errorf("prefix %s is there twice", tok.Prefix)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		seen[tok.Prefix] = true
		all = append(all, tok)
	}
	return all, nil
}

// ParseToken reads one token as JSON, strictly.
func ParseToken(line string) (tok Token, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&tok); err != nil {
		return tok, err
	}
	_, cidrErr := netip.ParsePrefix(tok.CIDR)
	sum, sumErr := hex.DecodeString(tok.SHA256)
	switch {
	case d.More():
		return tok, errors.New("more than one value")
	case len(tok.Prefix) != prefixLength || !strings.HasPrefix(tok.Prefix, tokenMark) ||
		strings.ContainsAny(tok.Prefix, "/."):
		return tok, errors.New("prefix is not one of a token")
	case sumErr != nil || len(sum) != sha256.Size:
		return tok, errors.New("sha256 is not a digest")
	case !idForm.MatchString(tok.Principal) || tok.Expires.IsZero():
		return tok, errors.New("principal or expires is missing")
	case tok.CIDR != "" && cidrErr != nil:
		return tok, fmt.Errorf("cidr: %w", cidrErr)
	}
	return tok, nil
}

func writeTokens(all []Token) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	for _, tok := range all {
		tok.LastUsed = time.Time{}
		if err := e.Encode(tok); err != nil {
			return nil, err
		}
	}
	return []byte(b.String()), nil
}

// keep changes the stored token with the prefix.
func (t *Tokens) keep(prefix string, edit func([]Token) ([]Token, error)) error {
	all, err := t.read(context.Background(), prefix)
	if err == nil {
		all, err = edit(all)
	}
	if err != nil {
		return err
	}
	return t.Kept.KeepToken(context.Background(), all[find(all, prefix)])
}

// change rewrites the file under a lock, as a new file that replaces the old one.
func (t *Tokens) change(prefix string, edit func([]Token) ([]Token, error)) error {
	if t.Kept != nil {
		return t.keep(prefix, edit)
	}
	if err := os.MkdirAll(filepath.Dir(t.Path), 0o700); err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	lock, err := os.OpenFile(t.Path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	all, err := t.read(context.Background(), "")
	if err == nil {
		all, err = edit(all)
	}
	if err != nil {
		return err
	}
	data, err := writeTokens(all)
	if err != nil {
		return err
	}
	if err := trusted.Replace(t.Path, data, 0o600, filepath.Dir(t.Path)); err != nil {
		return fmt.Errorf("writing %s: %w", t.Path, err)
	}
	return nil
}

func digest(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret))) }

// check finds a token and reports whether it is valid at a time. The error has the reason, for the
// log. Callers must not see the reason.
func (t *Tokens) check(
	ctx context.Context, secret string, from netip.Addr, at time.Time,
) (Token, error) {
	if len(secret) != len(tokenMark)+43 || !strings.HasPrefix(secret, tokenMark) {
		return Token{}, errors.New("not a bearer token of this host")
	}
	all, err := t.read(ctx, secret[:prefixLength])
	if err != nil {
		return Token{}, err
	}
	i := find(all, secret[:prefixLength])
	if i < 0 {
		return Token{}, errors.New("unknown token")
	}
	tok := all[i]
	switch {
	case subtle.ConstantTimeCompare([]byte(digest(secret)), []byte(tok.SHA256)) != 1:
		return Token{}, fmt.Errorf("token %s: wrong secret", tok.Prefix)
	case !tok.Revoked.IsZero():
		return Token{}, fmt.Errorf("token %s of %s was revoked", tok.Prefix, tok.Principal)
	case !at.Before(tok.Expires):
		return Token{}, fmt.Errorf("token %s of %s expired", tok.Prefix, tok.Principal)
	case tok.CIDR != "" && !netip.MustParsePrefix(tok.CIDR).Contains(from):
		return Token{}, fmt.Errorf("token %s of %s is not for callers at %s",
			tok.Prefix, tok.Principal, from)
	}
	return tok, t.used(tok, t.now())
}

func (t *Tokens) usedPath(prefix string) string { return filepath.Join(t.Path+".used", prefix) }

// used records a use in a file's modification time, at most once a minute.
func (t *Tokens) used(tok Token, now time.Time) error {
	prefix := tok.Prefix
	if t.Kept != nil {
		if now.Sub(tok.LastUsed) < time.Minute {
			return nil
		}
		if err := t.Kept.UseToken(context.Background(), prefix, now); err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		return nil
	}
	path := t.usedPath(prefix)
	if info, err := os.Stat(path); err == nil && now.Sub(info.ModTime()) < time.Minute {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%w: noting the use of token %s: %w", errUnreadable, prefix, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w: noting the use of token %s: %w", errUnreadable, prefix, err)
	}
	return errors.Join(f.Close(), os.Chtimes(path, now, now))
}

// reserved is the id of the host itself. No caller can have it.
const reserved = "host"

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,63}$`)

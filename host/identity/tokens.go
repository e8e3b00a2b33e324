package identity

import (
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Token is what is kept of a bearer token; the token itself is shown once, when it is made.
type Token struct {
	Prefix    string `json:"prefix"` // its first characters, by which it is found and named
	SHA256    string `json:"sha256"` // hex, of the whole token
	Principal string `json:"principal"`
	// of the principal's, only these; none for all of them
	Roles    []string  `json:"roles,omitempty"`
	CIDR     string    `json:"cidr,omitempty"` // callers must be in it
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	Revoked  time.Time `json:"revoked,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"` // to the minute; filled in by List
}

// Tokens is a file of tokens, mode 0600. Several processes may use it at once.
type Tokens struct {
	Path string
	Now  func() time.Time // nil for time.Now

	mu   sync.Mutex // guards the following
	info os.FileInfo
	all  []Token // as the file with that info holds them
}

const (
	tokenMark    = "cap_"
	prefixLength = len(tokenMark) + 8
	maxTokenFile = 4 << 20
	// MaxLifetime is the longest that a token may be valid.
	MaxLifetime = 366 * 24 * time.Hour
)

var errUnreadable = errors.New("the token file cannot be read")

func (t *Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// New makes a token for a principal and gives it back as the caller will send it, which nobody can
// do again. Cidr may be "".
func (t *Tokens) New(
	principal string,
	roles []string,
	cidr string,
	lifetime time.Duration,
) (secret string, kept Token, err error) {
	if lifetime <= 0 || lifetime > MaxLifetime {
		return "", kept, fmt.Errorf(
			"a token's lifetime must be over 0 and at most %s, not %s",
			MaxLifetime,
			lifetime,
		)
	}
	if cidr != "" {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return "", kept, fmt.Errorf("cidr %q: %w; write it as 192.0.2.0/24", cidr, err)
		}
		cidr = p.Masked().String()
	}
	if !idForm.MatchString(principal) {
		return "", kept, fmt.Errorf("%q is not a principal's id", principal)
	}
	var raw [32]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", kept, fmt.Errorf("making a token: %w", err)
	}
	secret = tokenMark + base64.RawURLEncoding.EncodeToString(raw[:])
	now := t.now().UTC().Truncate(time.Second)
	kept = Token{
		Prefix:    secret[:prefixLength],
		SHA256:    digest(secret),
		Principal: principal,
		Roles:     roles,
		CIDR:      cidr,
		Created:   now,
		Expires:   now.Add(lifetime),
	}
	err = t.change(func(all []Token) ([]Token, error) {
		for _, other := range all {
			if other.Prefix == kept.Prefix {
				return nil, fmt.Errorf("token %s exists; try again", kept.Prefix)
			}
		}
		return append(all, kept), nil
	})
	if err != nil {
		return "", Token{}, err
	}
	return secret, kept, nil
}

// Revoke makes the token with this prefix worthless at the next request of every process that reads
// the file.
func (t *Tokens) Revoke(prefix string) error {
	return t.change(func(all []Token) ([]Token, error) {
		for i := range all {
			if all[i].Prefix == prefix {
				if all[i].Revoked.IsZero() {
					all[i].Revoked = t.now().UTC().Truncate(time.Second)
				}
				return all, nil
			}
		}
		return nil, fmt.Errorf("no token starts with %q; token list shows them", prefix)
	})
}

// List reads the file. A file that does not exist holds no tokens; one that others may read, or
// that is not whole, is an error.
func (t *Tokens) List() ([]Token, error) {
	all, err := t.read()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if info, err := os.Stat(t.usedPath(all[i].Prefix)); err == nil {
			all[i].LastUsed = info.ModTime().UTC().Truncate(time.Minute)
		}
	}
	return all, nil
}

func (t *Tokens) read() ([]Token, error) {
	info, err := os.Stat(t.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 ||
		info.Size() > maxTokenFile {
		return nil, fmt.Errorf(
			"%w: %s must be a file of mode 0600 and at most %d bytes (chmod 600 %s)",
			errUnreadable,
			t.Path,
			maxTokenFile,
			t.Path,
		)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// every change makes a new file
	if t.info != nil && os.SameFile(info, t.info) && info.ModTime().Equal(t.info.ModTime()) &&
		info.Size() == t.info.Size() {
		return slices.Clone(t.all), nil
	}
	data, err := os.ReadFile(t.Path)
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
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var tok Token
		if err := d.Decode(&tok); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		_, cidrErr := netip.ParsePrefix(tok.CIDR)
		sum, sumErr := hex.DecodeString(tok.SHA256)
		switch {
		case d.More():
			return nil, fmt.Errorf("line %d: more than one value", i+1)
		case len(tok.Prefix) != prefixLength || !strings.HasPrefix(tok.Prefix, tokenMark) || strings.ContainsAny(tok.Prefix, "/."):
			return nil, fmt.Errorf("line %d: prefix is not a token's", i+1)
		case seen[tok.Prefix]:
			return nil, fmt.Errorf("line %d: prefix %s is there twice", i+1, tok.Prefix)
		case sumErr != nil || len(sum) != sha256.Size:
			return nil, fmt.Errorf("line %d: sha256 is not a digest", i+1)
		case !idForm.MatchString(tok.Principal) || tok.Expires.IsZero():
			return nil, fmt.Errorf("line %d: principal or expires is missing", i+1)
		case tok.CIDR != "" && cidrErr != nil:
			return nil, fmt.Errorf("line %d: cidr: %w", i+1, cidrErr)
		}
		seen[tok.Prefix] = true
		all = append(all, tok)
	}
	return all, nil
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

// change rewrites the file under a lock, as a new file that takes the old one's place.
func (t *Tokens) change(edit func([]Token) ([]Token, error)) error {
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
	all, err := t.read()
	if err != nil {
		return err
	}
	if all, err = edit(all); err != nil {
		return err
	}
	data, err := writeTokens(all)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(t.Path), ".tokens-") // mode 0600
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), t.Path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", t.Path, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// check finds a token. The error says what was wrong, for the log; callers hear only that something
// was.
func (t *Tokens) check(secret string, from netip.Addr) (Token, error) {
	if len(secret) != len(tokenMark)+43 || !strings.HasPrefix(secret, tokenMark) {
		return Token{}, errors.New("not one of our bearer tokens")
	}
	all, err := t.read()
	if err != nil {
		return Token{}, err
	}
	for _, tok := range all {
		if tok.Prefix != secret[:prefixLength] {
			continue
		}
		now := t.now()
		switch {
		case subtle.ConstantTimeCompare([]byte(digest(secret)), []byte(tok.SHA256)) != 1:
			return Token{}, fmt.Errorf("token %s: wrong secret", tok.Prefix)
		case !tok.Revoked.IsZero():
			return Token{}, fmt.Errorf("token %s of %s was revoked", tok.Prefix, tok.Principal)
		case !now.Before(tok.Expires):
			return Token{}, fmt.Errorf("token %s of %s expired", tok.Prefix, tok.Principal)
		case tok.CIDR != "" && !netip.MustParsePrefix(tok.CIDR).Contains(from):
			return Token{}, fmt.Errorf(
				"token %s of %s is not for callers at %s",
				tok.Prefix,
				tok.Principal,
				from,
			)
		}
		return tok, t.used(tok.Prefix, now)
	}
	return Token{}, errors.New("unknown token")
}

func (t *Tokens) usedPath(prefix string) string { return filepath.Join(t.Path+".used", prefix) }

// used notes a use in a file's time, at most once a minute, so that a use costs no rewriting of the
// token file.
func (t *Tokens) used(prefix string, now time.Time) error {
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

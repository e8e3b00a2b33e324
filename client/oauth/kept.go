package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/oauth2"
)

// kept is what a file holds of a sign-in.
type kept struct {
	URL          string           `json:"url"`
	ClientID     string           `json:"client_id"`
	ClientSecret string           `json:"client_secret,omitempty"` // of a client that registered
	TokenURL     string           `json:"token_url"`
	AuthStyle    oauth2.AuthStyle `json:"auth_style"`
	Scopes       []string         `json:"scopes"`
	Token        *oauth2.Token    `json:"token"`
}

func keep(url string, c *oauth2.Config, t *oauth2.Token) *kept {
	return &kept{URL: url, ClientID: c.ClientID, ClientSecret: c.ClientSecret,
		TokenURL: c.Endpoint.TokenURL, AuthStyle: c.Endpoint.AuthStyle, Scopes: c.Scopes, Token: t}
}

func (k *kept) config() *oauth2.Config {
	return &oauth2.Config{ClientID: k.ClientID, ClientSecret: k.ClientSecret, Scopes: k.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: k.TokenURL, AuthStyle: k.AuthStyle}}
}

// file is the path of what is kept for one host, for its owner alone.
type file string

// fileOf returns the file of a host in dir, or in the user's own directory.
func fileOf(dir, url string) (file, error) {
	if dir == "" {
		own, err := os.UserConfigDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(own, "caponier", "signed-in")
	}
	sum := sha256.Sum256([]byte(url))
	return file(filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")), nil
}

// own returns an error that says how to mend a file or directory that others may use.
func own(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() != mode.Type():
		return fmt.Errorf("%s is a link, or no file or directory as it should be: remove it", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may use %s: chmod %#o %[1]s", path, mode.Perm())
	}
	return nil
}

func (f file) dir() string { return filepath.Dir(string(f)) }

// read returns nil where nothing is kept.
func (f file) read() (*kept, error) {
	err := own(f.dir(), fs.ModeDir|0o700)
	if err == nil {
		err = own(string(f), 0o600)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	k := &kept{}
	if err := json.Unmarshal(data, k); err != nil || k.Token == nil || k.Token.AccessToken == "" {
		return nil, fmt.Errorf("%s holds no sign-in (%v): remove it with --logout", f, err)
	}
	return k, nil
}

// write replaces the file as a whole.
func (f file) write(k *kept) error {
	if err := os.MkdirAll(f.dir(), 0o700); err != nil {
		return err
	}
	if err := own(f.dir(), fs.ModeDir|0o700); err != nil {
		return err
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	t, err := os.CreateTemp(f.dir(), ".new-*") // 0600
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	if err = errors.Join(err, t.Sync(), t.Close()); err == nil {
		err = os.Rename(t.Name(), string(f))
	}
	if err != nil {
		_ = os.Remove(t.Name())
	}
	return err
}

func (f file) remove() (was bool, err error) {
	if err = os.Remove(string(f)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

const (
	lockTime = 40 * time.Second // longer than a refresh takes
	lockTry  = 50 * time.Millisecond
)

// lock keeps other processes from a refresh until free is called. One whose process ended in
// between counts for 40 seconds.
func (f file) lock(ctx context.Context) (free func(), err error) {
	name := string(f) + ".lock"
	for {
		l, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			return func() { _ = os.Remove(name) }, l.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > lockTime {
			_ = os.Remove(name)
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockTry):
		}
	}
}

package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Key is a public key, with the time in which it counts. The zero Key verifies nothing.
type Key struct {
	ssh           ssh.PublicKey
	ecdsa         *ecdsa.PublicKey
	after, before time.Time // zero: without bound
}

// Signer is a key with the name of its holder.
type Signer struct {
	Name string
	Key  Key
}

// String names the key for people.
func (k Key) String() string {
	if k.ssh != nil {
		return ssh.FingerprintSHA256(k.ssh)
	}
	if k.ecdsa == nil {
		return "no key"
	}
	der, err := x509.MarshalPKIXPublicKey(k.ecdsa)
	if err != nil {
		return "no key"
	}
	return "ECDSA " + Digest(der)
}

func (k Key) valid(now time.Time) error {
	const form = "2006-01-02 15:04 MST"
	if !k.after.IsZero() && now.Before(k.after) {
		return fmt.Errorf("the key %s is valid from %s on", k, k.after.Format(form))
	}
	if now.After(k.before) && !k.before.IsZero() {
		return fmt.Errorf("the key %s has expired at %s", k, k.before.Format(form))
	}
	return nil
}

// ParseKey reads an ECDSA P-256 public key in PEM, as cosign writes it, or an OpenSSH public key
// with the options of an allowed_signers file before it.
func ParseKey(text string) (k Key, err error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-----BEGIN ") {
		return parsePEM(text)
	}
	if text == "" || strings.ContainsAny(text, "\r\n") || text[0] == '#' {
		return k, errors.New("want one line of an OpenSSH public key, or a PEM block")
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return k, fmt.Errorf("reading the OpenSSH public key: %w", err)
	}
	if _, certificate := key.(*ssh.Certificate); certificate {
		return k, errors.New("is an OpenSSH certificate, want a public key")
	}
	k.ssh = key
	for _, o := range options {
		if err := k.option(o); err != nil {
			return Key{}, err
		}
	}
	return k, nil
}

func parsePEM(text string) (k Key, err error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return k, errors.New("want one PEM block, PUBLIC KEY")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return k, err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return k, errors.New("want an ECDSA key on P-256, as cosign generate-key-pair makes it")
	}
	return Key{ecdsa: key}, nil
}

// option reads an option of ssh-keygen(1), ALLOWED SIGNERS. One that is not known refuses the key,
// because it could narrow it.
func (k *Key) option(o string) (err error) {
	name, value, _ := strings.Cut(o, "=")
	value = strings.Trim(value, `"`)
	switch strings.ToLower(name) {
	case "valid-after":
		k.after, err = parseTime(value)
	case "valid-before":
		k.before, err = parseTime(value)
	case "namespaces":
		if !slices.Contains(strings.Split(value, ","), Namespace) {
			err = fmt.Errorf("the key is for %q, want %s among them", value, Namespace)
		}
	default:
		err = fmt.Errorf("option %q is not read here (namespaces, valid-after, valid-before)", o)
	}
	return err
}

// parseTime reads YYYYMMDD[HHMM[SS]][Z], local time without Z.
func parseTime(text string) (time.Time, error) {
	digits, in := text, time.Local
	if d, utc := strings.CutSuffix(text, "Z"); utc {
		digits, in = d, time.UTC
	}
	form := map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}[len(digits)]
	t, err := time.ParseInLocation(form, digits, in)
	if form == "" || err != nil {
		return t, fmt.Errorf("%q is not a time: want YYYYMMDD[HHMM[SS]][Z]", text)
	}
	return t, nil
}

// ParseSigners reads an allowed_signers file of OpenSSH: each line has names, options and a key.
func ParseSigners(data []byte) (all []Signer, err error) {
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.IndexAny(line, " \t")
		if at < 0 || line[0] == '"' {
			return nil, fmt.Errorf("line %d: want NAME [OPTIONS] KEY, and no quoted name", i+1)
		}
		k, err := ParseKey(line[at:])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all = append(all, Signer{line[:at], k})
	}
	return all, nil
}

// Package signature reports whether a key has signed a plugin's module.
//
// It reads OpenSSH signatures (ssh-keygen -Y sign -n caponier-plugin) and Sigstore bundles of a key
// pair (cosign sign-blob --key … --bundle). It needs no network. It ignores the transparency logs
// and timestamps in a bundle.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hiddeco/sshsig"
)

// Verify returns nil when sig is a signature of the module by the key, and the key is valid now.
func Verify(sig, module []byte, k Key, now time.Time) error {
	if len(sig) > Max {
		return fmt.Errorf("the signature has %d bytes, at most %d are read", len(sig), Max)
	}
	switch {
	case bytes.HasPrefix(sig, []byte("-----BEGIN "+sshsig.PEMType)):
		if k.ssh == nil {
			return errors.New("the signature is OpenSSH's, the key is not")
		}
		if err := verifySSH(sig, module, k); err != nil {
			return err
		}
	case bytes.HasPrefix(bytes.TrimSpace(sig), []byte("{")):
		if k.ecdsa == nil {
			return errors.New("the signature is a Sigstore bundle, the key is OpenSSH's")
		}
		if err := verifyBundle(sig, module, k); err != nil {
			return err
		}
	default:
		return errors.New("is neither an OpenSSH signature nor a Sigstore bundle")
	}
	return k.valid(now)
}

func verifySSH(sig, module []byte, k Key) error {
	s, err := sshsig.Unarmor(sig)
	if err != nil {
		return fmt.Errorf("reading the OpenSSH signature: %w", err)
	}
	if s.Namespace != Namespace {
		return fmt.Errorf("the signature is for %q, want %q: sign with ssh-keygen -Y sign -n %s",
			s.Namespace, Namespace, Namespace)
	}
	err = sshsig.Verify(bytes.NewReader(module), s, k.ssh, s.HashAlgorithm, Namespace)
	switch {
	case errors.Is(err, sshsig.ErrPublicKeyMismatch):
		return fmt.Errorf("%w: it is signed with another key than %s", errOtherKey, k)
	case err != nil:
		return fmt.Errorf("the signature is not of this module (%s): %w", Digest(module), err)
	}
	return nil
}

// By returns the names of the signers that signed the module. It returns an error if none did.
func By(signers []Signer, sig, module []byte, now time.Time) (names []string, err error) {
	if len(signers) == 0 {
		return nil, errors.New("no signer is listed")
	}
	var wrong error
	for _, s := range signers {
		switch err := Verify(sig, module, s.Key, now); {
		case err == nil && !slices.Contains(names, s.Name):
			names = append(names, s.Name)
		case err != nil && (wrong == nil || errors.Is(wrong, errOtherKey)):
			wrong = fmt.Errorf("%s: %w", s.Name, err) // more telling than another key
		}
	}
	if len(names) > 0 {
		return names, nil
	}
	return nil, wrong
}

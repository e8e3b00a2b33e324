package conn

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// kinds of host keys, see [KeyKinds]. A fingerprint does not say of which kind its key is, and a
// host that has several shows the one that it is asked for.
var kinds = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// KeyKinds are the kinds of host keys that a pin may be of, best first, each with the algorithms
// that prove it.
func KeyKinds() [][]string { return slices.Clone(kinds) }

// otherKind is a host that has no key of the kind that was asked for, or one that is not pinned:
// the pin may be of another kind.
type otherKind struct {
	pin string
	error
}

func (o *otherKind) Unwrap() error { return o.error }

// hostKeys decides whether a host is the one that it should be. A pin wins over known_hosts;
// unknown and changed keys are always refused.
type hostKeys struct {
	pin   string
	kind  int // of key that the pin may be of, an index of kinds
	files []string
	db    *knownhosts.HostKeyDB // nil where there is a pin
}

// newHostKeys reads the files at each dial, so that what an operator repairs counts at once. kind
// is that of the key which a pin may be of.
func newHostKeys(l Login, kind int, files []string) (*hostKeys, error) {
	if l.HostKey != "" {
		return &hostKeys{pin: l.HostKey, kind: kind}, nil
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return nil, effect.Failed("host_key", "reading known_hosts: %v; correct the file or "+
			"remote.known_hosts", err)
	}
	return &hostKeys{files: files, db: db}, nil
}

// modern are the algorithms that may prove a host, best first.
var modern = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01,
	ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// algorithms are those that the host may use to prove itself: of the keys that are known, or all
// modern ones, so that an unknown key can be shown.
func (h *hostKeys) algorithms(addr string) []string {
	if h.db == nil {
		return kinds[h.kind]
	}
	var known []string
	for _, a := range h.db.HostKeyAlgorithms(addr) {
		switch a { // the db names the SHA-1 forms of RSA keys; the same keys sign with SHA-2
		case ssh.CertAlgoRSAv01:
			known = append(known, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01)
		default:
			if slices.Contains(modern, a) {
				known = append(known, a)
			}
		}
	}
	if len(known) == 0 {
		return modern
	}
	return known
}

// check is an ssh.HostKeyCallback.
func (h *hostKeys) check(addr string, remote net.Addr, key ssh.PublicKey) error {
	bad := func(format string, args ...any) error {
		return effect.Failed("host_key", format, args...)
	}
	files := strings.Join(h.files, ", ")
	seen := strings.TrimSuffix(key.Type(), "-cert-v01@openssh.com") + " key " +
		ssh.FingerprintSHA256(plainKey(key))
	if h.db == nil {
		if ssh.FingerprintSHA256(key) == h.pin {
			return nil
		}
		return bad("%s answered with %s, but host_key pins %s. Either the pin is of another key "+
			"of this host, or another machine answers in its place: read the fingerprint on the "+
			"host's own console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and correct "+
			"host_key only if it is the same", addr, seen, h.pin)
	}
	err := h.db.HostKeyCallback()(addr, remote, key)
	var revoked *xknownhosts.RevokedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return bad("%s answered with %s, which is @revoked at %s:%d: do not use this host until "+
			"its keys are replaced", addr, seen, revoked.Revoked.Filename, revoked.Revoked.Line)
	case knownhosts.IsHostKeyChanged(err):
		return bad("the host key of %s has CHANGED: it answered with %s, known_hosts (%s) has "+
			"another. Another machine may answer in its place. Compare the fingerprint on the "+
			"host's own console, and only if it is the same replace the line: "+
			"ssh-keygen -R '%s' -f FILE", addr, seen, files, knownhosts.Normalize(addr))
	case knownhosts.IsHostUnknown(err):
		return bad("%s is not in known_hosts (%s). It answered with %s: compare that on the "+
			"host's own console, then set host_key to the fingerprint, or see "+
			"`caponier hosts scan`", addr, files, seen)
	}
	return bad("%s answered with %s: %v", addr, seen, err)
}

// plainKey is what a person can compare: of a certificate, the key that it certifies.
func plainKey(key ssh.PublicKey) ssh.PublicKey {
	if c, isCert := key.(*ssh.Certificate); isCert {
		return c.Key
	}
	return key
}

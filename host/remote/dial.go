package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// dialed is an authenticated connection, perhaps through other hosts. Closing raw ends all of it.
type dialed struct {
	client *ssh.Client
	raw    net.Conn
	firm   *firm  // below client
	key    string // fingerprint of the host key that was accepted
}

// dial connects within DialTimeout. A connection that the network refused before authentication is
// tried again, up to three times: nothing was sent that could have an effect.
func (r *Remote) dial(ctx context.Context, n NodeOptions) (*dialed, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.DialTimeout)
	defer cancel()
	var wrong error // the first key that was not the pinned one
	for attempt := 1; ; attempt++ {
		d, err := r.dialOnce(ctx, n)
		op, other := (*gate.OpError)(nil), (*otherKind)(nil)
		if errors.As(err, &other) && ctx.Err() == nil {
			wrong = cmp.Or(wrong, err)
			if r.nextKind(other.login) {
				continue
			}
			return nil, wrong
		}
		if err == nil || attempt == 3 || errors.As(err, &op) && op.Code != "connection" ||
			ctx.Err() != nil {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(jitter(time.Duration(attempt*attempt) * 100 * time.Millisecond)):
		}
	}
}

// jitter spreads d by ±25 %, so that many clients of a restarted node do not come back in step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}

func (r *Remote) dialOnce(ctx context.Context, n NodeOptions) (d *dialed, err error) {
	hops := make([]Login, 0, MaxJumps+1)
	for _, j := range n.Jump {
		hops = append(hops, j.Login)
	}
	hops = append(hops, n.Login)
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", hops[0].Addr())
	if err != nil {
		return nil, failed(
			"connection",
			"connecting to %s: %v; is the host up, and is remote.nodes (%s) right?",
			hops[0].Addr(),
			reason(ctx, r.opts.DialTimeout, err),
			n.Name,
		)
	}
	// The one watchdog for banner, key exchange and authentication of every hop: closing the first
	// connection unblocks them all, and tunnelled ones know no deadlines.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer func() {
		if !stop() && err == nil {
			err = failed(
				"connection",
				"connecting to %s: not done within %s",
				n.Addr(),
				r.opts.DialTimeout,
			)
		}
		if err != nil {
			raw.Close()
			d = nil
		}
	}()
	d = &dialed{raw: raw}
	conn := raw
	for i, hop := range hops {
		if i > 0 {
			if conn, err = d.client.DialContext(ctx, "tcp", hop.Addr()); err != nil {
				return nil, failed(
					"connection",
					"reaching %s through %s: %v; the jump host must be up and allow TCP forwarding",
					hop.Addr(),
					hops[i-1].Addr(),
					reason(ctx, r.opts.DialTimeout, err),
				)
			}
		}
		d.firm = &firm{Conn: conn}
		if d.client, d.key, err = r.handshake(ctx, d.firm, hop); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// firm is a connection that does not tell of its end while a channel is being opened. The library
// registers a new channel, sends the request and ignores whether that succeeded; a channel that is
// registered just after the others were closed waits for ever (golang.org/x/crypto/ssh,
// mux.openChannel).
type firm struct {
	net.Conn
	dead    atomic.Bool
	opening atomic.Int64
}

// registration is ample time for OpenChannel to get from its call to the registration of the
// channel.
const registration = 50 * time.Millisecond

// open must be called before a channel is opened, and not be followed by that if it returns false.
func (f *firm) open() bool {
	f.opening.Add(1)
	if f.dead.Load() {
		f.opening.Add(-1)
		return false
	}
	time.AfterFunc(registration, func() { f.opening.Add(-1) })
	return true
}

func (f *firm) Read(p []byte) (int, error) {
	k, err := f.Conn.Read(p)
	if err != nil {
		f.dead.Store(true)
		for f.opening.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return k, err
}

func (r *Remote) handshake(
	ctx context.Context,
	conn net.Conn,
	l Login,
) (*ssh.Client, string, error) {
	keys, err := r.newHostKeys(l)
	if err != nil {
		return nil, "", err
	}
	auth, done, err := methods(ctx, l)
	if err != nil {
		return nil, "", err
	}
	defer done()
	var keyErr error
	var fingerprint string
	config := &ssh.ClientConfig{
		User: l.User, Auth: auth, ClientVersion: "SSH-2.0-Caponier", HostKeyAlgorithms: keys.algorithms(l.Addr()),
		HostKeyCallback: func(addr string, remote net.Addr, key ssh.PublicKey) error {
			fingerprint, keyErr = ssh.FingerprintSHA256(
				plainKey(key),
			), keys.check(
				addr,
				remote,
				key,
			)
			return keyErr
		},
		// a banner is words of a stranger: dropped
		BannerCallback: func(string) error { return nil },
		Config: ssh.Config{
			KeyExchanges: []string{
				ssh.KeyExchangeMLKEM768X25519,
				ssh.KeyExchangeCurve25519,
				ssh.KeyExchangeECDHP256,
				ssh.KeyExchangeECDHP384,
				ssh.KeyExchangeECDHP521,
				ssh.KeyExchangeDH16SHA512,
			},
			Ciphers: []string{
				ssh.CipherAES128GCM,
				ssh.CipherAES256GCM,
				ssh.CipherChaCha20Poly1305,
				ssh.CipherAES256CTR,
				ssh.CipherAES128CTR,
			},
			MACs: []string{
				ssh.HMACSHA256ETM,
				ssh.HMACSHA512ETM,
				ssh.HMACSHA256,
				ssh.HMACSHA512,
			},
		},
	}
	c, chans, reqs, err := ssh.NewClientConn(conn, l.Addr(), config)
	switch {
	case keyErr != nil && l.HostKey != "":
		return nil, "", &otherKind{l, keyErr}
	case keyErr != nil:
		return nil, "", keyErr
	case err == nil:
		return ssh.NewClient(c, chans, reqs), fingerprint, nil
	case ctx.Err() == nil && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, "", failed(
			"auth",
			"logging in to %s as %s: the host accepts none of the configured keys or passwords (%s); is the public key in its authorized_keys?",
			l.Addr(),
			l.User,
			offered(l),
		)
	case strings.Contains(err.Error(), "no common algorithm"):
		err = failed(
			"host_key",
			"connecting to %s: %v; known_hosts may hold a kind of key that the host has not, or the host offers only outdated algorithms",
			l.Addr(),
			err,
		)
		if l.HostKey != "" {
			err = &otherKind{l, err}
		}
		return nil, "", err
	}
	return nil, "", failed(
		"connection",
		"connecting to %s: the SSH handshake did not succeed: %v",
		l.Addr(),
		reason(ctx, r.opts.DialTimeout, err),
	)
}

func reason(ctx context.Context, limit time.Duration, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", limit)
	}
	return err
}

func offered(l Login) string {
	var how []string
	if l.IdentityFile != "" {
		how = append(how, "key "+l.IdentityFile)
	}
	if l.Agent {
		how = append(how, "the agent")
	}
	if l.PasswordFile != "" {
		how = append(how, "password of "+l.PasswordFile)
	}
	return strings.Join(how, ", ")
}

// methods reads the credentials of l. done must be called when the handshake is over.
func methods(ctx context.Context, l Login) (auth []ssh.AuthMethod, done func(), err error) {
	done = func() {}
	var signers []ssh.Signer
	if l.IdentityFile != "" {
		s, err := identity(l)
		if err != nil {
			return nil, done, err
		}
		signers = append(signers, s)
	}
	if l.Agent {
		sock := os.Getenv("SSH_AUTH_SOCK")
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", cmp.Or(sock, "/nonexistent"))
		if err != nil {
			return nil, done, failed(
				"auth",
				"reaching the agent at SSH_AUTH_SOCK=%q: %v; start ssh-agent and ssh-add the key, or set agent = false",
				sock,
				err,
			)
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		done = func() { stop(); conn.Close() }
		more, err := agent.NewClient(conn).Signers()
		if err != nil || len(signers)+len(more) == 0 {
			done()
			return nil, func() {}, failed(
				"auth",
				"the agent at SSH_AUTH_SOCK offers no key (%v); ssh-add one",
				err,
			)
		}
		signers = append(signers, more...)
	}
	if len(signers) > 0 {
		auth = append(auth, ssh.PublicKeys(signers...))
	}
	if l.PasswordFile != "" {
		p, err := secret(l.PasswordFile)
		if err != nil {
			done()
			return nil, func() {}, failed("auth", "reading password_file: %v", err)
		}
		password := strings.TrimRight(string(p), "\r\n")
		auth = append(
			auth,
			ssh.Password(password),
			ssh.KeyboardInteractive(
				func(_, _ string, questions []string, echo []bool) ([]string, error) {
					if len(questions) == 0 {
						return nil, nil
					}
					if len(questions) != 1 || echo[0] {
						return nil, errors.New("the host asks for more than a password")
					}
					return []string{password}, nil
				},
			),
		)
	}
	return auth, done, nil
}

func identity(l Login) (ssh.Signer, error) {
	pem, err := secret(l.IdentityFile)
	if err != nil {
		return nil, failed("auth", "reading identity_file: %v", err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		if l.PassphraseFile == "" {
			return nil, failed(
				"auth",
				"identity_file %s is encrypted; set passphrase_file, or use the agent",
				l.IdentityFile,
			)
		}
		pass, err := secret(l.PassphraseFile)
		if err != nil {
			return nil, failed("auth", "reading passphrase_file: %v", err)
		}
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, bytes.TrimRight(pass, "\r\n")); err != nil {
			return nil, failed(
				"auth",
				"identity_file %s: passphrase_file %s does not open it",
				l.IdentityFile,
				l.PassphraseFile,
			)
		}
	} else if err != nil {
		return nil, failed("auth", "identity_file %s: %v; it must be a private key", l.IdentityFile, err)
	}
	if l.CertificateFile == "" {
		return signer, nil
	}
	line, err := os.ReadFile(l.CertificateFile)
	if err != nil {
		return nil, failed("auth", "reading certificate_file: %v", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(line)
	cert, isCert := key.(*ssh.Certificate)
	if err != nil || !isCert {
		return nil, failed(
			"auth",
			"certificate_file %s is not an OpenSSH certificate",
			l.CertificateFile,
		)
	}
	certSigner, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil, failed(
			"auth",
			"certificate_file %s does not belong to identity_file %s: %v",
			l.CertificateFile,
			l.IdentityFile,
			err,
		)
	}
	return certSigner, nil
}

// secret reads a file that only its owner may read.
func secret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf(
			"%s has mode %#o; others may read it: chmod 600",
			path,
			info.Mode().Perm(),
		)
	}
	if info.Size() > 64<<10 {
		return nil, fmt.Errorf("%s has %d bytes, which is no key or password", path, info.Size())
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}

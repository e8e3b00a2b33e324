package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
	"golang.org/x/crypto/ssh"
)

// dialed is an authenticated connection, perhaps through other hosts. Closing raw ends all of it.
type dialed struct {
	client *ssh.Client
	raw    net.Conn
	firm   *firm  // below client
	key    string // fingerprint of the host key that was accepted
}

// way is the way to a node. One dial at a time uses it.
type way struct {
	opts       NodeOptions
	knownHosts []string
	timeout    time.Duration  // of all hops together
	kinds      map[string]int // of host keys by pin, an index of kinds
}

// connect dials within the timeout. What the network refused before authentication is tried again,
// up to three times: nothing was sent that could have an effect.
func (w *way) connect(ctx context.Context) (*dialed, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var wrong error // the first key that was not the pinned one
	for attempt := 1; ; attempt++ {
		d, err := w.connectOnce(ctx)
		op, other := (*terms.OpError)(nil), (*otherKind)(nil)
		if errors.As(err, &other) && ctx.Err() == nil {
			wrong = cmp.Or(wrong, err)
			if w.kinds[other.pin]++; w.kinds[other.pin] < len(kinds) {
				continue
			}
			delete(w.kinds, other.pin)
			return nil, wrong
		}
		if err == nil || attempt == 3 || errors.As(err, &op) && op.Code != "connection" {
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

func (w *way) connectOnce(ctx context.Context) (d *dialed, err error) {
	limit := w.timeout
	hops := append(slices.Clone(w.opts.Jump), w.opts.Login)
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", hops[0].Addr())
	if err != nil {
		return nil, effect.Failed("connection",
			"connecting to %s: %v; is the host up, and is remote.nodes (%s) right?",
			hops[0].Addr(), reason(ctx, limit, err), w.opts.Name)
	}
	// The one watchdog for banner, key exchange and authentication of every hop: closing the first
	// connection unblocks them all, and tunnelled ones know no deadlines.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer func() {
		if !stop() && err == nil {
			err = effect.Failed("connection", "connecting to %s: not done within %s", w.opts.Addr(),
				limit)
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
				return nil, effect.Failed("connection",
					"reaching %s through %s: %v; the jump host must "+
						"be up and allow TCP forwarding", hop.Addr(), hops[i-1].Addr(),
					reason(ctx, limit, err))
			}
		}
		d.firm = &firm{Conn: conn}
		refused := "auth" // only what the node itself refuses
		if i < len(hops)-1 {
			refused = "credentials"
		}
		if d.client, d.key, err = w.handshake(ctx, d.firm, hop, refused); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// firm is a connection that does not report its end while a channel is being opened. The library
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

// algorithms of the transport (RFC 4253, sections 6 and 7). All are of today; none uses SHA-1.
var transport = ssh.Config{
	KeyExchanges: []string{ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519,
		ssh.KeyExchangeECDHP256, ssh.KeyExchangeECDHP384, ssh.KeyExchangeECDHP521,
		ssh.KeyExchangeDH16SHA512},
	Ciphers: []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305,
		ssh.CipherAES256CTR, ssh.CipherAES128CTR},
	MACs: []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM, ssh.HMACSHA256, ssh.HMACSHA512},
}

// handshake logs in at a host that proves its key, whose fingerprint it returns. The code refused
// is that of a login that the host does not accept.
func (w *way) handshake(ctx context.Context, conn net.Conn, l Login, refused string) (*ssh.Client,
	string, error) {
	known, err := newHostKeys(l, w.kinds[l.HostKey], w.knownHosts)
	if err != nil {
		return nil, "", err
	}
	signers, done, err := keys(ctx, l)
	defer done()
	if err != nil {
		return nil, "", err
	}
	var keyErr error
	var fingerprint string
	c, chans, reqs, err := ssh.NewClientConn(conn, l.Addr(), &ssh.ClientConfig{
		Config: transport, User: l.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		ClientVersion: "SSH-2.0-Caponier", HostKeyAlgorithms: known.algorithms(l.Addr()),
		HostKeyCallback: func(addr string, remote net.Addr, key ssh.PublicKey) error {
			fingerprint = ssh.FingerprintSHA256(plainKey(key))
			keyErr = known.check(addr, remote, key)
			return keyErr
		},
		BannerCallback: func(string) error { return nil }, // text of a stranger: dropped
	})
	switch {
	case keyErr != nil:
		err = keyErr
	case err == nil:
		return ssh.NewClient(c, chans, reqs), fingerprint, nil
	case ctx.Err() == nil && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, "", effect.Failed(refused,
			"logging in to %s as %s: the host accepts none of the "+
				"configured keys (%s); is the public key in its authorized_keys?", l.Addr(), l.User,
			offered(l))
	case strings.Contains(err.Error(), "no common algorithm"):
		err = effect.Failed("host_key",
			"connecting to %s: %v; known_hosts may hold a kind of key that "+
				"the host does not have, or the host offers only outdated algorithms",
			l.Addr(), err)
	default:
		return nil, "", effect.Failed("connection", "connecting to %s: the SSH handshake did not "+
			"succeed: %v", l.Addr(), reason(ctx, w.timeout, err))
	}
	if l.HostKey != "" {
		err = &otherKind{l.HostKey, err}
	}
	return nil, "", err
}

func reason(ctx context.Context, limit time.Duration, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", limit)
	}
	return err
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
)

// ScannedKey is a key that a host shows. Nobody has checked whose it is: a person must compare the
// fingerprint on the host's own console.
type ScannedKey struct {
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"` // what host_key takes
	Line        string `json:"line"`        // for known_hosts
}

// Scan asks a host for its keys, one connection for each kind of key. It logs in nowhere. The error
// is nil when the host showed at least one.
func Scan(ctx context.Context, host string, port int) ([]ScannedKey, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	var keys []ScannedKey
	var errs error
	for _, algorithms := range remote.KeyKinds() {
		key, err := scan(ctx, addr, algorithms)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		keys = append(keys, ScannedKey{Type: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
			Line: knownhosts.Line([]string{addr}, key)})
	}
	if len(keys) > 0 {
		return keys, nil
	}
	return nil, fmt.Errorf("scanning %s: %w", addr, errs)
}

func scan(ctx context.Context, addr string, algorithms []string) (key ssh.PublicKey, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	seen := errors.New("seen")
	c, _, _, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User:              "nobody",
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, k ssh.PublicKey) error {
			key = k
			return seen // the key is proven before this is called; there is no reason to go on
		},
	})
	if err == nil {
		c.Close()
	}
	if key != nil {
		return key, nil
	}
	return nil, err
}

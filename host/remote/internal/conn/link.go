package conn

import (
	"context"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
)

// Link describes a connection to a node.
type Link struct {
	Server  string        // version that the SSH server announced, as it wrote it
	HostKey string        // SHA256 fingerprint of the host key that was accepted
	Offered string        // credentials that were offered
	Login   time.Duration // from the request for a connection to its end
	Trip    time.Duration // fastest of three round trips
}

// Link connects to the node, unless it is connected already, and measures the connection. The error
// is a *gate.OpError.
func (n *Node) Link(ctx context.Context) (l Link, err error) {
	began := time.Now()
	c, err := n.Acquire(ctx, "")
	if err != nil {
		return l, err
	}
	defer n.Release(c, "")
	l = Link{Server: string(c.client.ServerVersion()), HostKey: c.key, Offered: offered(n.Login),
		Login: time.Since(began)}
	for i := range 3 {
		began := time.Now()
		stop := c.Watch("a round trip")
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		if stop(); err != nil {
			return l, effect.Failed("lost", "the connection was lost: %v", c.Why(err))
		}
		if trip := time.Since(began); i == 0 || trip < l.Trip {
			l.Trip = trip
		}
	}
	return l, nil
}

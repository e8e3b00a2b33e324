package remote

import (
	"context"
	"slices"
	"time"
)

// Link describes a connection to a node.
type Link struct {
	Server  string        // version that the SSH server announced, as it wrote it
	HostKey string        // SHA256 fingerprint of the host key that was accepted
	Offered string        // credentials that were offered
	Login   time.Duration // from the request for a connection to its end
	Trip    time.Duration // fastest of three round trips
}

// Output is how a command of [Options].Reads ended.
type Output struct {
	Exit           int
	Stdout, Stderr []byte
}

const (
	maxAsk  = 256 << 10        // bytes of each stream of an Ask
	askTime = 20 * time.Second // for each Ask and each Lacks
)

// Link connects to a node, unless it is connected already, and measures the connection. The error
// is a *gate.OpError.
func (r *Remote) Link(ctx context.Context, name string) (l Link, err error) {
	n, done, err := r.enter(name)
	if err != nil {
		return l, err
	}
	defer done()
	began := time.Now()
	c, err := n.acquire(ctx, "")
	if err != nil {
		return l, err
	}
	defer n.release(c, "")
	l = Link{Server: string(c.client.ServerVersion()), HostKey: c.key,
		Offered: offered(n.opts.Login), Login: time.Since(began)}
	for range 3 {
		began := time.Now()
		stop := c.watch("a round trip")
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		if stop(); err != nil {
			return l, failed("lost", "the connection was lost: %v", c.why(err))
		}
		l.Trip = least(l.Trip, time.Since(began))
	}
	return l, nil
}

// Ask runs one of the commands of [Options].Reads on a node. It refuses every other command, so
// that a Remote without Reads runs nothing that was not decided. The error is a *gate.OpError.
func (r *Remote) Ask(ctx context.Context, name, text string) (Output, error) {
	if !slices.Contains(r.opts.Reads, text) {
		return Output{}, failed("refused", "%q may not be asked: it is not in Reads", text)
	}
	n, done, err := r.enter(name)
	if err != nil {
		return Output{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	e, err := n.exec(ctx, command{text: text, max: maxAsk})
	return Output{e.exit, e.stdout, e.stderr}, err
}

// Lacks opens SFTP on a node and returns those of the extensions that its server does not offer.
// The error is a *gate.OpError.
func (r *Remote) Lacks(ctx context.Context, name string, extensions ...string) ([]string, error) {
	n, done, err := r.enter(name)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return with(ctx, n, "opening", "/",
		func(_ context.Context, f *files, _ *pledge) (lacks []string, err error) {
			for _, x := range extensions {
				if _, has := f.HasExtension(x); !has {
					lacks = append(lacks, x)
				}
			}
			_, err = f.lstat("/")
			return lacks, err
		})
}

package remote

import (
	"context"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
)

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
func (r *Remote) Link(ctx context.Context, name string) (Link, error) {
	n, done, err := r.enter(name)
	if err != nil {
		return Link{}, err
	}
	defer done()
	return n.Link(ctx)
}

// Ask runs one of the commands of [Options].Reads on a node. It refuses every other command, so
// that a Remote without Reads runs nothing that was not decided. The error is a *gate.OpError.
func (r *Remote) Ask(ctx context.Context, name, text string) (Output, error) {
	if !slices.Contains(r.opts.Reads, text) {
		return Output{}, effect.Failed("refused", "%q may not be asked: it is not in Reads", text)
	}
	n, done, err := r.enter(name)
	if err != nil {
		return Output{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	e, err := command.Run(ctx, n.Node.Node, command.Command{Text: text, Max: maxAsk})
	return Output{e.Exit, e.Stdout, e.Stderr}, err
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
	return files.With(ctx, n.Node, "opening", "/",
		func(_ context.Context, f *files.Session, _ *effect.Pledge) (lacks []string, err error) {
			for _, x := range extensions {
				if _, has := f.HasExtension(x); !has {
					lacks = append(lacks, x)
				}
			}
			_, err = f.Lstat("/")
			return lacks, err
		})
}

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxDescribe     = 4 << 20
	describeTimeout = 10 * time.Second
)

// describeModule asks a module what it offers, and lists the operations that it imports. The
// module runs behind [noDoor]: no operation can reach anything. It is asked twice, from its
// initialisation on, with a clock that stands still and differently seeded randomness; a
// difference is refused, since a description must be a fact about the bytes. The directory keeps
// what was compiled, as Options.CacheDir does, if it can be used.
func describeModule(ctx context.Context, wasm []byte, cache string) (
	describe []byte, imports []string, err error,
) {
	s, err := New(ctx, Options{Warm: -1, CacheDir: cache})
	if err != nil && cache != "" {
		s, err = New(ctx, Options{Warm: -1})
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	m, rewritten, err := load(wasm, abi.Operations(), s.o.MemoryMax)
	if err != nil {
		return nil, nil, err
	}
	// the caller's ctx bounds this: how long it takes depends on the machine
	compiled, err := s.compile(ctx, rewritten, func() {})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout,
		fmt.Errorf("describing took longer than %s", describeTimeout))
	defer cancel()
	for seed := range byte(2) {
		now := time.Unix(1_700_000_000, 0)
		env := environment{
			scheduler: s.env.scheduler,
			now:       func() time.Time { return now },
			sleep:     func(_ context.Context, d time.Duration) { now = now.Add(d) },
			random:    rand.NewChaCha8([32]byte{seed}),
		}
		t, stderr, err := newTemplate(ctx, s.rt, &source{m, compiled}, &env, s.o.MemoryMax, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("%w%s", err, (&call{stderr: stderr}).firstLine())
		}
		out, err := t.describe(ctx, &env)
		t.image.Close()
		if err != nil {
			return nil, nil, err
		}
		if seed > 0 && !bytes.Equal(out, describe) {
			return nil, nil, errors.New("the module describes itself differently each time")
		}
		describe = out
	}
	return describe, operations(m), nil
}

func (t *template) describe(ctx context.Context, env *environment) ([]byte, error) {
	in, err := t.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	defer in.close()
	c := &call{door: noDoor{}, env: env, max: maxDescribe}
	code, err := in.run(ctx, c, in.mod.ExportedFunction("caponier_v1_describe"))
	if err == nil && code != 0 {
		err = fmt.Errorf("caponier_v1_describe returned %d%s", int32(code), c.firstLine())
	}
	return c.output.bytes(), err
}

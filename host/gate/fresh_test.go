package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// waitingTurns runs meanwhile before each turn.
type waitingTurns struct{ meanwhile func() }

func (w waitingTurns) Acquire(context.Context, string) error { w.meanwhile(); return nil }
func (waitingTurns) Release(string)                          {}

// What arrives while a cluster is read, or while a call waits for its turn, decides: the answer,
// the record and the executor have the mode and the time of the moment after.
func TestWhatArrivesWhileADecisionWaitsIsDecidedOn(t *testing.T) {
	for name, tt := range map[string]struct {
		arrives func(*terms.Mode, *error)
		check   string
	}{
		"a freeze": {func(m *terms.Mode, _ *error) { m.Freezes = []terms.Freeze{{Kind: "all"}} },
			"freeze"},
		"read-only mode": {func(m *terms.Mode, _ *error) { m.ReadOnly = true },
			"readonly"},
		"a revocation": {func(_ *terms.Mode, err *error) { *err = errors.New("revoked") },
			"revoked"},
		"nothing": {func(*terms.Mode, *error) {}, ""},
	} {
		for _, kind := range []terms.Kind{terms.KindCall, terms.KindOperation} {
			for _, during := range []string{"guests", "turn"} {
				t.Run(name+map[terms.Kind]string{terms.KindCall: " at a call, ",
					terms.KindOperation: " at an operation, "}[kind]+during, func(t *testing.T) {
					now, revoked := time.UnixMilli(1e12), error(nil)
					k := &taken{
						world: &world{decide: func(q terms.Question) (terms.Decision, error) {
							input, err := json.Marshal(q.Time)
							dec := terms.Decision{Tier: terms.Yellow, Input: input}
							switch {
							case q.Kind == kind && q.Facts.Guests == nil:
								dec.Failed, dec.Guests = []string{"facts"}, []string{"105"}
							case q.Mode.ReadOnly:
								dec.Failed = []string{"readonly"}
							case len(q.Mode.Freezes) > 0:
								dec.Failed = []string{"freeze"}
							default:
								dec.Allow = true
							}
							return dec, err
						}},
					}
					d, reads, asked := k.door(), 0, terms.Kind(0)
					meanwhile := func(here string) {
						if during == here && asked == kind {
							now = now.Add(40 * time.Second)
							tt.arrives(&k.mode, &revoked)
						}
					}
					d.o.Now = func() time.Time { return now }
					d.o.Guests = func(_ context.Context, q terms.Question,
						_ terms.Decision) map[string]terms.Guest {
						asked = q.Kind
						meanwhile("guests")
						reads++
						return map[string]terms.Guest{"105": {}}
					}
					d.o.Turns = waitingTurns{func() { meanwhile("turn"); asked = 0 }}
					for n := range d.o.Executors {
						d.o.Executors[n] = k
					}
					var err error
					k.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
						_, err = r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
							Argv: []string{"true"}})
						return terms.Output{}, nil
					}
					a := d.Call(
						t.Context(),
						terms.Request{Principal: terms.Principal{ID: "p"}, Tool: tool(),
							Current: func(context.Context) error { return revoked }},
					)
					if kind == terms.KindCall {
						err = a.Err
					}
					refused, last := (*terms.Refused)(nil), k.intents[len(k.intents)-1]
					executed := slices.Contains(k.events, "execute ssh_exec")
					switch is := errors.As(err, &refused); {
					case reads != 1:
						t.Errorf("the cluster was read %d times", reads)
					case is != (tt.check != "") || executed == is:
						t.Errorf("error %v, executed %v", err, executed)
					case is && (!slices.Equal(refused.Failed, []string{tt.check}) ||
						last.Type != "refused" || !slices.Equal(last.Failed, refused.Failed)):
						t.Errorf("refused by %v, journaled %+v", refused.Failed, last)
					case !last.Time.Equal(now) || last.Input != nil &&
						string(last.Input) != `"`+now.Format(time.RFC3339Nano)+`"`:
						t.Errorf("journaled at %s with %s, decided at %s", last.Time, last.Input,
							now)
					case executed && !k.executed.Time.Equal(now):
						t.Errorf("executed as decided at %s, not %s", k.executed.Time, now)
					}
				})
			}
		}
	}
}

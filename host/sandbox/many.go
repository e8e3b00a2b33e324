package sandbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// maxAtOnce is how many requests of a list are under way at the same time.
const maxAtOnce = 8

// operateMany takes each request of a list through the door by itself, and leaves all the answers
// for the module to read.
func (c *call) operateMany(ctx context.Context, name string, request []byte) uint32 {
	ops, err := abi.ParseList(name, request)
	if err != nil {
		return c.fail(err)
	}
	all := abi.ManyResponse{Answers: make([]abi.Answer, len(ops))}
	next := make(chan int)
	c.meanwhile(ctx, func() {
		var workers sync.WaitGroup
		for range min(maxAtOnce, len(ops)) {
			workers.Go(func() {
				for i := range next {
					status, text := response(guarded(ctx, c.door, ops[i]))
					all.Answers[i] = abi.Answer{Status: abi.Status(status), Response: text}
				}
			})
		}
		for i := range ops {
			if ctx.Err() != nil { // the rest does not begin
				status, text := failure(gate.Fail("cancelled", "the call has ended"))
				all.Answers[i] = abi.Answer{Status: abi.Status(status), Response: text}
				continue
			}
			next <- i
		}
		close(next)
		workers.Wait()
	})
	return c.respond(encode(statusOK, all))
}

// guarded takes an operation through the door. A panic there ends the instance when it asks for one
// operation; here it must not end the host.
func guarded(ctx context.Context, d door, op abi.Op) (res gate.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &gate.OpError{Code: "panic", Outcome: gate.Unknown,
				Message: fmt.Sprintf("the host panicked while doing this: %v", p)}
		}
	}()
	return d.Operate(ctx, op)
}

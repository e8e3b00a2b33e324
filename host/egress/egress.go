// Package egress sends the HTTP requests of plugins to the addresses that were decided.
package egress

import (
	"context"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var _ terms.Executor = (*Egress)(nil)

// Lookup finds the addresses of the request's host. Nothing is sent to it.
func (e *Egress) Lookup(ctx context.Context, q terms.Question) (terms.Facts, error) {
	op, ok := q.Op.(abi.HTTPRequest)
	if !ok {
		return terms.Facts{}, terms.Fail("bad_request", "%s is not an HTTP request", q.Op.Import())
	}
	r, err := e.check(op, q.Call.Tool.Name)
	if err != nil {
		return terms.Facts{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout(op))
	defer cancel()
	addrs, err := e.resolve(ctx, r.host)
	return terms.Facts{Addrs: addrs}, err
}

// Execute sends an allowed request to one of the decided addresses. A redirect that is to be
// followed is the result's Next. The error is a *terms.OpError; its outcome is Unknown when a
// request that may have had an effect was sent and no answer came.
func (e *Egress) Execute(
	ctx context.Context, q terms.Question, d terms.Decision,
) (terms.Result, error) {
	op, ok := q.Op.(abi.HTTPRequest)
	if !ok || !d.Allow {
		return terms.Result{}, terms.Fail("refused", "%s was not allowed", q.Op.Import())
	}
	if len(q.Facts.Addrs) == 0 {
		return terms.Result{}, terms.Fail("changed",
			"the host of the request was not looked up before it was decided")
	}
	r, err := e.check(op, q.Call.Tool.Name)
	if err != nil {
		return terms.Result{}, err
	}
	r.addrs = q.Facts.Addrs
	ctx, cancel := context.WithTimeout(ctx, least(e.timeout(op), d.Obligations.Timeout))
	defer cancel()
	limit := least(d.Obligations.MaxBytes, e.opts.MaxBody)
	if !op.Save {
		limit = least(op.MaxBytes, limit, maxInline)
	}
	who := q.Call.Principal.ID
	// The caller may hold slots that others wait for, so it is refused instead of waiting.
	if !e.room.TryAcquireN(who, int(limit)) {
		return terms.Result{}, terms.Fail("busy",
			"other requests hold most of the %d bytes that responses may use; try again", memory)
	}
	defer e.room.ReleaseN(who, int(limit))
	if err := e.count(ctx, who, r.host); err != nil {
		return terms.Result{}, err
	}
	price, micros, err := e.price(r)
	if err != nil {
		return terms.Result{}, err
	}
	micros = max(micros, op.ReserveUSDMicros)
	settle, err := e.reserve(ctx, who, micros)
	if err != nil {
		return terms.Result{}, err
	}
	ans, sent, err := e.send(ctx, r, limit)
	if err != nil {
		if !sent {
			settle(0)
		}
		return terms.Result{}, err
	}
	settle(price.spent(ans.status, ans.body, micros))
	follow, yes, err := next(op, r.target, ans.status, ans.location)
	if err != nil {
		return terms.Result{}, err
	}
	if yes {
		if end, ok := ctx.Deadline(); ok { // the time is for all hops together
			follow.TimeoutMS = max(1, time.Until(end).Milliseconds())
		}
		return terms.Result{Next: follow, Bytes: int64(len(ans.body))}, nil
	}
	return e.result(ctx, q, op, ans)
}

// End does nothing: a request releases everything when it ends.
func (e *Egress) End(context.Context, *terms.Call) {}

func (e *Egress) timeout(op abi.HTTPRequest) time.Duration {
	if op.TimeoutMS <= 0 {
		return e.opts.Timeout
	}
	most := max(maxTimeout, e.opts.Timeout)
	return time.Duration(min(op.TimeoutMS, most.Milliseconds())) * time.Millisecond
}

// least is the smallest of those limits that are set.
func least[T int64 | time.Duration](limits ...T) (min T) {
	for _, l := range limits {
		if l > 0 && (min == 0 || l < min) {
			min = l
		}
	}
	return min
}

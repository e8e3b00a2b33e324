package egress

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// price is what a request may cost at most: a token is at least one byte, and the answer is as long
// as the request allows. It is nil at an origin without prices.
func (e *Egress) price(r request) (p *Price, micros int64, err error) {
	bad := func(code, format string, args ...any) (*Price, int64, error) {
		return nil, 0, terms.Fail(code, r.origin()+" is metered (egress.prices): "+format, args...)
	}
	prices := map[string]*Price{} // by model
	for i, p := range e.opts.Prices {
		if p.origin == r.origin() {
			prices[p.Model] = &e.opts.Prices[i]
		}
	}
	if len(prices) == 0 || safe(r.method) {
		return nil, 0, nil
	}
	// strict: the server could use another one of two models in the body
	v, err := abi.Decode(r.body, len(r.body))
	m, ok := v.(map[string]any)
	if err != nil || !ok {
		return bad("cost", "the body must be one JSON object without repeated keys")
	}
	model, _ := m["model"].(string)
	if p = prices[model]; p == nil {
		return bad("model", "the model %.64q is not among those listed there: %s", model,
			strings.Join(slices.Sorted(maps.Keys(prices)), ", "))
	}
	out := int64(0)
	for _, key := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if n, isInt := m[key].(int64); isInt {
			out = max(out, n)
		}
	}
	answers := int64(1)
	if n, there := m["n"]; there {
		if answers, ok = n.(int64); !ok || answers < 1 || answers > 16 {
			return bad("cost", "n must be 1 to 16")
		}
	}
	if stream, _ := m["stream"].(bool); stream || out < 1 || out > maxTokens {
		return bad("cost", "give max_tokens, 1 to %d, and do not stream", maxTokens)
	}
	return p, p.cost(int64(len(r.body)), out*answers), nil
}

// reserve takes the money before anything is sent. settle is never nil.
func (e *Egress) reserve(
	ctx context.Context, principal string, micros int64,
) (settle func(spent int64), err error) {
	if micros == 0 {
		return func(int64) {}, nil
	}
	if e.opts.USDMicrosPerDay == 0 {
		return nil, terms.Fail("cost",
			"%d micro-dollars would have to be reserved and there is no "+
				"budget (egress.usd_micros_per_day)", micros)
	}
	put, err := e.opts.Ledger.Reserve(ctx, principal, micros, e.opts.USDMicrosPerDay)
	if err != nil {
		return nil, terms.Fail("cost", "%v", err)
	}
	// what is not settled stays spent
	return func(spent int64) { _ = put(context.WithoutCancel(ctx), spent) }, nil
}

func (e *Egress) count(ctx context.Context, principal, host string) error {
	rates, giveBack, err := e.opts.Ledger.Count(ctx, fmt.Sprintf("http host %q", host),
		fmt.Sprintf("http principal %q", principal))
	if err != nil || len(rates) != 2 {
		return terms.Fail("rate", "the count of requests cannot be kept: %v", err)
	}
	for i, limit := range []int64{e.opts.PerHost, e.opts.PerPrincipal} {
		if rates[i].Count > limit {
			giveBack()
			return terms.Fail("rate", "%s: more than %d requests in 60 seconds; come back at %s",
				[]string{"to " + host, "by " + principal}[i], limit,
				rates[i].Free.UTC().Format("15:04:05 MST"))
		}
	}
	return nil
}

package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Price is what a model costs at an origin, in micro-dollars for a million tokens. An origin with
// prices is metered: every request there that is not GET or HEAD must name one of its models and
// limit its answer, so the list is also that of the models that may be used.
type Price struct {
	Origin string `koanf:"origin"`
	Model  string `koanf:"model"`
	Input  int64  `koanf:"input_usd_micros"`
	Output int64  `koanf:"output_usd_micros"`

	origin string
}

const (
	maxPrice  = 1 << 40 // micro-dollars for a million tokens
	maxTokens = 1 << 20 // of one answer
	million   = 1_000_000
)

// ready returns p with its origin in the form that is compared.
func (p Price) ready() (_ Price, err error) {
	switch {
	case p.Model == "":
		return p, fmt.Errorf("%s: model is missing", p.Origin)
	case min(p.Input, p.Output) < 0 || max(p.Input, p.Output) > maxPrice:
		return p, fmt.Errorf("%s %s: prices are 0 to %d", p.Origin, p.Model, int64(maxPrice))
	}
	p.origin, err = origin(p.Origin)
	return p, err
}

// cost rounds up.
func (p *Price) cost(in, out int64) int64 {
	f := math.Ceil((float64(in)*float64(p.Input) + float64(out)*float64(p.Output)) / million)
	return int64(min(f, 1<<50))
}

// price is what a request may cost at most: a token is at least one byte, and the answer is as long
// as the request allows. It is nil at an origin without prices.
func (e *Egress) price(r request) (p *Price, micros int64, err error) {
	bad := func(code, format string, args ...any) (*Price, int64, error) {
		return nil, 0, fail(code, r.origin()+" is metered (egress.prices): "+format, args...)
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
	// strict: a model that is there twice could be another one to the server
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
		return nil, fail("cost", "%d micro-dollars would have to be reserved and there is no "+
			"budget (egress.usd_micros_per_day)", micros)
	}
	put, err := e.opts.Ledger.Reserve(ctx, principal, micros, e.opts.USDMicrosPerDay)
	if err != nil {
		return nil, fail("cost", "%v", err)
	}
	// what is not settled stays spent
	return func(spent int64) { _ = put(context.WithoutCancel(ctx), spent) }, nil
}

// spent is what an answer cost: what the server counted, at the host's prices. An answer that
// counts nothing cost all that was reserved.
func (p *Price) spent(status int, body []byte, reserved int64) int64 {
	if p == nil {
		return reserved
	}
	if status >= 400 {
		return 0
	}
	in, out, known := usage(body)
	if !known {
		return reserved
	}
	return p.cost(in, out)
}

// usage reads what OpenAI-compatible and Anthropic servers count. A count that is missing or not
// possible is not known.
func usage(body []byte) (in, out int64, known bool) {
	var r struct {
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Input      int64 `json:"input_tokens"`
			Output     int64 `json:"output_tokens"`
			Created    int64 `json:"cache_creation_input_tokens"`
			Read       int64 `json:"cache_read_input_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(body, &r) != nil {
		return 0, 0, false
	}
	u := r.Usage
	for _, n := range []int64{u.Prompt, u.Completion, u.Input, u.Output, u.Created, u.Read} {
		if n < 0 || n > 1<<40 {
			return 0, 0, false
		}
	}
	in, out = u.Prompt+u.Input+u.Created+u.Read, u.Completion+u.Output
	return in, out, in > 0
}

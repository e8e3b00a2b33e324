package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Price is what a model costs at an origin, in micro-dollars for a million tokens. An origin with
// prices is metered: every request there that is not GET or HEAD must name one of its models and
// limit its answer, so the list is also that of the models that may be used.
type Price struct {
	Origin  string `koanf:"origin"`
	Model   string `koanf:"model"`
	Input   int64  `koanf:"input_usd_micros"`
	Output  int64  `koanf:"output_usd_micros"`
	Minimum int64  `koanf:"minimum_usd_micros"` // reserved for each request, at least

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
	case min(p.Input, p.Output, p.Minimum) < 0 || max(p.Input, p.Output, p.Minimum) > maxPrice:
		return p, fmt.Errorf("%s %s: prices are 0 to %d", p.Origin, p.Model, int64(maxPrice))
	}
	p.origin, err = origin(p.Origin)
	return p, err
}

// cost rounds up.
func (p *Price) cost(in, out int64) int64 {
	f := math.Ceil((float64(in)*float64(p.Input) + float64(out)*float64(p.Output)) / million)
	return max(int64(min(f, 1<<50)), p.Minimum)
}

// price is what a request may cost at most: a token is at least one byte, and the answer is as long
// as the request allows. It is nil at an origin without prices.
func (e *Egress) price(t target, method string, body []byte) (p *Price, micros int64, err error) {
	metered := slices.ContainsFunc(e.opts.Prices,
		func(p Price) bool { return p.origin == t.origin() })
	if !metered || safe(method) {
		return nil, 0, nil
	}
	// strict: a model that is there twice could be another one to the server
	v, err := abi.Decode(body, len(body))
	m, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, 0, fail("cost",
			"%s is metered (egress.prices): the body must be one JSON object without repeated keys",
			t.origin())
	}
	model, _ := m["model"].(string)
	i := slices.IndexFunc(e.opts.Prices,
		func(p Price) bool { return p.origin == t.origin() && p.Model == model })
	if i < 0 {
		return nil, 0, fail("model", "the model %.64q is not among those of %s (egress.prices): %s",
			model, t.origin(), strings.Join(e.models(t.origin()), ", "))
	}
	out, given := int64(0), 0
	for _, key := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if n, isInt := m[key].(int64); isInt {
			out, given = max(out, n), given+1
		}
	}
	answers := int64(1)
	if n, there := m["n"]; there {
		if answers, ok = n.(int64); !ok || answers < 1 || answers > 16 {
			return nil, 0, fail("cost", "n must be 1 to 16")
		}
	}
	if stream, _ := m["stream"].(bool); stream || given == 0 || out < 1 || out > maxTokens {
		return nil, 0, fail("cost",
			"%s is metered (egress.prices): give max_tokens, 1 to %d, and do not stream",
			t.origin(), maxTokens)
	}
	p = &e.opts.Prices[i]
	return p, p.cost(int64(len(body)), out*answers), nil
}

func (e *Egress) models(origin string) (names []string) {
	for _, p := range e.opts.Prices {
		if p.origin == origin {
			names = append(names, p.Model)
		}
	}
	return names
}

// reserve takes the money before anything is sent. settle is never nil.
func (e *Egress) reserve(
	ctx context.Context, principal string, micros int64,
) (settle func(spent int64), err error) {
	if micros == 0 {
		return func(int64) {}, nil
	}
	if e.opts.Ledger == nil || e.opts.USDMicrosPerDay == 0 {
		return nil, fail("cost",
			"%d micro-dollars would have to be reserved and there is no budget "+
				"(egress.usd_micros_per_day)",
			micros)
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
		return min(p.Minimum, reserved)
	}
	u, err := usage(body)
	if err != nil {
		return reserved
	}
	return p.cost(u.in, u.out)
}

type tokens struct{ in, out int64 }

// usage reads what OpenAI-compatible and Anthropic servers count.
func usage(body []byte) (tokens, error) {
	var r struct {
		Usage *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Input      int64 `json:"input_tokens"`
			Output     int64 `json:"output_tokens"`
			Created    int64 `json:"cache_creation_input_tokens"`
			Read       int64 `json:"cache_read_input_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &r); err != nil || r.Usage == nil {
		return tokens{}, errors.New("the answer does not say what was used")
	}
	u := r.Usage
	for _, n := range []int64{u.Prompt, u.Completion, u.Input, u.Output, u.Created, u.Read} {
		if n < 0 || n > 1<<40 {
			return tokens{}, errors.New("the answer's count is not possible")
		}
	}
	t := tokens{u.Prompt + u.Input + u.Created + u.Read, u.Completion + u.Output}
	if t.in == 0 {
		return t, errors.New("the answer counts nothing")
	}
	return t, nil
}

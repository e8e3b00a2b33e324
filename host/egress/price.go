package egress

import (
	"encoding/json"
	"fmt"
	"math"
)

// Price is what a model costs at an origin, in micro-dollars for a million tokens. An origin with
// prices is metered: every request but GET and HEAD must name a listed model and limit its answer.
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

// spent returns the cost of an answer: the server's counts at the host's prices. An answer without
// counts costs everything that was reserved.
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

// usage reads what OpenAI-compatible and Anthropic servers count. An impossible count is unknown.
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

package front

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

const (
	maxValues  = 100 // of a completion, as MCP has it
	maxAsked   = 200 // that policy is asked about for one
	maxCallers = 1000
	maxGuests  = 1000
	knownTime  = time.Hour
	maxHarvest = 10_000 // values that are looked at in one output
)

// known are the guests that each caller's own calls came across. Nobody is asked for a completion:
// what is not known is not offered.
type known struct {
	mu sync.Mutex // guards of
	of map[string]map[int64]time.Time
}

func (k *known) note(caller string, guests []int64, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	mine := k.of[caller]
	if mine == nil {
		if k.of == nil || len(k.of) >= maxCallers {
			k.of = map[string]map[int64]time.Time{}
		}
		mine = map[int64]time.Time{}
		k.of[caller] = mine
	}
	for _, g := range guests {
		if _, again := mine[g]; again || len(mine) < maxGuests {
			mine[g] = now
		}
	}
}

func (k *known) guests(caller string, now time.Time) []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []int64
	for g, seen := range k.of[caller] {
		if now.Sub(seen) < knownTime {
			all = append(all, g)
		} else {
			delete(k.of[caller], g)
		}
	}
	slices.Sort(all)
	return all
}

// argument is what completion needs of a schema's property.
type argument struct {
	Target string   `json:"x-caponier-target"`
	Enum   []string `json:"enum"`
	Items  struct {
		Target string `json:"x-caponier-target"`
	} `json:"items"`
}

// argumentsOf reads a schema that the lock has checked already; what cannot be completed is left
// out.
func argumentsOf(schema json.RawMessage) map[string]argument {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	all := map[string]argument{}
	for name, raw := range s.Properties {
		var a argument
		if json.Unmarshal(raw, &a) == nil {
			all[name] = a
		}
	}
	return all
}

// guestNames are the names under which plugins speak of guests: those of the arguments that the
// lock marks so, unless another argument of that name is marked as something else.
func guestNames(all offers) map[string]bool {
	names := map[string]bool{}
	for _, o := range all {
		for name, a := range o.args {
			if mark := cmp.Or(a.Target, a.Items.Target); mark != "" {
				was, met := names[name]
				names[name] = mark == "vmid" && (was || !met)
			}
		}
	}
	return names
}

// came notes the guests that a call which succeeded named, or told of.
func (s *Server) came(who caller, a gate.Answer, args, structured json.RawMessage) {
	if a.Outcome != gate.Succeeded {
		return
	}
	s.mu.RLock()
	names := s.guestNames
	s.mu.RUnlock()
	var found []int64
	left := maxHarvest
	for _, data := range []json.RawMessage{args, structured} {
		if !slices.ContainsFunc(
			keysOf(names),
			func(name string) bool { return bytes.Contains(data, []byte(`"`+name+`"`)) },
		) {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var v any
		if d.Decode(&v) == nil {
			found = guestsIn(v, "", names, found, &left)
		}
	}
	if len(found) > 0 {
		s.known.note(who.asKnown(), found, time.Now())
	}
}

func keysOf(names map[string]bool) (keys []string) {
	for name, isGuest := range names {
		if isGuest {
			keys = append(keys, name)
		}
	}
	return keys
}

func guestsIn(v any, name string, names map[string]bool, found []int64, left *int) []int64 {
	if *left--; *left < 0 {
		return found
	}
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); names[name] && err == nil && n > 0 {
			found = append(found, n)
		}
	case []any:
		for _, e := range v {
			found = guestsIn(e, name, names, found, left)
		}
	case map[string]any:
		for k, e := range v {
			found = guestsIn(e, k, names, found, left)
		}
	}
	return found
}

// asKnown keeps apart also what callers of one name with other roles came across.
func (c caller) asKnown() string { return fmt.Sprintf("%s %q", c.owner(), c.Roles) }

// complete offers values for an argument of a prompt or of a resource's URI: choices of its schema,
// nodes of the inventory, guests that the caller's own calls came across. Each is asked about
// first, as anything in a list: what policy could not let the caller name is not offered.
func (s *Server) complete(
	ctx context.Context,
	req *mcp.CompleteRequest,
) (*mcp.CompleteResult, error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, err
	}
	res := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	ref, name, begin := req.Params.Ref, req.Params.Argument.Name, req.Params.Argument.Value
	if ref == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "ref is missing"}
	}
	k := offerKey{"prompt", ref.Name}
	if ref.Type == "ref/resource" {
		if ref.URI == keptTemplate {
			return res, nil
		}
		k = offerKey{"resource", ref.URI}
	}
	s.mu.RLock()
	o := s.offer[k]
	s.mu.RUnlock()
	if isFixture(ref.Name) {
		return res, nil
	}
	if o.Tool == nil || !s.sees(ctx, who, o.Tool) {
		return nil, unknown(k.kind, k.key)
	}
	a, has := o.args[name]
	if !has {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("%s %q has no argument %q", k.kind, k.key, clean(name)),
		}
	}
	var values []string
	switch {
	case len(a.Enum) > 0:
		values = a.Enum
	case a.Target == "node":
		values = s.opts.Nodes
	case a.Target == "vmid":
		for _, g := range s.known.guests(who.asKnown(), time.Now()) {
			values = append(values, strconv.FormatInt(g, 10))
		}
	}
	asked := 0
	for _, v := range values {
		if !strings.HasPrefix(v, begin) {
			continue
		}
		if asked++; asked > maxAsked || len(res.Completion.Values) == maxValues {
			res.Completion.HasMore = true
			break
		}
		if !s.couldName(ctx, who, o.Tool, name, v) {
			continue
		}
		res.Completion.Values = append(res.Completion.Values, v)
	}
	return res, nil
}

// couldName asks about the value as it would arrive in a call.
func (s *Server) couldName(ctx context.Context, who caller, t *gate.Tool, name, value string) bool {
	if t.Texts == nil || t.Derive == nil {
		return false
	}
	on, _, err := t.Derive(t.Texts(map[string]string{name: value}))
	return err == nil && s.door.Visible(ctx, who.Principal, who.source, t, on)
}

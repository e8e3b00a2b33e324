package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

const guestSchema = `{"type":"object","properties":{"vmid":{"type":"integer","x-caponier-target":"vmid"},"node":{"type":"string","x-caponier-target":"node"},"how":{"type":"string","enum":["soft","hard"]},"why":{"type":"string"}}}`

// aboutGuests makes a prompt or resource as the lock would: vmid is a number, the rest is text.
func aboutGuests(kind, name, uri string) *gate.Tool {
	t := &gate.Tool{
		Kind:        kind,
		Name:        name,
		URI:         uri,
		InputSchema: json.RawMessage(guestSchema),
		Texts: func(given map[string]string) map[string]any {
			args := map[string]any{}
			for k, v := range given {
				args[k] = v
				if n, err := strconv.ParseInt(v, 10, 64); k == "vmid" && err == nil {
					args[k] = n
				}
			}
			return args
		},
		Derive: func(args map[string]any) (on gate.Targets, _ []gate.CommandText, err error) {
			if n, has := args["vmid"]; has {
				if n, isNumber := n.(int64); !isNumber || n < 100 {
					return on, nil, errors.New("no VMID")
				}
				on.VMIDs = []string{fmt.Sprint(n)}
			}
			if n, has := args["node"].(string); has {
				on.Nodes = []string{n}
			}
			return on, nil, nil
		},
	}
	if uri != "" {
		t.Match = func(uri string) (map[string]string, bool) {
			parts := strings.Split(uri, "/") // pve: "" NODE guests VMID
			if len(parts) != 5 || parts[0] != "pve:" || parts[3] != "guests" {
				return nil, false
			}
			return map[string]string{"node": parts[2], "vmid": parts[4]}, true
		}
	}
	return t
}

func guestServer(t *testing.T) (*Server, *fakeDoor) {
	list := tool("list", gate.Hints{ReadOnly: true})
	list.InputSchema = json.RawMessage(guestSchema)
	door := &fakeDoor{calls: map[string]func(context.Context, gate.Request) gate.Answer{
		"list": says(
			`{"content":[],"structured":{"guests":[{"vmid":101,"mem":999},{"vmid":103},{"vmid":1105,"vmids":[7]}],"vmid":"102","node":"elsewhere"}}`,
		),
		"fails": func(ctx context.Context, r gate.Request) gate.Answer {
			a := says(`{"error":{"code":"x","message":"y"}}`)(ctx, r)
			a.Outcome, a.Output.Code = gate.Failed, 1
			return a
		},
		"check": says(`{"messages":[]}`),
		"guest": func(ctx context.Context, r gate.Request) gate.Answer {
			return says(
				fmt.Sprintf(`{"contents":[{"uri":"x://x","text":%q}]}`, r.Arguments),
			)(
				ctx,
				r,
			)
		},
	}}
	s := newServer(
		t,
		&fakeDoor{},
		func(o *Options) { o.Nodes = []string{"pve1", "pve2", "hidden"} },
	)
	s.door = door
	if err := s.SetTools([]*gate.Tool{list, tool("fails", gate.Hints{}), aboutGuests("prompt", "check", ""), aboutGuests("prompt", "unseen", ""), aboutGuests("resource", "guest", "pve://{node}/guests/{vmid}")}); err != nil {
		t.Fatal(err)
	}
	return s, door
}

func TestCompletionOffersWhatIsKnownAndMayBeSeen(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := guestServer(t)
			cs := connect(t, s, nil)
			complete := func(ref *mcp.CompleteReference, arg, begin string) string {
				t.Helper()
				r, err := cs.Complete(
					t.Context(),
					&mcp.CompleteParams{
						Ref:      ref,
						Argument: mcp.CompleteParamsArgument{Name: arg, Value: begin},
					},
				)
				if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
					return fmt.Sprint(wire.Code)
				}
				if err != nil {
					t.Fatal(err)
				}
				return strings.Join(r.Completion.Values, " ")
			}
			check, guest := &mcp.CompleteReference{
				Type: "ref/prompt",
				Name: "check",
			}, &mcp.CompleteReference{
				Type: "ref/resource",
				URI:  "pve://{node}/guests/{vmid}",
			}
			if got := complete(check, "vmid", ""); got != "" {
				t.Errorf("before anything is known: %s", got)
			}
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "fails", Arguments: map[string]any{"vmid": 666}}); err != nil {
				t.Fatal(err)
			}
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "list", Arguments: map[string]any{"vmid": 104, "mem": 5}}); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				ref              *mcp.CompleteReference
				arg, begin, want string
			}{
				// not 103, which policy hides, 102, which is a text, or 666, which failed
				{check, "vmid", "", "101 104 1105"},
				{check, "vmid", "10", "101 104"},
				{check, "vmid", "x", ""},
				{check, "node", "", "pve1 pve2"},
				{check, "how", "s", "soft"},
				{check, "why", "", ""},
				{check, "none", "", "-32602"},
				{guest, "vmid", "11", "1105"},
				{guest, "node", "pve2", "pve2"},
				{&mcp.CompleteReference{Type: "ref/prompt", Name: "unseen"}, "vmid", "", "-32602"},
				{&mcp.CompleteReference{Type: "ref/prompt", Name: "none"}, "vmid", "", "-32602"},
				{&mcp.CompleteReference{Type: "ref/resource", URI: keptTemplate}, "id", "", ""},
			} {
				if got := complete(c.ref, c.arg, c.begin); got != c.want {
					t.Errorf(
						"%s%s %s %q: %q, want %q",
						c.ref.Name,
						c.ref.URI,
						c.arg,
						c.begin,
						got,
						c.want,
					)
				}
			}
		})
	}
}

func TestWhatACallerKnowsIsItsOwn(t *testing.T) {
	s, _ := guestServer(t)
	url, _ := serve(t, s)
	as := func(id string) *mcp.ClientSession {
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: asPrincipal{id}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cs.Close() })
		return cs
	}
	a, b := as("a"), as("b")
	if _, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "list"}); err != nil {
		t.Fatal(err)
	}
	for cs, want := range map[*mcp.ClientSession]int{a: 2, b: 0} {
		r, err := cs.Complete(
			t.Context(),
			&mcp.CompleteParams{
				Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "check"},
				Argument: mcp.CompleteParamsArgument{Name: "vmid"},
			},
		)
		if err != nil || len(r.Completion.Values) != want {
			t.Errorf("%v %v, want %d", err, r, want)
		}
	}
	narrow := caller{Principal: gate.Principal{ID: "a", Auth: "config", Roles: []string{"viewer"}}}
	if got := s.known.guests(narrow.asKnown(), time.Now()); len(got) != 0 {
		t.Errorf("a token of the same principal for fewer roles knows %v", got)
	}
}

func TestWhatIsKnownIsBoundedAndForgotten(t *testing.T) {
	var k known
	now := time.Now()
	for i := range 2 * maxCallers {
		k.note(fmt.Sprint("caller ", i), []int64{1}, now)
	}
	if len(k.of) > maxCallers {
		t.Errorf("%d callers are kept", len(k.of))
	}
	for i := range 2 * maxGuests {
		k.note("me", []int64{int64(i)}, now)
	}
	if got := len(k.guests("me", now)); got != maxGuests {
		t.Errorf("%d guests are kept", got)
	}
	if got := k.guests("me", now.Add(knownTime)); len(got) != 0 {
		t.Errorf("after an hour %d are known", len(got))
	}
}

func TestAResourceWithArgumentsGoesThroughTheDoor(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, door := guestServer(t)
			cs := connect(t, s, nil)
			list, err := cs.ListResourceTemplates(t.Context(), nil)
			if err != nil || len(list.ResourceTemplates) != 2 {
				t.Fatalf("%v %+v", err, list)
			}
			got, err := cs.ReadResource(
				t.Context(),
				&mcp.ReadResourceParams{URI: "pve://pve1/guests/105"},
			)
			if err != nil || got.Contents[0].Text != `{"node":"pve1","vmid":105}` {
				t.Errorf("%v: the door was given %+v", err, got)
			}
			for _, uri := range []string{"pve://pve1/guests/105/x", "pve://pve1/guest/105", "pve://pve1/guests%2F105"} {
				if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil ||
					!strings.Contains(strings.ToLower(err.Error()), "not found") {
					t.Errorf("%s: %v", uri, err)
				}
			}
			asked := len(door.asked)
			second := aboutGuests("resource", "guest", "pve://{node}/guests/{vmid}/{x}")
			second.Match = func(string) (map[string]string, bool) { return map[string]string{}, true }
			if err := s.SetTools([]*gate.Tool{aboutGuests("resource", "guest", "pve://{node}/guests/{vmid}"), second}); err != nil {
				t.Fatal(err)
			}
			if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "pve://pve1/guests/105"}); err == nil ||
				len(door.asked) != asked {
				t.Errorf("a URI that means two resources was read: %v", err)
			}
			own := aboutGuests("resource", "own", "caponier://results/{id}")
			if err := s.SetTools([]*gate.Tool{own}); err == nil ||
				!strings.Contains(err.Error(), "the host's own") {
				t.Errorf("a plugin may take the host's scheme: %v", err)
			}
		})
	}
}

// Lists ask policy about much, so one caller cannot have the host do nothing else; a list is still
// given while calls wait.
func TestListsAtOnceAreLimitedApartFromCalls(t *testing.T) {
	s, door := guestServer(t)
	s.opts.MaxCalls = 2
	release, entered := make(chan error), make(chan error, 10)
	door.calls["list"] = func(ctx context.Context, r gate.Request) gate.Answer {
		entered <- nil
		<-release
		return says(`{"content":[]}`)(ctx, r)
	}
	url, _ := serve(t, s)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	ended := make(chan error, 1)
	go func() { _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "list"}); ended <- err }()
	soon(t, "the call runs", entered)
	if _, err := cs.ListTools(t.Context(), nil); err != nil {
		t.Errorf("a list while a call runs: %v", err)
	}
	who := caller{Principal: gate.Principal{ID: "demo", Auth: "config"}}
	if !s.listing.begin(who, s.opts.MaxCalls) { // a list that takes long
		t.Fatal("no room for the first")
	}
	var wire *jsonrpc.Error
	if _, err := cs.ListTools(t.Context(), nil); !errors.As(err, &wire) || wire.Code != codeBusy {
		t.Errorf("one too many: %v", err)
	}
	s.listing.end(who)
	close(release)
	if err := soon(t, "the call ends", ended); err != nil {
		t.Error(err)
	}
	s.known.note(
		caller{Principal: gate.Principal{ID: "demo", Auth: "config"}}.asKnown(),
		func() (many []int64) {
			for i := range int64(maxAsked) + 1 {
				many = append(many, 200+i)
			}
			return many
		}(),
		time.Now(),
	)
	r, err := cs.Complete(
		t.Context(),
		&mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "check"},
			Argument: mcp.CompleteParamsArgument{Name: "vmid"},
		},
	)
	if err != nil || len(r.Completion.Values) != maxValues || !r.Completion.HasMore {
		t.Errorf("%v %d values, more %v", err, len(r.Completion.Values), r.Completion.HasMore)
	}
}

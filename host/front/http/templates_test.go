package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const guestSchema = `{"type":"object","properties":{"vmid":{"type":"integer",` +
	`"x-caponier-target":"vmid"},"node":{"type":"string","x-caponier-target":"node"},` +
	`"how":{"type":"string","enum":["soft","hard"]},"why":{"type":"string"}}}`

// aboutGuests makes a prompt or resource as the lock would: vmid is a number, the rest is text.
func aboutGuests(kind, name, uri string) *terms.Tool {
	t := &terms.Tool{
		Kind:        kind,
		Name:        name,
		URI:         uri,
		InputSchema: json.RawMessage(guestSchema),
		Params: []terms.Param{{Name: "how", Enum: []string{"soft", "hard"}},
			{Name: "node", Target: "node"}, {Name: "vmid", Target: "vmid"}, {Name: "why"}},
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
		Derive: func(_ terms.Principal, args map[string]any) (on terms.Targets,
			_ []terms.CommandText,
			err error) {
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

func guestServer(t *testing.T) (*host, *fakeDoor) {
	list := tool("list", terms.Hints{ReadOnly: true})
	list.InputSchema = json.RawMessage(guestSchema)
	door := &fakeDoor{Calls: map[string]func(context.Context, terms.Request) terms.Answer{
		"list": says(
			`{"content":[],"structured":{"guests":[{"vmid":101,"mem":999},{"vmid":103},` +
				`{"vmid":1105,"vmids":[7]}],"vmid":"102","node":"elsewhere"}}`,
		),
		"fails": func(ctx context.Context, r terms.Request) terms.Answer {
			a := says(`{"error":{"code":"x","message":"y"}}`)(ctx, r)
			a.Outcome, a.Output.Code = terms.Failed, 1
			return a
		},
		"check": says(`{"messages":[]}`),
		"guest": func(ctx context.Context, r terms.Request) terms.Answer {
			return says(
				fmt.Sprintf(`{"contents":[{"uri":"x://x","text":%q}]}`, r.Arguments),
			)(
				ctx,
				r,
			)
		},
	}}
	s := newServer(t, door, func(o *opts) {
		o.MaxCalls = 2
	})
	if err := s.SetTools([]*terms.Tool{list, tool("fails", terms.Hints{}), aboutGuests("prompt", "check", ""), aboutGuests("prompt", "unseen", ""), aboutGuests("resource", "guest", "pve://{node}/guests/{vmid}")}); err != nil {
		t.Fatal(err)
	}
	return s, door
}

func TestAResourceWithArgumentsGoesThroughTheDoor(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, door := guestServer(t)
			cs := connect(t, s, nil)
			list, err := cs.ListResourceTemplates(t.Context(), nil)
			if err != nil || len(list.ResourceTemplates) != 1 {
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
				if _, err := cs.ReadResource(t.Context(),
					&mcp.ReadResourceParams{URI: uri}); err == nil ||
					!strings.Contains(strings.ToLower(err.Error()), "not found") {
					t.Errorf("%s: %v", uri, err)
				}
			}
			asked := len(door.Asked())
			second := aboutGuests("resource", "guest", "pve://{node}/guests/{vmid}/{x}")
			second.Match = func(string) (map[string]string, bool) {
				return map[string]string{}, true
			}
			if err := s.SetTools([]*terms.Tool{aboutGuests("resource", "guest", "pve://{node}/guests/{vmid}"), second}); err != nil {
				t.Fatal(err)
			}
			if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "pve://pve1/guests/105"}); err == nil ||
				len(door.Asked()) != asked {
				t.Errorf("a URI that means two resources was read: %v", err)
			}
			own := aboutGuests("resource", "own", "caponier://results/{id}")
			if err := s.SetTools([]*terms.Tool{own}); err == nil ||
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
	release, entered := make(chan error), make(chan error, 10)
	door.Calls["list"] = func(ctx context.Context, r terms.Request) terms.Answer {
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
	go func() {
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "list"})
		ended <- err
	}()
	soon(t, "the call runs", entered)
	if _, err := cs.ListTools(t.Context(), nil); err != nil {
		t.Errorf("a list while a call runs: %v", err)
	}
	close(release)
	if err := soon(t, "the call ends", ended); err != nil {
		t.Error(err)
	}
}

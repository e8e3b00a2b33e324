package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAnnotationsTrustNoToolsWord(t *testing.T) {
	for _, c := range []struct {
		hints                 terms.Hints
		tier                  terms.Tier
		readOnly, destructive bool
	}{
		{terms.Hints{ReadOnly: true}, terms.Green, true, false},
		{terms.Hints{ReadOnly: true}, terms.Yellow, false, false},
		{terms.Hints{ReadOnly: true}, terms.Red, false, true},
		{terms.Hints{ReadOnly: true}, terms.Black, false, true},
		{terms.Hints{ReadOnly: true}, terms.NoTier, false, true},
		{terms.Hints{ReadOnly: true, Destructive: true}, terms.Green, false, true},
		{terms.Hints{}, terms.Green, false, false},
		{terms.Hints{Destructive: true}, terms.Yellow, false, true},
	} {
		a := annotations(&terms.Tool{Hints: c.hints}, c.tier)
		if a.ReadOnlyHint != c.readOnly || *a.DestructiveHint != c.destructive ||
			a.OpenWorldHint == nil {
			t.Errorf("%+v in %v: %+v, destructive %v", c.hints, c.tier, a, *a.DestructiveHint)
		}
	}
}

func TestADescriptionSaysTheTierAndWhoApproves(t *testing.T) {
	people := terms.Obligations{Channels: []string{"cli"}, Approvers: []string{"*"}}
	for want, d := range map[string]terms.Decision{
		"Tier green.":                            {Tier: terms.Green, Obligations: people},
		"Tier yellow.":                           {Tier: terms.Yellow, Obligations: people},
		"Tier red: a person approves each call.": {Tier: terms.Red, Obligations: people},
		"Tier red: set confirmed.": {Tier: terms.Red,
			Obligations: terms.Obligations{Argument: true}},
		"Tier red: refused, since nobody can approve it.": {Tier: terms.Red},
		"Tier black.":                          {Tier: terms.Black, Obligations: people},
		"Tier unknown: policy did not answer.": {Obligations: people},
	} {
		if got := tells(&terms.Tool{Confirm: "confirmed"}, d); got != want {
			t.Errorf("%+v: %q, want %q", d, got, want)
		}
	}
	for _, c := range []struct {
		channels, approvers []string
		can                 bool
	}{{[]string{"web"}, nil, false}, {nil, []string{"*"}, false}, {[]string{"client"}, nil, true},
		{[]string{"web"}, []string{"ann"}, true}} {
		got := tells(&terms.Tool{}, terms.Decision{Tier: terms.Red,
			Obligations: terms.Obligations{Channels: c.channels, Approvers: c.approvers}})
		if strings.Contains(got, "a person approves") != c.can {
			t.Errorf("channels %v, approvers %v: %q", c.channels, c.approvers, got)
		}
	}
	d := terms.Decision{Tier: terms.Red, Obligations: terms.Obligations{Argument: true}}
	if got := tells(&terms.Tool{}, d); got != "Tier red: refused, since nobody can approve it." {
		t.Errorf("a tool without a confirmation argument: %q", got)
	}
}

// list returns the tools that a caller is shown, by name.
func list(t *testing.T, s *Server) map[string]*mcp.Tool {
	t.Helper()
	var all []*mcp.Tool
	for _, o := range s.offered() {
		all = append(all, o.face.(*mcp.Tool))
	}
	shown := map[string]*mcp.Tool{}
	for _, d := range s.visibleTools(t.Context(), Caller{}, all) {
		shown[d.Name] = d
	}
	return shown
}

func TestAnAliasIsListedUnlessTheOtherToolIsThereForTheCaller(t *testing.T) {
	for claim, c := range map[string]struct {
		of       string
		tier     map[string]terms.Tier
		lists    bool
		isListed bool
	}{
		"left out beside the other": {of: "hello"},
		"left out beside a lower tier": {of: "hello",
			tier: map[string]terms.Tier{"x": terms.Red}},
		"listed if its own tier is lower": {of: "hello",
			tier: map[string]terms.Tier{"hello": terms.Red}, isListed: true},
		"listed if policy has no answer": {of: "hello",
			tier: map[string]terms.Tier{"hello": terms.NoTier}, isListed: true},
		"listed if the other is not there": {of: "nowhere", isListed: true},
		"listed if the other is hidden":    {of: "hidden", isListed: true},
		"listed if the other is an alias":  {of: "alias", isListed: true},
		"listed where the site asks":       {of: "hello", lists: true, isListed: true},
	} {
		t.Run(claim, func(t *testing.T) {
			door := helloDoor()
			door.Calls["x"], door.Calls["alias"] = door.Calls["hello"], door.Calls["hello"]
			s := newServer(t, door, func(o *Options) {
				o.Lists = func(*terms.Tool) bool { return c.lists }
				o.Listing = func(_ context.Context, _ terms.Principal,
					t *terms.Tool) terms.Decision {
					if tier, has := c.tier[t.Name]; has {
						return terms.Decision{Tier: tier}
					}
					return terms.Decision{Tier: terms.Yellow}
				}
			})
			tools := door.Tools()
			for _, tool := range tools {
				switch tool.Name {
				case "x":
					tool.AliasOf = c.of
				case "alias":
					tool.AliasOf = "hello"
				}
			}
			if err := s.SetTools(tools); err != nil {
				t.Fatal(err)
			}
			if _, listed := list(t, s)["x"]; listed != c.isListed {
				t.Errorf("listed: %v", listed)
			}
			if s.find("tool", "x") == nil {
				t.Error("it cannot be called")
			}
		})
	}
}

func TestTheConfirmationIsListedOnlyWhereItCounts(t *testing.T) {
	const optional = `{"type":"object","properties":{"yes":{"type":"boolean",` +
		`"x-caponier-confirm":true},"n":{"type":"integer"}},"additionalProperties":false}`
	const needed = `{"type":"object","properties":{"yes":{"type":"boolean",` +
		`"x-caponier-confirm":true}},"required":["yes"],"additionalProperties":false}`
	for _, c := range []struct {
		schema   string
		argument bool
		listed   bool
	}{{optional, false, false}, {optional, true, true}, {needed, false, true}, {needed, true,
		true}} {
		s := newServer(t, helloDoor(), func(o *Options) {
			o.Listing = func(context.Context, terms.Principal, *terms.Tool) terms.Decision {
				return terms.Decision{Tier: terms.Red,
					Obligations: terms.Obligations{Argument: c.argument}}
			}
		})
		x := tool("hello", terms.Hints{})
		x.InputSchema, x.Confirm = json.RawMessage(c.schema), "yes"
		if err := s.SetTools([]*terms.Tool{x}); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(list(t, s)["hello"].InputSchema)
		if got := strings.Contains(string(text), `"yes"`); got != c.listed {
			t.Errorf("argument %v: %s", c.argument, text)
		}
	}
}

func TestToolsThatCannotBeOfferedAreNamed(t *testing.T) {
	noSchema, badName, list := tool(
		"a",
		terms.Hints{},
	), tool(
		"a b",
		terms.Hints{},
	), tool(
		"a",
		terms.Hints{},
	)
	noSchema.InputSchema = nil
	list.InputSchema = json.RawMessage(`{"type":"array"}`)
	for _, c := range []struct {
		says  string
		tools []*terms.Tool
	}{
		{"missing input schema", []*terms.Tool{noSchema}},
		{"the name must be", []*terms.Tool{badName}},
		{"fixture has it too", []*terms.Tool{tool("a", terms.Hints{}), tool("a", terms.Hints{})}},
		{`type "object"`, []*terms.Tool{list}},
	} {
		s := newServer(t, helloDoor(), nil)
		if err := s.SetTools(c.tools); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q, got %v", c.says, err)
		}
		if s.find("tool", "hello") == nil {
			t.Error("a refused list took the old one away")
		}
	}
}

func TestPublicSchemaHasNoKeywordsOfTheHost(t *testing.T) {
	for claim, c := range map[string][2]string{
		"marks go": {`{"type":"object",` +
			`"properties":{"vmid":{"type":"integer","x-caponier-target":"vmid"},` +
			`"ok":{"type":"boolean","x-caponier-confirm":true}}}`,
			`{"properties":{"ok":{"type":"boolean"},"vmid":{"type":"integer"}},"type":"object"}`},
		"an argument may be called so": {
			`{"properties":{"x-caponier-target":{"type":"string","x-caponier-target":"node"}}}`,
			`{"properties":{"x-caponier-target":{"type":"string"}}}`},
		"an argument called properties is one": {
			`{"properties":{"properties":{"x-caponier-target":"node","type":"string"}}}`,
			`{"properties":{"properties":{"type":"string"}}}`},
		"items and definitions are looked into": {`{"$defs":{"a":{"x-caponier-target":"url"}},` +
			`"items":{"x-caponier-target":"url"},"anyOf":[{"x-caponier-confirm":true}]}`,
			`{"$defs":{"a":{}},"anyOf":[{}],"items":{}}`},
		"a value that looks like a keyword stays": {
			`{"default":{"x-caponier-target":"a"},"enum":[{"x-caponier-target":"a"}]}`,
			`{"default":{"x-caponier-target":"a"},"enum":[{"x-caponier-target":"a"}]}`},
		"numbers stay as they are": {`{"maximum":999999999,"minimum":0.5}`,
			`{"maximum":999999999,"minimum":0.5}`},
		"text that is not JSON is left as it is": {`{`, `{`},
	} {
		if got := string(public(json.RawMessage(c[0]))); got != c[1] {
			t.Errorf("%s: %s, want %s", claim, got, c[1])
		}
	}
}

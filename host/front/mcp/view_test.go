package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

func TestAnnotationsTrustNoToolsWord(t *testing.T) {
	for _, c := range []struct {
		hints                 gate.Hints
		tier                  gate.Tier
		readOnly, destructive bool
	}{
		{gate.Hints{ReadOnly: true}, gate.Green, true, false},
		{gate.Hints{ReadOnly: true}, gate.Yellow, false, false},
		{gate.Hints{ReadOnly: true}, gate.Red, false, true},
		{gate.Hints{ReadOnly: true}, gate.Black, false, true},
		{gate.Hints{ReadOnly: true}, gate.NoTier, false, true},
		{gate.Hints{ReadOnly: true, Destructive: true}, gate.Green, false, true},
		{gate.Hints{}, gate.Green, false, false},
		{gate.Hints{Destructive: true}, gate.Yellow, false, true},
	} {
		a := annotations(&gate.Tool{Hints: c.hints}, c.tier)
		if a.ReadOnlyHint != c.readOnly || *a.DestructiveHint != c.destructive ||
			a.OpenWorldHint == nil {
			t.Errorf("%+v in %v: %+v, destructive %v", c.hints, c.tier, a, *a.DestructiveHint)
		}
	}
}

func TestToolsThatCannotBeOfferedAreNamed(t *testing.T) {
	noSchema, badName, list := tool(
		"a",
		gate.Hints{},
	), tool(
		"a b",
		gate.Hints{},
	), tool(
		"a",
		gate.Hints{},
	)
	noSchema.InputSchema = nil
	list.InputSchema = json.RawMessage(`{"type":"array"}`)
	for _, c := range []struct {
		says  string
		tools []*gate.Tool
	}{
		{"missing input schema", []*gate.Tool{noSchema}},
		{"the name must be", []*gate.Tool{badName}},
		{"fixture has it too", []*gate.Tool{tool("a", gate.Hints{}), tool("a", gate.Hints{})}},
		{`type "object"`, []*gate.Tool{list}},
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
		"marks go":                                {`{"type":"object","properties":{"vmid":{"type":"integer","x-caponier-target":"vmid"},"ok":{"type":"boolean","x-caponier-confirm":true}}}`, `{"properties":{"ok":{"type":"boolean"},"vmid":{"type":"integer"}},"type":"object"}`},
		"an argument may be called so":            {`{"properties":{"x-caponier-target":{"type":"string","x-caponier-target":"node"}}}`, `{"properties":{"x-caponier-target":{"type":"string"}}}`},
		"an argument called properties is one":    {`{"properties":{"properties":{"x-caponier-target":"node","type":"string"}}}`, `{"properties":{"properties":{"type":"string"}}}`},
		"items and definitions are looked into":   {`{"$defs":{"a":{"x-caponier-target":"url"}},"items":{"x-caponier-target":"url"},"anyOf":[{"x-caponier-confirm":true}]}`, `{"$defs":{"a":{}},"anyOf":[{}],"items":{}}`},
		"a value that looks like a keyword stays": {`{"default":{"x-caponier-target":"a"},"enum":[{"x-caponier-target":"a"}]}`, `{"default":{"x-caponier-target":"a"},"enum":[{"x-caponier-target":"a"}]}`},
		"numbers stay as they are":                {`{"maximum":999999999,"minimum":0.5}`, `{"maximum":999999999,"minimum":0.5}`},
		"text that is not JSON is left as it is":  {`{`, `{`},
	} {
		if got := string(public(json.RawMessage(c[0]))); got != c[1] {
			t.Errorf("%s: %s, want %s", claim, got, c[1])
		}
	}
}

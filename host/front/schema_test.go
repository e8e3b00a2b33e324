package front

import (
	"encoding/json"
	"testing"
)

func TestPublicSchemaHasNoKeywordsOfTheHost(t *testing.T) {
	for claim, c := range map[string][2]string{
		"marks go":                                 {`{"type":"object","properties":{"vmid":{"type":"integer","x-caponier-target":"vmid"},"ok":{"type":"boolean","x-caponier-confirm":true}}}`, `{"properties":{"ok":{"type":"boolean"},"vmid":{"type":"integer"}},"type":"object"}`},
		"an argument may be called so":             {`{"properties":{"x-caponier-target":{"type":"string","x-caponier-target":"node"}}}`, `{"properties":{"x-caponier-target":{"type":"string"}}}`},
		"an argument called properties is one":     {`{"properties":{"properties":{"x-caponier-target":"node","type":"string"}}}`, `{"properties":{"properties":{"type":"string"}}}`},
		"items and definitions are looked into":    {`{"$defs":{"a":{"x-caponier-target":"url"}},"items":{"x-caponier-target":"url"},"anyOf":[{"x-caponier-confirm":true}]}`, `{"$defs":{"a":{}},"anyOf":[{}],"items":{}}`},
		"a value that looks like a keyword stays":  {`{"default":{"x-caponier-target":"a"},"enum":[{"x-caponier-target":"a"}]}`, `{"default":{"x-caponier-target":"a"},"enum":[{"x-caponier-target":"a"}]}`},
		"numbers stay as they are":                 {`{"maximum":999999999,"minimum":0.5}`, `{"maximum":999999999,"minimum":0.5}`},
		"what is no JSON is left to whoever reads": {`{`, `{`},
	} {
		if got := string(public(json.RawMessage(c[0]))); got != c[1] {
			t.Errorf("%s: %s, want %s", claim, got, c[1])
		}
	}
}

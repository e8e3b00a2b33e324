package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// A configuration is read once for each list of the cluster, and only where a decision asks for it.
// What it does not say clearly stays unknown.
func TestProtectionIsReadWithTheConfiguration(t *testing.T) {
	for said, want := range map[string]string{
		`{"config":"d","values":{"protection":"1"}}`: "on",
		`{"config":"d","values":{"protection":"0"}}`: "off",
		`{"config":"d","values":{"cores":"2"}}`:      "off",
		`{"config":"d"}`:                             "off",
		`{"config":"d","values":{"protection":"y"}}`: "",
		`{"config":"d","values":{"protection":""}}`:  "",
		`{"status":"absent"}`:                        "",
		`{"config":"","values":{"protection":"0"}}`:  "",
		`[]`: "", `{`: "", "error": "",
	} {
		w, v := newWorld("101", "105")
		looked, list := []string{}, v.Call
		v.Call = func(ctx context.Context, tool string, args any) terms.Answer {
			if tool != lookName {
				return list(ctx, tool, args)
			}
			of := args.(map[string]any)
			looked = append(looked, of["node"].(string)+" "+of["guest"].(string))
			if said == "error" {
				return terms.Answer{Err: errors.New("refused")}
			}
			return terms.Answer{Output: terms.Output{JSON: json.RawMessage(said)}}
		}
		q, d := question([]string{"pve2"}, "105"), lacking("105", "140")
		if g := v.Guests(t.Context(), q, d)["105"]; g.Protection != "" || len(looked) > 0 {
			t.Errorf("%q is known, and nobody asked for it: %v", g.Protection, looked)
		}
		d.GuestConfigs = true
		facts := v.Guests(t.Context(), q, d)
		if got := facts["105"].Protection; got != want || facts["140"].Protection != "" {
			t.Errorf("%s: %q, want %q; of a guest that is not there: %+v", said, got, want,
				facts["140"])
		}
		if got := strings.Join(looked, ", "); got != "pve1 105" {
			t.Errorf("looked at %s", got)
		}
		w.pass(10 * time.Second)
		d.Guests = []string{"105"}
		if got := v.Guests(t.Context(), q, d)["105"].Protection; got != want {
			t.Errorf("%s: later %q, want %q", said, got, want)
		}
		if again := len(looked) == 2; again != (want == "") {
			t.Errorf("%s: looked at %v", said, looked)
		}
		w.pass(25 * time.Second)
		n := len(looked)
		if v.Guests(t.Context(), q, d); len(looked) != n+1 {
			t.Errorf("%s: a newer list, and the configuration is not read again", said)
		}
	}
}

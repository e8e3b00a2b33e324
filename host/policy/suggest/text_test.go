package suggest

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/load/strict"
)

// holds compares what the strict reader makes of the text with what the suggestion says.
func holds(t *testing.T, s *Suggestion) {
	t.Helper()
	text := s.text()
	got, _, err := strict.Map("suggestion", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%q", err, text)
	}
	clean := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	values := func(all []Evidence) []any {
		list := []any{}
		for _, e := range all {
			list = append(list, clean(e.Value))
		}
		return list
	}
	held, roles := []any{}, map[string]any{}
	for _, name := range s.Holds {
		held = append(held, clean(name))
	}
	for _, r := range s.Roles {
		roles[clean(r.Name)] = map[string]any{"tools": values(r.Tools),
			"imports": values(r.Imports), "ceiling": clean(r.Ceiling.Value),
			"nodes": values(r.Nodes), "commands": values(r.Commands)}
	}
	want := map[string]any{"principals": map[string]any{clean(s.Principal): map[string]any{
		"auth": values(s.Auth), "roles": held}}, "roles": roles}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%v\nis not\n%v\nin\n%s", got, want, text)
	}
	for _, r := range text {
		if r != '\n' && (r < ' ' || r > '~') {
			t.Fatalf("%q in %q", r, text)
		}
	}
}

// of is a suggestion in which every text is one of these.
func of(next func() string) *Suggestion {
	e := func() Evidence {
		return Evidence{Value: next(), Uses: len(next()), Approved: 1, Argument: 1,
			Last: time.Unix(int64(len(next())), 0), Call: next()}
	}
	return &Suggestion{Principal: next(), Auth: []Evidence{e()}, Holds: []string{next(), next()},
		Roles: []Role{{Name: next(), From: next(), Where: next(), Tools: []Evidence{e(), e()},
			Imports: []Evidence{}, Ceiling: e(), Nodes: []Evidence{e()},
			Commands: []Evidence{e(), e(), e()}}},
		Targets: map[string][]Evidence{"paths": {e(), e()}}, Replace: []Place{{next(), next()}},
		Journal: Counts{Gone: 1, GoneAt: next()}}
}

func TestNoTextOfTheJournalChangesWhatIsSuggested(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	runes := []rune("\x00\t\n\r\"'\\#:-*&!|>%@`{}[], ~\x7f\u0085\u00a0\u2028\u2029\ufeff\ufffd😀aé")
	for range 20_000 {
		holds(t, of(func() string {
			if r.IntN(3) == 0 {
				return hostile[r.IntN(len(hostile))]
			}
			var text []rune
			for range r.IntN(8) {
				text = append(text, runes[r.IntN(len(runes))])
			}
			if r.IntN(10) == 0 {
				return string(text) + "\xff\xc3"
			}
			return string(text)
		}))
	}
}

// FuzzText is held to the strict reader of data.yaml.
func FuzzText(f *testing.F) {
	for _, h := range hostile {
		f.Add(h, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		n := 0
		holds(t, of(func() string {
			n++
			return []string{a, b, a + b}[n%3]
		}))
	})
}

package policy_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs"
)

// A site may add sub-commands to the programs of core, and nothing that it adds takes the place of
// an entry of core or lowers its tier: whatever is added to each program, what core describes is
// decided as before, word for word. What could be taken for an entry of core does not load.
func TestWhatASiteAddsChangesNothingOfCore(t *testing.T) {
	entries, err := load.Grammar(t.Context(), lab, "")
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	subs := map[string][]string{}
	for _, e := range entries {
		words := strings.Fields(e.Name)
		subs[words[0]] = append(subs[words[0]], strings.Join(words[1:], " "))
	}
	// all at once: the error names each that is refused
	candidates := map[string][]string{}
	for program, known := range subs {
		candidates[program] = additions(rnd, known)
	}
	err = loading(t, candidates)
	if err == nil {
		t.Fatal("everything may be added")
	}
	refused, added := 0, map[string][]string{}
	for program, list := range candidates {
		for _, sub := range list {
			named := regexp.MustCompile(`binaries/` + regexp.QuoteMeta(program) +
				`(: |/"?` + regexp.QuoteMeta(sub) + `"?: )`).MatchString(err.Error())
			taken := slices.ContainsFunc(subs[program], func(known string) bool {
				return strings.HasPrefix(known, sub)
			})
			if named {
				refused++
			} else if added[program] = append(added[program], sub); taken {
				t.Errorf("%s may get %q", program, sub)
			}
		}
	}
	for program := range added {
		if slices.Equal(subs[program], []string{""}) {
			t.Errorf("%s has no sub-commands and may get one", program)
		}
	}
	if len(added) < 5 || refused < 50 {
		t.Fatalf("%d programs take additions, %d were refused", len(added), refused)
	}
	if err := loading(t, added); err != nil {
		t.Fatal(err)
	}
	dir := copySite(t)
	edit(t, dir, "data.yaml", "binaries: {}", "binaries: "+binaries(added))
	base, with, compared := site(t, lab), site(t, dir), 0
	for i, text := range commandsOf(t, entries) {
		if i%needs.Share(4) != 0 {
			continue
		}
		call, op := sshCall(text)
		words := strings.Fields(text)
		if slices.Contains(added[words[0]], words[min(1, len(words)-1)]) {
			continue // the addition itself
		}
		for _, q := range []terms.Question{call, op} {
			compared++
			a, b := decide(t, base, q), decide(t, with, q)
			if a.Allow != b.Allow || a.Tier != b.Tier || !reflect.DeepEqual(a.Failed, b.Failed) {
				t.Errorf("%q: %s %v, with additions %s %v", text, a.Tier, a.Failed, b.Tier,
					b.Failed)
			}
		}
	}
	t.Logf("%d programs take additions (%v), %d refused, %d decisions compared", len(added),
		slices.Sorted(maps.Keys(added)), refused, compared)
}

// additions are names that a site could give: those of core, how they begin, what goes on after
// them, and others.
func additions(rnd *rand.Rand, known []string) (all []string) {
	for _, sub := range known {
		all = append(all, sub)
		if sub == "" {
			continue
		}
		all = append(all, sub[:1+rnd.IntN(len(sub))], sub+"x", strings.ToUpper(sub), "-"+sub)
	}
	all = append(all, "own", "z", "--own", "own.sub")
	slices.Sort(all)
	return slices.Compact(all)
}

func binaries(of map[string][]string) string {
	all := map[string]map[string]any{}
	for program, subs := range of {
		all[program] = map[string]any{}
		for _, sub := range subs {
			all[program][sub] = map[string]any{"group": "read", "tier": "green",
				"operands": []string{}, "options": map[string]string{}}
		}
	}
	doc, _ := json.Marshal(all)
	return string(doc)
}

func loading(t *testing.T, of map[string][]string) error {
	t.Helper()
	dir := copySite(t)
	edit(t, dir, "data.yaml", "binaries: {}", "binaries: "+binaries(of))
	_, err := load.FromFolder(t.Context(), dir, load.Inventory{})
	return err
}

// commandsOf are commands of the corpora, and of each entry of core with words after it.
func commandsOf(t *testing.T, entries []load.Command) (all []string) {
	for _, file := range []string{"everyday", "hostile", "ordinary"} {
		for _, line := range lines(t, "testdata/"+file+".txt") {
			all = append(all, line[strings.LastIndex(line, ": ")+1:])
		}
	}
	for _, e := range entries {
		for _, after := range []string{"", " own"} {
			all = append(all, e.Name+after)
		}
	}
	return slices.DeleteFunc(all, func(text string) bool { return strings.TrimSpace(text) == "" })
}

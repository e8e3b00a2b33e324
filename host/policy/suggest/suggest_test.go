package suggest

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/load/strict"
	"github.com/caponier-mcp/caponier/host/terms"
)

func (w *world) options(who string, records []terms.Record) Options {
	return Options{Site: w.dir, Principal: who, Inventory: w.inv, Records: slices.Values(records),
		Time: time.Unix(1_700_000_000, 0)}
}

// put is the site with a suggestion, made in another way than the suggestion's own proof: by its
// text alone, which replaces what it has in one file of data.
func (w *world) put(t *testing.T, text string) *load.Candidate {
	t.Helper()
	mine, _, err := strict.Map("suggestion", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	data := maps.Clone(w.site.Data()["site"].(map[string]any))
	for _, section := range []string{"principals", "roles"} {
		all := maps.Clone(data[section].(map[string]any))
		more, _ := mine[section].(map[string]any)
		maps.Copy(all, more)
		data[section] = all
		delete(mine, section)
	}
	if len(mine) > 0 {
		t.Fatalf("the suggestion has more than principals and roles: %v", mine)
	}
	out, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "data.yaml", string(out))
	c, err := load.FromFolder(t.Context(), dir, w.inv)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c
}

// used are the tools of the calls of demo that were allowed and done, as the records say it.
func used(records []terms.Record) (tools []string) {
	for _, rec := range records {
		if rec.Principal == "demo" && rec.Type == "intent" && rec.Kind == "call" &&
			!strings.Contains(string(rec.Input), `"planning":true`) {
			tools = append(tools, rec.Tool)
		}
	}
	slices.Sort(tools)
	return slices.Compact(tools)
}

// For any journal, the suggestion allows every record that was allowed, in its tier, and no tool
// that was not used, which is refused because no role grants it. What was refused or only planned,
// and what others did, changes nothing of it.
func TestASuggestionAllowsWhatWasUsedAndNoToolMore(t *testing.T) {
	suggested, red := 0, 0
	worlds := []*world{newWorld(t, nil), newWorld(t, nil, shared...)}
	for seed := range uint64(5) {
		w := worlds[seed%2]
		w.records = nil
		w.anything(t, rand.New(rand.NewPCG(seed, 1)), 40)
		tools := used(w.records)
		s, err := Of(t.Context(), w.options("demo", w.records))
		if len(tools) == 0 {
			if err == nil || !strings.Contains(err.Error(), "shows nothing that the site allows") {
				t.Errorf("seed %d: nothing was used: %v", seed, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		suggested++
		next := w.put(t, s.YAML)
		asks, err := newAsker(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range w.records {
			q, err := read(rec)
			if err != nil {
				t.Fatal(err)
			}
			d, _ := asks.decide(t.Context(), q)
			mine := rec.Principal == "demo"
			switch {
			case rec.Type == "refused" && d.Allow:
				t.Errorf("seed %d: %s was refused and is allowed", seed, rec.ID)
			case rec.Type == "intent" && !(mine && q.Head.Planning) && !d.Allow:
				t.Errorf("seed %d: %s is refused: %v", seed, rec.ID, d.Denied)
			case d.Allow && d.Tier.String() != rec.Tier:
				t.Errorf("seed %d: %s was %s, is %s", seed, rec.ID, rec.Tier, d.Tier)
			case mine && rec.Tier == "red" && rec.Kind == "call" && rec.Type == "intent" &&
				!q.Head.Planning:
				red++
				doc := q.doc.(*input.Call)
				doc.Confirmation = terms.Confirmation{State: "none"}
				d, _ := asks.decide(t.Context(), q)
				if d.Allow || !slices.Contains(d.Failed, "confirmation") {
					t.Errorf("seed %d: %s needs no approval: %v", seed, rec.ID, d.Failed)
				}
			}
		}
		w.refusesOtherTools(t, next, s, tools)
		only := slices.DeleteFunc(slices.Clone(w.records), func(rec terms.Record) bool {
			return rec.Principal != "demo" || rec.Type != "intent" ||
				strings.Contains(string(rec.Input), `"planning":true`)
		})
		live, err := newAsker(t.Context(), w.site)
		if err != nil {
			t.Fatal(err)
		}
		if alone, err := w.options("demo", only).gather(t.Context(), live); err != nil ||
			!reflect.DeepEqual(alone.Roles, s.Roles) || !reflect.DeepEqual(alone.Auth, s.Auth) {
			t.Errorf("seed %d: other records change it: %v\n%+v\n%+v", seed, err, alone, s.Roles)
		}
	}
	if suggested < 4 || red == 0 {
		t.Errorf("%d suggestions, %d approved red calls: too few", suggested, red)
	}
}

func (w *world) refusesOtherTools(t *testing.T, next *load.Candidate, s *Suggestion,
	tools []string) {
	t.Helper()
	var listed []string
	for _, r := range s.Roles {
		for _, e := range r.Tools {
			listed = append(listed, e.Value)
			if e.Uses == 0 || e.Call == "" {
				t.Errorf("%s has no evidence: %+v", e.Value, e)
			}
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, tools) {
		t.Errorf("suggested are %q, used were %q", listed, tools)
	}
	for _, tool := range w.inv.Tools {
		if slices.Contains(tools, tool.Name) {
			continue
		}
		for _, auth := range []string{"config", "token"} {
			q := w.call(t, terms.Principal{ID: "demo", Auth: auth, Roles: []string{}}, tool, "pve1",
				"101", "")
			d, err := next.Rules.Decide(t.Context(), q)
			if err != nil || d.Allow || !slices.Contains(d.Failed, "grant") &&
				!slices.Contains(d.Failed, "identity") && !slices.Contains(d.Failed, "known") {
				t.Errorf("%s by %s: %v %v", tool.Name, auth, d.Failed, err)
			}
		}
	}
}

const rules = `# METADATA
# scope: package
# schemas:
#   - input: schema.input
package caponier.site.call

deny contains {"id": "op.nodes", "msg": "Operators stay on pve1."} if {
	"operator" in input.principal.roles
	"pve2" in input.targets.nodes
}
`

const rulesTest = `package caponier.site.call_test

import data.caponier.site.call

test_pve2 if call.deny with input as {"principal": {"roles": ["operator"]},
	"targets": {"nodes": ["pve2"]}}
`

// What cannot be narrowed without a way around is not suggested, and the error says why.
func TestNothingIsSuggestedThatCouldGetAroundARule(t *testing.T) {
	ruled := map[string]string{"rules.rego": rules, "rules_test.rego": rulesTest}
	me := terms.Principal{ID: "demo", Auth: "config", Roles: []string{}}
	narrowed := terms.Principal{ID: "demo", Auth: "token", Roles: []string{"operator"},
		Narrowed: true}
	for name, x := range map[string]struct {
		files   map[string]string
		changes []string
		who     terms.Principal
		of      string
		want    string
		role    string // of the suggestion, where there is one
	}{
		"alone":  {nil, nil, me, "demo", "", "operator"},
		"shared": {nil, shared, me, "demo", "", "operator-demo"},
		"a rule about the role": {ruled, shared, me, "demo",
			"site/rules.rego reads the roles of principals", ""},
		"a rule about a role of its own": {ruled, nil, me, "demo", "", "operator"},
		"a token that names the role": {nil, shared, narrowed, "demo",
			"credentials of this principal name it", ""},
		"a token that names its own role": {nil, nil, narrowed, "demo", "", "operator"},
		"a role that claims give": {ruled, []string{"claimable_roles: []",
			"claimable_roles: [operator]"}, me, "demo", "whoever claims it holds it too", ""},
		"somebody else": {nil, nil, me, "eve", `lists no principal "eve"`, ""},
		"nothing used": {nil, shared, terms.Principal{ID: "demo", Auth: "oidc"}, "demo",
			"1 decisions refused", ""},
		"the name is taken": {nil, append(slices.Clone(shared), "\nroles:\n",
			"\nroles:\n  operator-demo: {tools: [], imports: [], ceiling: green, nodes: [], "+
				"commands: []}\n"), me, "demo", `there is a role "operator-demo" already`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, x.files, x.changes...)
			w.run(t, w.call(t, x.who, w.tool(t, "list_guests"), "pve1", "", ""))
			live, err := newAsker(t.Context(), w.site)
			if err != nil {
				t.Fatal(err)
			}
			s, err := w.options(x.of, w.records).gather(t.Context(), live)
			switch {
			case x.want == "" && (err != nil || len(s.Roles) != 1 || s.Roles[0].Name != x.role):
				t.Errorf("%+v %v", s, err)
			case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
}

// A proof that fails ends in an error: the site's own tests want what the suggestion takes away.
func TestASuggestionThatTheSiteRefusesIsNone(t *testing.T) {
	w := newWorld(t, map[string]string{"wants_test.rego": `package caponier.site.wants_test

test_the_operator_may_do_everything if data.site.roles.operator.tools == ["*"]
`})
	me := terms.Principal{ID: "demo", Auth: "config", Roles: []string{}}
	w.run(t, w.call(t, me, w.tool(t, "list_guests"), "pve1", "", ""))
	if s, err := Of(t.Context(), w.options("demo", w.records)); !errors.Is(err, errProof) ||
		!strings.Contains(err.Error(), "test_the_operator_may_do_everything") {
		t.Errorf("%+v %v", s, err)
	}
}

// The proof itself sees a suggestion that is too small, and one that is too large.
func TestTheProofFindsWhatIsWrong(t *testing.T) {
	w := newWorld(t, nil, append(slices.Clone(shared), "    nodes: [\"*\"]\n    commands: [\"*\"]",
		"    nodes: [pve1]\n    commands: [\"*\"]")...)
	me := terms.Principal{ID: "demo", Auth: "config", Roles: []string{}}
	w.run(t, w.call(t, me, w.tool(t, "list_guests"), "pve1", "", ""))
	w.run(t, w.call(t, me, w.tool(t, "get_node_status"), "pve2", "", ""))
	o := w.options("demo", w.records)
	s, err := Of(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	live, err := newAsker(t.Context(), w.site)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Role){
		"refuses what was allowed": func(r *Role) { r.Tools = nil },
		"allows what the site refuses": func(r *Role) {
			r.Tools = append(r.Tools, Evidence{Value: "get_node_status"})
			r.Nodes = append(r.Nodes, Evidence{Value: "pve2"})
			r.Commands = []Evidence{{Value: "*"}}
		},
		"get further": func(r *Role) { // the journal has no such call
			r.Tools = append(r.Tools, Evidence{Value: "get_storage"})
			r.Nodes = append(r.Nodes, Evidence{Value: "pve2"})
			r.Commands = []Evidence{{Value: "*"}}
		},
		"there is no node": func(r *Role) { r.Nodes = append(r.Nodes, Evidence{Value: "pve9"}) },
	} {
		bad := *s
		bad.Roles = slices.Clone(s.Roles)
		change(&bad.Roles[0])
		if err := o.prove(t.Context(), live, &bad); !errors.Is(err, errProof) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

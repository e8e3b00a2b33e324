package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const node = "pve1"

var on = abi.OnNode{Node: node}

func exec(argv ...string) abi.Op { return abi.SSHExec{OnNode: on, Argv: argv} }

// stepOn is a step as the gate records it, with the policy input that a decision would have.
func stepOn(c *terms.Call, op abi.Op, facts *terms.FileFacts) terms.Step {
	in := map[string]any{}
	switch op := op.(type) {
	case abi.SSHExec:
		in["command"] = map[string]any{"calls": []any{map[string]any{"argv": op.Argv,
			"static": true}}}
	case abi.SFTPPut:
		in["file"] = map[string]any{"action": "put", "path": op.Path, "local": op.Local,
			"exists": facts.Exists, "bytes": facts.LocalBytes}
	case abi.Stage:
		in["file"] = map[string]any{"action": "stage"}
	}
	data, _ := json.Marshal(in)
	return terms.Step{
		Question: terms.Question{Kind: terms.KindOperation, Call: c, Op: op,
			Facts: terms.Facts{File: facts}},
		Decision: terms.Decision{Allow: true, Tier: terms.Red, Input: data},
	}
}

// callOf is a call for which the host made these names: paths are stages, others blobs.
func callOf(made ...string) *terms.Call {
	var stages []terms.StageDir
	var blobs []string
	for _, name := range made {
		if name[0] == '/' {
			stages = append(stages, terms.StageDir{Node: node, Dir: name})
		} else {
			blobs = append(blobs, name)
		}
	}
	return &terms.Call{ID: "01J", Principal: terms.Principal{ID: "ann"},
		Tool: &terms.Tool{Name: "stop_guest", Plans: true,
			Plugin: terms.Plugin{Name: "guests", Digest: "sha256:00"}},
		Args: terms.Args{Digest: "sha256:11"}, Decided: terms.Decision{Tier: terms.Red},
		Targets: terms.Targets{Nodes: []string{node}, VMIDs: []string{"105"}},
		Stages:  stages, Blobs: blobs}
}

func planOf(c *terms.Call, a terms.Answer, steps ...terms.Step) *plan {
	now := func() time.Time { return time.Unix(1_700_000_000, 0) }
	return Planner{Now: now}.Plan(c, steps, a).(*plan)
}

func ask(c *terms.Call, op abi.Op, facts *terms.FileFacts) terms.Question {
	return terms.Question{
		Kind:  terms.KindOperation,
		Call:  c,
		Op:    op,
		Facts: terms.Facts{File: facts},
	}
}

func TestACallTakesItsStepsInTheirOrder(t *testing.T) {
	c := callOf()
	p := planOf(c, terms.Answer{}, stepOn(c, exec("pct", "stop", "105"), nil),
		stepOn(c, exec("pct", "start", "105"), nil))
	take := func(argv ...string) bool {
		next := p.Next(ask(callOf(), exec(argv...), nil)).Next
		if next {
			p.Take()
		}
		return next
	}
	switch {
	case take("pct", "start", "105"):
		t.Error("the second step came first")
	case take("pct", "stop", "105", "--skiplock"):
		t.Error("another option is the same step")
	case !take("pct", "stop", "105"):
		t.Error("the first step is not itself")
	case take("pct", "stop", "105"):
		t.Error("a step was taken twice")
	case !take("pct", "start", "105"):
		t.Error("the second step is not itself")
	}
	if f := p.Next(ask(callOf(), exec("pct", "start", "105"), nil)); f.Left || f.Next {
		t.Errorf("after the last step: %+v", f)
	}
}

func TestTheTimeoutIsNotPartOfAStep(t *testing.T) {
	c := callOf()
	op := abi.SSHExec{OnNode: abi.OnNode{Node: node, Common: abi.Common{TimeoutMS: 100}},
		Argv: []string{"pct", "stop", "105"}}
	p := planOf(c, terms.Answer{}, stepOn(c, op, nil))
	if !p.Next(ask(c, exec("pct", "stop", "105"), nil)).Next {
		t.Error("the time that is left made another step of it")
	}
}

func TestNamesThatTheHostMakesAnewAreTheSameStep(t *testing.T) {
	file := func(dir string) (*terms.Call, abi.Op, *terms.FileFacts) {
		return callOf(dir), abi.SFTPPut{OnNode: on, Local: "a", Path: dir + "/file"},
			&terms.FileFacts{RealPath: dir + "/file", LocalBytes: 7}
	}
	c, op, facts := file("/planned/1")
	p := planOf(c, terms.Answer{}, stepOn(c, abi.Stage{OnNode: on}, nil), stepOn(c, op, facts))
	p.Take()
	running, op, facts := file("/var/tmp/caponier-0123")
	if !p.Next(ask(running, op, facts)).Next {
		t.Error("the call's own stage made another step of it")
	}
	if p.Next(ask(callOf("/elsewhere"), op, facts)).Next {
		t.Error("a path outside of the call's stage is the same step")
	}
	facts.LocalBytes = 8
	if p.Next(ask(running, op, facts)).Next {
		t.Error("a local file of another size is the same step")
	}
}

func TestABlobDoesNotMakeOneStageLookLikeAnother(t *testing.T) {
	runIn := func(dir string) abi.Op { return exec("sh", dir+"/job") }
	c := callOf("/planned/1", "/planned/2")
	p := planOf(c, terms.Answer{}, stepOn(c, runIn("/planned/2"), nil))
	with := callOf("b7", "/planned/2", "/planned/3") // which is the first stage of this dry run
	if planOf(with, terms.Answer{}, stepOn(with, runIn("/planned/2"), nil)).Digest() == p.Digest() {
		t.Error("plans for the first and for the second stage have one digest")
	}
	running := callOf("b7", "/var/tmp/a", "b8", "/var/tmp/b")
	if p.Next(ask(running, runIn("/var/tmp/a"), nil)).Next {
		t.Error("planned for the second stage, it would run in the first")
	}
	if !p.Next(ask(running, runIn("/var/tmp/b"), nil)).Next {
		t.Error("the call's own blob made another step of it")
	}
}

func TestANameIsAStagesOnlyOnceItWasMade(t *testing.T) {
	before, after := callOf(), callOf("/planned/1")
	p := planOf(after, terms.Answer{}, stepOn(before, exec("sh", "/planned/1/job"), nil))
	if p.Next(ask(callOf("/var/tmp/a"), exec("sh", "/var/tmp/a/job"), nil)).Next {
		t.Error("a path that was no stage yet when it was planned is taken for a stage")
	}
	if !p.Next(ask(callOf(), exec("sh", "/planned/1/job"), nil)).Next {
		t.Error("the same path, before a stage was made, is another step")
	}
}

func TestAStageIsNotTakenForOneWhoseNameItBegins(t *testing.T) {
	dry, run := []string{"b1"}, []string{"b2"}
	for n := range 20 {
		dry = append(dry, fmt.Sprint("/planned/", n+2)) // /planned/2 begins /planned/20
		run = append(run, fmt.Sprintf("/var/tmp/caponier-%02d", n))
	}
	c, running := callOf(dry...), callOf(run...)
	for i := 1; i < len(dry); i++ {
		p := planOf(c, terms.Answer{}, stepOn(c, exec("sh", dry[i]+"/job"), nil))
		for k := 1; k < len(run); k++ {
			next := p.Next(ask(running, exec("sh", run[k]+"/job"), nil)).Next
			if next != (i == k) {
				t.Errorf("planned in stage %d, in stage %d it is the same step: %t", i, k, next)
			}
		}
	}
}

func TestAFileThatChangedSinceIsAnotherStep(t *testing.T) {
	c := callOf()
	put := abi.SFTPPut{OnNode: on, Local: "a", Path: "/srv/a", Overwrite: true}
	p := planOf(c, terms.Answer{}, stepOn(c, put, &terms.FileFacts{RealPath: "/srv/a"}))
	now := &terms.FileFacts{RealPath: "/srv/a", Exists: true, Type: "file", Bytes: 3}
	if p.Next(ask(c, put, now)).Next {
		t.Error("a file that was not there when the call was planned would be replaced")
	}
}

func TestASecondWriteToAPathIsPlannedWithoutItsFacts(t *testing.T) {
	c := callOf()
	put := abi.SFTPPut{OnNode: on, Local: "a", Path: "/srv/a", Overwrite: true}
	absent := &terms.FileFacts{RealPath: "/srv/a"}
	p := planOf(c, terms.Answer{}, stepOn(c, put, absent), stepOn(c, put, absent))
	p.Take()
	written := &terms.FileFacts{RealPath: "/srv/a", Exists: true, Type: "file", Bytes: 3}
	if !p.Next(ask(c, put, written)).Next {
		t.Error("what the first step wrote made another step of the second")
	}
}

func TestTheDigestCoversWhatIsApproved(t *testing.T) {
	of := func(change func(*terms.Call)) string {
		c := callOf()
		change(c)
		return planOf(c, terms.Answer{}, stepOn(c, exec("pct", "stop", "105"), nil)).Digest()
	}
	same := of(func(*terms.Call) {})
	if again := of(func(c *terms.Call) { c.ID = "01K" }); again != same {
		t.Error("a second dry run of the same call has another digest")
	}
	for name, change := range map[string]func(*terms.Call){
		"principal":     func(c *terms.Call) { c.Principal.ID = "bob" },
		"plugin digest": func(c *terms.Call) { c.Tool.Plugin.Digest = "sha256:01" },
		"arguments":     func(c *terms.Call) { c.Args.Digest = "sha256:12" },
		"targets":       func(c *terms.Call) { c.Targets.VMIDs = []string{"106"} },
		"tier":          func(c *terms.Call) { c.Decided.Tier = terms.Yellow },
	} {
		if of(change) == same {
			t.Errorf("another %s has the same digest", name)
		}
	}
}

func TestAPlanSaysWhereItEnds(t *testing.T) {
	c := callOf()
	stop := stepOn(c, exec("pct", "stop", "105"), nil)
	refused := stop
	refused.Decision = terms.Decision{Tier: terms.Red, Failed: []string{"protected"},
		Denied: []terms.Reason{{ID: "protected", Msg: "guest 105 is protected"}}}
	old := callOf()
	old.Tool.Plans = false
	for name, tt := range map[string]struct {
		plan *plan
		ends string
	}{
		"at its end": {planOf(c, terms.Answer{}, stop), ""},
		"at a refused step": {planOf(c, terms.Answer{}, stop, refused),
			"step 2 is refused: guest 105 is protected"},
		"with a tool error": {planOf(c, terms.Answer{Output: terms.Output{Code: 1}}, stop),
			"error of the tool"},
		"with a broken tool": {planOf(c, terms.Answer{Err: &terms.PluginError{Code: "plugin_trap"}},
			stop), "plugin_trap"},
		"with an old plugin": {planOf(old, terms.Answer{}, stop), "before 1.2"},
	} {
		whole, ends := tt.plan.Complete()
		if whole != (tt.ends == "") || !strings.Contains(ends, tt.ends) {
			t.Errorf("%s: complete %v, ends %q", name, whole, ends)
		}
	}
}

func TestAPlanIsReadInOneLook(t *testing.T) {
	c := callOf("/planned/1")
	refused := stepOn(c, exec("pct", "destroy", "105"), nil)
	refused.Decision.Allow = false
	refused.Decision.Denied = []terms.Reason{{ID: "protected", Msg: "guest 105 is protected"}}
	p := planOf(c, terms.Answer{},
		stepOn(c, abi.Stage{OnNode: on}, nil),
		stepOn(c, abi.SFTPPut{OnNode: on, Local: "in/a", Path: "/srv/a"},
			&terms.FileFacts{RealPath: "/srv/a", Exists: true, LocalBytes: 12}),
		touching(c, []terms.Touched{web, {About: "unit:nginx", Also: []string{"unit a.service",
			"b\n\x1b[2J", "c", "d", "e", "f", "g", "h"}}, {About: "guest:110"}}, "pct", "stop",
			"105"),
		stepOn(c, exec("pct", "set", "105", "--description", "two words\n\x1b[2Jdigest sha256:00"),
			nil),
		refused)
	want, err := os.ReadFile("testdata/plan.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Text(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// sending is a plan that uploads n files of site to /srv/site, of which each third one is there.
func sending(n int, change func(i int, s *terms.Step)) *plan {
	c := callOf()
	c.Targets.LocalPaths, c.Targets.Paths = []string{"site"}, []string{"/srv/site"}
	var steps []terms.Step
	for i := range n {
		name := fmt.Sprintf("d/%03d", i)
		s := stepOn(c, abi.SFTPPut{OnNode: on, Local: "site/" + name, Path: "/srv/site/" + name,
			Parents: true}, &terms.FileFacts{RealPath: "/srv/site/" + name, LocalBytes: 10})
		if change != nil {
			change(i, &s)
		}
		steps = append(steps, s)
	}
	return planOf(c, terms.Answer{}, steps...)
}

func TestTheUploadsOfADirectoryAreOneEntry(t *testing.T) {
	text := sending(1000, nil).Text()
	for _, want := range []string{
		"  1–1000. red    upload 1000 files of site to /srv/site, 10000 bytes on pve1\n",
		"     d/000\n", "     d/099\n", "     d/999\n",
		"     undo:  remove what was uploaded\n", "1000 steps, all that it does above green"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%.3000s", want, text)
		}
	}
	if strings.Count(text, "\n     d/") != 1000 || strings.Count(text, "upload") != 2 {
		t.Errorf("it says more:\n%s", text)
	}
}

// What is different about one file is never hidden in the entry of the others.
func TestAnUploadThatIsDifferentStandsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*terms.Step)
		want   string
	}{
		"refused": {func(s *terms.Step) {
			s.Decision.Allow = false
			s.Decision.Denied = []terms.Reason{{ID: "file", Msg: "elsewhere"}}
		}, "     REFUSED (file): elsewhere\n"},
		"of another tier": {func(s *terms.Step) { s.Decision.Tier = terms.Yellow },
			"yellow upload site/d/010 to /srv/site/d/010"},
		"to another place": {func(s *terms.Step) {
			*s = stepOn(s.Question.Call, abi.SFTPPut{OnNode: on, Local: "site/d/010",
				Path: "/srv/site/evil"}, s.Question.Facts.File)
		}, "upload site/d/010 to /srv/site/evil"},
		"another file": {func(s *terms.Step) {
			*s = stepOn(s.Question.Call, abi.SFTPPut{OnNode: on, Local: "key",
				Path: "/srv/site/d/010"}, s.Question.Facts.File)
		}, "upload key to /srv/site/d/010"},
		"replacing a file": {func(s *terms.Step) {
			f := *s.Question.Facts.File
			f.Exists = true
			*s = stepOn(s.Question.Call, s.Question.Op, &f)
		}, "upload site/d/010 to /srv/site/d/010, 10 bytes, replacing what is there"},
	} {
		text := sending(20, func(i int, s *terms.Step) {
			if i == 10 {
				c.change(s)
			}
		}).Text()
		for _, want := range []string{"  1–10. red    upload 10 files of site", c.want,
			" 12–20. red    upload 9 files of site"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it does not say %q:\n%s", name, want, text)
			}
		}
	}
	hostile := sending(20, func(i int, s *terms.Step) {
		name := "d/a\n     undo:  not needed"
		*s = stepOn(s.Question.Call, abi.SFTPPut{OnNode: on, Local: "site/" + name,
			Path: "/srv/site/" + name}, s.Question.Facts.File)
	}).Text()
	if strings.Contains(hostile, "\n     undo:  not needed") {
		t.Errorf("a name passes for the host's own text:\n%s", hostile)
	}
}

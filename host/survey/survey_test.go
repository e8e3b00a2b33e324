package survey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

const resources = `[
 {"id":"lxc/101","vmid":101,"name":"web01","type":"lxc","node":"pve1","status":"stopped",` +
	`"pool":"prod"},
 {"id":"lxc/105","vmid":105,"name":"scratch","type":"lxc","node":"pve1","status":"running"},
 {"id":"lxc/110","vmid":110,"name":"mail","type":"lxc","node":"pve2","status":"running"},
 {"id":"qemu/200","vmid":200,"name":"win","type":"qemu","node":"pve1","status":"running"}]`

// node answers what is asked, and counts it.
type node struct {
	mu      sync.Mutex
	answers map[string]string
	asked   map[string]int
}

func newNode() *node {
	return &node{asked: map[string]int{}, answers: map[string]string{
		"pvesh get /cluster/resources --type vm": resources,
		"pvesh get /cluster/backup": `[{"id":"nightly","vmid":"101,200","storage":"nas"},
			{"id":"off","enabled":0,"all":1,"storage":"nas"},
			{"id":"rest","enabled":"1","all":1,"exclude":"101;105","storage":"nas"},
			{"id":"pool","pool":"prod","storage":"tape"},
			{"id":"there","all":1,"node":"pve2","storage":"nas"}]`,
		"pvesh get /cluster/replication": `[{"id":"101-0","guest":101,"target":"pve2"},
			{"id":"101-1","guest":101,"target":"pve3","disable":1}]`,
		"pvesh get /nodes/pve1/lxc/101/config": `{"digest":"aa","hostname":"x"}`,
		"pvesh get /nodes/pve1/lxc/101/status/current": `{"status":"running","ha":{"managed":1,` +
			`"group":"prod"}}`,
		"pvesh get /nodes/pve1/qemu/200/config": `{"digest":"bb"}`,
		"pvesh get /nodes/pve1/qemu/200/status/current": `{"status":"running",` +
			`"qmpstatus":"paused","ha":{"managed":0}}`,
		"pvesh get /nodes/pve1/storage/local/content": `[{"volid":"a","vmid":101},{"volid":"iso"}` +
			`,{"volid":"b","vmid":999}]`,
		"systemctl show --property=RequiredBy,BoundBy,ConsistsOf -- nginx": "RequiredBy=app." +
			"service b.service\n" +
			"BoundBy=\nConsistsOf=app.service\n",
	}}
}

func (n *node) ask(_ context.Context, argv ...string) ([]byte, error) {
	text := strings.TrimSuffix(strings.Join(argv, " "), " --output-format json")
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[text]++
	if a, ok := n.answers[text]; ok {
		return []byte(a), nil
	}
	return nil, errors.New("exit code 126")
}

func one(t *testing.T, n *node, key string) terms.Touched {
	t.Helper()
	all, err := Of(t.Context(), n.ask, "pve1", []string{key})
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %v, %v", key, all, err)
	}
	return all[0]
}

func TestAGuestIsReadAsItIs(t *testing.T) {
	for key, want := range map[string]string{
		"guest:101": "{guest:101 web01 lxc pve1 running aa [backup job nightly to nas " +
			"backup job pool to tape high availability prod replication 101-0 to pve2]}",
		"guest:200": "{guest:200 win qemu pve1 paused bb [backup job nightly to nas " +
			"backup job rest to nas]}",
		"guest:999": "{guest:999      []}",
	} {
		if got := fmt.Sprint(one(t, newNode(), key)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestWhatElseIsTouched(t *testing.T) {
	for key, want := range map[string]string{
		"node:pve1":     "[guest 105 scratch guest 200 win]",
		"node:pve9":     "[]",
		"storage:local": "[guest 101 web01 guest 999]",
		"unit:nginx":    "[unit app.service unit b.service]",
	} {
		if got := fmt.Sprint(one(t, newNode(), key).Also); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	n := newNode()
	n.answers["pvesh get /nodes/pve1/storage/nas/content"] = `[]`
	if got := fmt.Sprint(one(t, n, "storage:nas").Also); !strings.Contains(got,
		"backup job nightly") {
		t.Errorf("jobs that write to a storage: %s", got)
	}
}

func TestUnreadableDependenciesAreReported(t *testing.T) {
	n := newNode()
	delete(n.answers, "pvesh get /cluster/backup")
	delete(n.answers, "pvesh get /cluster/replication")
	got := fmt.Sprint(one(t, n, "guest:200").Also)
	if !strings.Contains(got, "backup jobs, which the node did not report") ||
		!strings.Contains(got, "replication jobs, which the node did not report") {
		t.Error(got)
	}
	delete(n.answers, "systemctl show --property=RequiredBy,BoundBy,ConsistsOf -- nginx")
	if got := one(t, n, "unit:nginx").Also; len(got) != 1 ||
		!strings.Contains(got[0], "did not report") {
		t.Error(got)
	}
}

func TestAGuestThatIsNotKnownIsAnError(t *testing.T) {
	for path, answer := range map[string]string{
		"pvesh get /cluster/resources --type vm":       "",
		"pvesh get /nodes/pve1/lxc/101/config":         `{}`,
		"pvesh get /nodes/pve1/lxc/101/status/current": `{"status":{"a":1}}`,
	} {
		n := newNode()
		n.answers[path] = answer
		if all, err := Of(t.Context(), n.ask, "pve1", []string{"guest:101"}); err == nil {
			t.Errorf("%s says %q: %v", path, answer, all)
		}
		delete(n.answers, path)
		if all, err := Of(t.Context(), n.ask, "pve1", []string{"guest:101"}); err == nil {
			t.Errorf("%s fails: %v", path, all)
		}
	}
}

func TestAGuestWithUnknownFactsIsAnError(t *testing.T) {
	n := newNode()
	n.answers["pvesh get /cluster/resources --type vm"] = strings.Replace(resources,
		`"status":"stopped"`, `"status":"stopped","tags":"a=b"`, 1)
	_, err := Of(t.Context(), n.ask, "pve1", []string{"guest:101"})
	if err == nil || !strings.Contains(err.Error(), "guest 101 is not known") {
		t.Error(err)
	}
	if got := fmt.Sprint(one(t, n, "node:pve1").Also); !strings.Contains(got, "guest 101") {
		t.Errorf("what a node takes with it: %s", got)
	}
}

func TestAContradictoryListOfGuestsIsAnError(t *testing.T) {
	for claim, c := range map[string]struct{ answer, why string }{
		"no list": {`null`, "not a JSON list"},
		"empty":   {`[]`, "says nothing"},
		"two places": {`[{"id":"lxc/101","vmid":101,"node":"pve1","type":"lxc","status":"running"},
			{"id":"lxc/101","vmid":101,"node":"pve2","type":"lxc","status":"running"}]`,
			"guest 101 twice"},
		"no node": {`[{"id":"lxc/101","vmid":101,"type":"lxc","status":"running"}]`,
			"its node is missing"},
		"a path": {
			`[{"id":"lxc/101","vmid":101,"type":"lxc","status":"running","node":"../../access"}]`,
			`its node is the text "../../access"`},
		"an odd type": {`[{"vmid":101,"type":"storage","node":"pve1"}]`,
			`guest 101 is listed as "storage"`},
	} {
		n := newNode()
		n.answers["pvesh get /cluster/resources --type vm"] = c.answer
		_, err := Of(t.Context(), n.ask, "pve1", []string{"guest:101"})
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v; want %q", claim, err, c.why)
		}
		for text := range n.asked {
			if strings.Contains(text, "..") {
				t.Errorf("%s: asked %s", claim, text)
			}
		}
	}
}

func TestOnlyKeysOfTheFormAreAsked(t *testing.T) {
	n := newNode()
	for _, key := range []string{"", "guest:", "guest:1", "guest:101 102", "guest:-1", "node:../x",
		"storage:a/b", "unit:-H", "unit:a b", "unit:a;b", "other:x", "guest:101\n"} {
		if all, err := Of(t.Context(), n.ask, "pve1", []string{key}); err == nil {
			t.Errorf("%q: %v", key, all)
		}
	}
	if _, err := Of(t.Context(), n.ask, "pve1", make([]string, maxKeys+1)); err == nil {
		t.Error("any number of keys is asked")
	}
	if len(n.asked) > 0 {
		t.Errorf("asked %v", n.asked)
	}
}

func TestTheListOfGuestsIsReadOnce(t *testing.T) {
	n := newNode()
	all, err := Of(t.Context(), n.ask, "pve1",
		[]string{"guest:101", "guest:200", "guest:101", "node:pve1"})
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for text, times := range n.asked {
		if times != 1 {
			t.Errorf("%s: %d times", text, times)
		}
	}
	if len(n.asked) != 7 {
		t.Errorf("%d reads for two guests: %v", len(n.asked), n.asked)
	}
}

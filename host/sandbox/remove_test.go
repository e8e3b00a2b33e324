package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// A module that is taken out of service ends the calls that it has, refuses new ones and leaves
// nothing; it can be added again.
func TestRemoveLetsCallsEndAndFreesTheModule(t *testing.T) {
	h := newHost(t, Options{})
	began, goOn := make(chan bool, 2), make(chan bool)
	h.execute = func(terms.Question) (terms.Result, error) {
		began <- true
		<-goOn
		return terms.Result{Value: object{"exit": 0}}, nil
	}
	wasm := asker("ssh_exec", requests["ssh_exec"]).bytes()
	tool := h.add(wasm)
	h.ready(tool)
	p, ended := h.plugin(tool), make(chan terms.Answer)
	go func() { ended <- h.call(tool, object{}) }()
	<-began
	h.box.Remove(tool.Plugin.Digest)
	h.box.Remove(tool.Plugin.Digest) // of what is gone: nothing
	if a := h.call(tool, object{}); a.Err == nil ||
		!strings.Contains(a.Err.Error(), "is not loaded") {
		t.Errorf("a new call: %v", a.Err)
	}
	if len(h.box.Readiness()) != 0 {
		t.Errorf("states %v", h.box.Readiness())
	}
	time.Sleep(20 * time.Millisecond)
	close(goOn)
	if a := <-ended; a.Err != nil {
		t.Errorf("the call that ran: %v", a.Err)
	}
	freed := make(chan bool)
	go func() { p.users.Wait(); p.s.work.Wait(); close(freed) }()
	select {
	case <-freed:
	case <-time.After(5 * time.Second):
		t.Fatal("it is not freed")
	}
	if len(p.warm) > 0 {
		t.Errorf("%d instances are left", len(p.warm))
	}
	if again := h.add(wasm); h.call(again, object{}).Err != nil {
		t.Error("it cannot be added again")
	}
}

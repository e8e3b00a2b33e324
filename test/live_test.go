package test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A running server follows plugins.lock. New modules are ready before they are offered, a call of a
// replaced module ends on that module, an invalid lock changes nothing, and removed modules are
// withdrawn.
func TestARunningServerFollowsTheLock(t *testing.T) {
	s, token := tokenSite(t)
	numbers := freeAddress(t)
	s.append(t, "[front]\nmetrics = %q\n", numbers)
	s.grant(t, "bench_nothing", "green")
	url := s.serveHTTP(t)
	changed := make(chan bool, 64)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"},
		&mcp.ClientOptions{ToolListChangedHandler: func(context.Context,
			*mcp.ToolListChangedRequest) {
			changed <- true
		}}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp",
		HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	must(t, err)
	defer session.Close()
	told := func() {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			t.Fatal("clients were not told")
		}
		for len(changed) > 0 {
			<-changed
		}
	}
	offers := func(name string) bool {
		t.Helper()
		list, err := session.ListTools(t.Context(), nil)
		must(t, err)
		return slices.ContainsFunc(list.Tools, func(o *mcp.Tool) bool { return o.Name == name })
	}
	works := func(name string, args map[string]any) bool {
		t.Helper()
		a, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		return err == nil && !a.IsError
	}
	once := map[string]any{"n": 1}
	ranWith := func() string { // the module of the newest call
		t.Helper()
		if !works("steps_run", once) {
			t.Fatal("the tool does not work")
		}
		all := regexp.MustCompile(`"digest":"(sha256:[0-9a-f]{64})"`).
			FindAllStringSubmatch(s.journal(t), -1)
		return all[len(all)-1][1]
	}
	old, dir := digestIn(t, s, "steps"), filepath.Join(s.dir, "plugins")
	if got := ranWith(); got != old {
		t.Fatalf("it runs %s, want %s", got, old)
	}

	t.Log("replaced: the same code with other bytes, while a call runs")
	began := time.Now()
	if !works("steps_run", map[string]any{"n": 100}) {
		t.Fatal("the tool does not work")
	}
	// A call of some six seconds, while a module of this size compiles within one.
	ended := s.steps(t, session, min(9999, int(600*time.Second/time.Since(began))))
	module := filepath.Join(dir, "steps.wasm")
	wasm, err := os.ReadFile(module)
	must(t, err)
	must(t, os.WriteFile(module, append(wasm, 0, 2, 1, 'x'), 0o644)) // a custom section
	s.relock(t)
	next := digestIn(t, s, "steps")
	within(t, "the new module runs", func() bool { return ranWith() == next })
	if len(ended) > 0 {
		t.Error("the call ended before the module was replaced")
	}
	if r := <-ended; r.err != nil || r.answer.IsError {
		t.Errorf("the call of the replaced module: %v %+v", r.err, r.answer)
	}

	t.Log("wrong: text, a module that is missing, one that is another")
	good := s.read(t, "plugins.lock")
	for name, text := range map[string]string{"no JSON": "{", "a key": strings.Replace(good,
		`"schema"`, `"shema"`, 1), "another module": strings.ReplaceAll(good, next, old)} {
		s.write(t, "plugins.lock", text)
		failed := metric(t, numbers, `caponier_lock_reloads_total{result="failed"}`)
		within(t, name+" is refused", func() bool {
			return metric(t, numbers, `caponier_lock_reloads_total{result="failed"}`) > failed
		})
		if got := ranWith(); got != next {
			t.Errorf("%s: it runs %s, want %s", name, got, next)
		}
		s.write(t, "plugins.lock", good)
		time.Sleep(300 * time.Millisecond)
	}

	t.Log("added: the module comes after the lock")
	if works("bench_nothing", nil) {
		t.Fatal("a tool that is not in the lock works")
	}
	if len(changed) > 0 {
		t.Error("clients were told of a change that they cannot see")
	}
	bench, err := os.ReadFile("../build/modules/bench.wasm")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "bench.wasm"), bench, 0o644))
	with := s.lockText(t)
	must(t, os.Remove(filepath.Join(dir, "bench.wasm")))
	time.Sleep(400 * time.Millisecond)
	s.write(t, "plugins.lock", with)
	time.Sleep(400 * time.Millisecond)
	if offers("bench_nothing") {
		t.Error("a tool without a module is offered")
	}
	must(t, os.WriteFile(filepath.Join(dir, "bench.wasm"), bench, 0o644))
	told()
	if !offers("bench_nothing") || !works("bench_nothing", nil) {
		t.Error("the tool that came does not work")
	}

	t.Log("removed")
	s.relock(t, "steps", "bench")
	told()
	if offers("steps_run") || works("steps_run", once) || works("bench_nothing", nil) {
		t.Error("what left the lock is there")
	}
	s.relock(t)
	told()
	if !works("steps_run", once) {
		t.Error("what came back does not work")
	}
}

// within waits until something holds.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// journal returns the text of all journal files.
func (s *site) journal(t *testing.T) (text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "lab/journal/*.jsonl"))
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(f)
		must(t, err)
		text += string(data)
	}
	return text
}

// metric returns the value of a line of /metrics.
func metric(t *testing.T, addr, line string) (value string) {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	_, rest, _ := strings.Cut(string(body), "\n"+line+" ")
	value, _, _ = strings.Cut(rest, "\n")
	return value
}

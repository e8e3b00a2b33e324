package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/console"
	"github.com/caponier-mcp/caponier/host/terms"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a console of a journal.
type world struct {
	t      testing.TB
	dir    string
	c      *console.Console
	frozen [][]string // by, scope, name, reason
	cell   string     // in every table
}

func newWorld(t testing.TB, records ...terms.Record) *world {
	w := &world{t: t, dir: t.TempDir(), cell: "cell"}
	j, err := audit.Open(audit.Options{Dir: w.dir})
	must(t, err)
	for i, r := range records {
		if r.Time.IsZero() {
			r.Time = time.Date(2026, 11, 20, 12, 0, i, 0, time.UTC)
		}
		must(t, j.Intent(t.Context(), r, false))
	}
	must(t, j.Close())
	x, err := index.Open(t.Context(), t.TempDir(), w.dir)
	must(t, err)
	t.Cleanup(func() { x.Close() })
	must(t, x.Update(t.Context(), nil))
	table := func() console.Table {
		return console.Table{Caption: w.cell, Head: []string{w.cell},
			Rows: [][]string{{w.cell, w.cell}}}
	}
	w.c = console.New(console.Options{Viewers: []string{"ann", "bob"}, Freezers: []string{"ann"},
		Index:   x,
		Plan:    func(string, []terms.Record) (string, error) { return w.cell, nil },
		Explain: func(context.Context, terms.Record) (string, error) { return w.cell, nil },
		Panels: []console.Panel{{Name: "one", Title: "One",
			Load: func(context.Context) ([]console.Table, error) {
				return []console.Table{table()}, nil
			}}, {Name: "bad", Title: "Bad", Load: func(context.Context) ([]console.Table, error) {
			return nil, errors.New("the secret path of the host")
		}}},
		Frozen: func(context.Context) (console.Table, error) { return table(), nil },
		Freeze: func(by, scope, name, reason string) error {
			w.frozen = append(w.frozen, []string{by, scope, name, reason})
			return nil
		}})
	return w
}

func (w *world) ask(who, method, path string, form url.Values) (int, string) {
	r := httptest.NewRequestWithContext(w.t.Context(), method, path,
		strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res := httptest.NewRecorder()
	w.c.Serve(res, r, console.Visit{Who: who, Token: func(p string) string { return "T" + p }})
	return res.Code, res.Body.String()
}

func (w *world) get(path string) string {
	w.t.Helper()
	code, body := w.ask("ann", "GET", console.Path+path, nil)
	if code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", path, code, body)
	}
	return body
}

func call(id, field, value string) terms.Record {
	r := terms.Record{Type: "intent", ID: "d" + id, CallID: id, Kind: "call", Principal: "ann",
		Tool: "stop_guest", Tier: "yellow"}
	v := reflect.ValueOf(&r).Elem().FieldByName(field)
	if v.IsValid() && v.Kind() == reflect.String {
		v.SetString(value)
	}
	return r
}

// What is written by others, and must stay text.
var hostile = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`, `javascript:alert(1)`, `</pre></details><form action=//evil>`,
	"\u202egnp.exe", "a\u200bb", "p\u0430ssword", "\x1b[31mred",
	"{{.Who}}", "</title><base href=//evil>",
	"]]><!--", `\u003cscript\u003e`, "&lt;b&gt;", "\U000e0041tag", "x\r\nSet-Cookie: a=b"}

// harmless reports what of a page is not: markup of others, and characters that do not show.
func harmless(page string) error {
	for _, bad := range []string{"<script", "<img", "<base", "onerror=alert(1)>", "<form action=//",
		"' onmouseover='alert", `href="javascript`, "<!--", "\x1b"} {
		if strings.Contains(strings.ToLower(page), bad) {
			return fmt.Errorf("%q stands in it", bad)
		}
	}
	for i, r := range page {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return fmt.Errorf("%U at %d shows as nothing", r, i)
		}
		if r == 'а' && !strings.HasPrefix(page[i+2:], "‹U&#43;0430›") {
			return errors.New("a letter that imitates another is not marked")
		}
	}
	return nil
}

// Each field of a record in turn has each hostile value, and so does each cell of a table: on every
// page it stays text.
func TestWhatOthersWroteStaysText(t *testing.T) {
	var fields []string
	for f := range reflect.TypeFor[terms.Record]().Fields() {
		if f.Type.Kind() == reflect.String && f.Name != "Type" && f.Name != "Kind" &&
			f.Name != "CallID" {
			fields = append(fields, f.Name)
		}
	}
	fields = append(fields, "CallID", "Kind", "Plugin.Name", "Plugin.Version", "Plugin.Digest",
		"Failed", "Denied.ID", "Denied.Msg", "Input", "vmid", "guest", "argv", "path", "node")
	var records []terms.Record
	for _, value := range hostile {
		for _, field := range fields {
			id := fmt.Sprintf("c%04d", len(records))
			records = append(records, filled(id, field, value)...)
		}
	}
	w := newWorld(t, records...)
	for _, value := range hostile {
		w.cell = value
		for _, path := range []string{"/panel/one", "/freeze", "/call/" + records[0].CallID,
			"/call/" + records[0].CallID + "/explain/" + url.PathEscape(records[0].ID),
			"?who=" + url.QueryEscape(value) + "&rule=" + url.QueryEscape(value),
			"?after=" + url.QueryEscape(value), "?outcome=" + url.QueryEscape(value)} {
			if _, page := w.ask("ann", "GET", console.Path+path, nil); harmless(page) != nil {
				t.Errorf("%s with %q: %v", path, value, harmless(page))
			}
		}
		_, page := w.ask(value, "GET", console.Path, nil)
		if err := harmless(page); err != nil {
			t.Errorf("as %q: %v", value, err)
		}
	}
	seen := 0
	for path := ""; ; {
		page := w.get(path)
		if err := harmless(page); err != nil {
			t.Errorf("the list: %v", err)
		}
		seen += strings.Count(page, "<tr><td><a")
		_, rest, more := strings.Cut(page, `<a href="`+console.Path+"?after=")
		if !more {
			break
		}
		after, _, _ := strings.Cut(rest, `"`)
		path = "?after=" + after
	}
	for _, r := range records {
		code, page := w.ask("ann", "GET", console.Path+"/call/"+url.PathEscape(r.CallID), nil)
		if err := harmless(page); err != nil || code != http.StatusOK {
			t.Errorf("call %q (%+v): %d %v", r.CallID, r, code, err)
		}
	}
	if seen < len(hostile)*len(fields) {
		t.Errorf("the list had %d calls", seen)
	}
}

// filled is a call with an operation that was refused, and a value in one field of both.
func filled(id, field, value string) []terms.Record {
	in := map[string]any{"targets": map[string]any{"vmids": []string{"105"},
		"nodes": []string{"pve1"}}, "guests": map[string]any{"105": map[string]any{"name": "db"}}}
	switch field {
	case "CallID":
		id += value
	case "vmid", "guest":
		in["targets"] = map[string]any{"vmids": []string{value}}
		in["guests"] = map[string]any{value: map[string]any{"name": value}}
	case "node":
		in["targets"] = map[string]any{"nodes": []string{value}, "paths": []string{value}}
	case "argv":
		in["command"] = map[string]any{"calls": []any{map[string]any{"argv": []string{value}}}}
	case "path":
		in["file"] = map[string]any{"action": "write", "path": value, "local": value}
	case "Input":
		in[value] = value
	}
	c := call(id, field, value)
	op := call(id, field, value)
	if op.Kind == "call" {
		op.Kind = "operation"
	}
	op.Type, op.ID, op.Failed = "refused", op.ID+"o", []string{"check"}
	op.Denied = []terms.Reason{{ID: "check", Msg: "no"}}
	for _, r := range []*terms.Record{&c, &op} {
		r.Input, _ = json.Marshal(in)
		switch field {
		case "Plugin.Name":
			r.Plugin.Name = value
		case "Plugin.Version":
			r.Plugin.Version = value
		case "Plugin.Digest":
			r.Plugin.Digest = value
		case "Failed":
			op.Failed = []string{value}
		case "Denied.ID":
			op.Denied[0].ID = value
		case "Denied.Msg":
			op.Denied[0].Msg = value
		}
	}
	end := c
	end.Type, end.Input = "outcome", nil
	if end.Outcome == "" {
		end.Outcome = terms.Failed
	}
	return []terms.Record{c, op, end}
}

func TestWhoIsNotNamedSeesNothing(t *testing.T) {
	w := newWorld(t, call("c1", "", ""))
	for _, who := range []string{"", "eve", "Ann", "ann ", "*"} {
		for _, path := range []string{"", "/call/c1", "/call/c1/explain/dc1", "/panel/one",
			"/freeze", "/console.css", "/nothing"} {
			code, body := w.ask(who, "GET", console.Path+path, nil)
			if code != http.StatusForbidden || strings.Contains(body, "stop_guest") ||
				!strings.Contains(body, "not see the console") {
				t.Errorf("%q gets %s: %d %s", who, path, code, body)
			}
		}
	}
	for who, form := range map[string]bool{"ann": true, "bob": false} {
		_, page := w.ask(who, "GET", console.Path+"/freeze", nil)
		if strings.Contains(page, `value="T`+console.Path+`/freeze"`) != form {
			t.Errorf("%s: a form to freeze: want %v in %s", who, form, page)
		}
	}
	good := url.Values{"scope": {"node"}, "name": {"pve1"}, "reason": {"why"}}
	for _, x := range []struct {
		who    string
		change url.Values
		want   int
	}{{"bob", nil, 403}, {"eve", nil, 403}, {"ann", url.Values{"scope": {"plugin"}}, 400},
		{"ann", url.Values{"scope": {"all"}}, 400}, {"ann", url.Values{"name": {""}}, 400}} {
		form := url.Values{}
		for _, from := range []url.Values{good, x.change} {
			for k, v := range from {
				form[k] = v
			}
		}
		code, _ := w.ask(x.who, "POST", console.Path+"/freeze", form)
		if code != x.want || len(w.frozen) > 0 {
			t.Errorf("%s with %v: %d, want %d; %v", x.who, form, code, x.want, w.frozen)
		}
	}
	if code, _ := w.ask("ann", "POST", console.Path+"/freeze", good); code != 303 ||
		!reflect.DeepEqual(w.frozen, [][]string{{"ann", "node", "pve1", "why"}}) {
		t.Errorf("%d %v", code, w.frozen)
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		w.ask("ann", method, console.Path+"/freeze?scope=node&name=pve1", good)
	}
	if len(w.frozen) != 1 {
		t.Errorf("something else than a POST froze: %v", w.frozen)
	}
}

func TestErrorsSayWhatAndNoSecret(t *testing.T) {
	w := newWorld(t, call("c1", "", ""))
	for path, want := range map[string]int{"/panel/bad": 500, "/panel/none": 404,
		"/call/none": 404, "/call/c1/explain/none": 404, "?since=never": 400, "?outcome=x": 400,
		"?who=a&who=b": 400, "?after=1": 400, "?tool=" + strings.Repeat("x", 300): 400,
		"/call/c1?from=-5": 404, "/call/c1?from=9223372036854775807": 404} {
		code, body := w.ask("ann", "GET", console.Path+path, nil)
		if code != want || !strings.Contains(body, `role="alert"`) ||
			strings.Contains(body, "secret path") {
			t.Errorf("%s: %d, want %d: %s", path, code, want, body)
		}
	}
}

// What the console lists for filters is what the journal says for the same ones.
// TestOnePersonHasOnePageAtATime keeps one person from taking all processors of the host.
func TestOnePersonHasOnePageAtATime(t *testing.T) {
	began, end := make(chan string, 100), make(chan bool)
	c := console.New(console.Options{Viewers: []string{"ann", "bob"}, Wait: time.Second,
		Panels: []console.Panel{{Name: "slow", Load: func(context.Context) (t []console.Table,
			err error) {
			began <- ""
			<-end
			return t, err
		}}}})
	codes := make(chan int, 100)
	ask := func(who string) {
		res := httptest.NewRecorder()
		c.Serve(res, httptest.NewRequestWithContext(t.Context(), "GET", console.Path+"/panel/slow",
			nil), console.Visit{Who: who, Token: func(string) string { return "" }})
		codes <- res.Code
	}
	for range 20 {
		go ask("ann")
	}
	for range 19 {
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("while a page of ann is made, another gets %d", code)
		}
	}
	go ask("bob")
	<-began
	<-began // bob does not wait for ann
	if len(began) > 0 {
		t.Errorf("%d more pages are made at once", len(began))
	}
	close(end)
	if a, b := <-codes, <-codes; a != http.StatusOK || b != http.StatusOK {
		t.Errorf("got %d and %d", a, b)
	}
}

func TestTheConsoleAnswersWhatTheQueryAnswers(t *testing.T) {
	var records []terms.Record
	tools, people := []string{"stop_guest", "start_guest", "list"}, []string{"ann", "bob"}
	for i := range 120 {
		r := filled(fmt.Sprintf("c%04d", i), "", "")
		for k := range r {
			r[k].Tool, r[k].Principal = tools[i%3], people[i/3%2]
			r[k].Node = []string{"", "pve1", "pve2"}[i/5%3]
		}
		r[2].Outcome = []terms.Outcome{terms.Succeeded, terms.Failed, terms.Unknown}[i/7%3]
		records = append(records, r[:3-i%2]...)
	}
	w := newWorld(t, records...)
	some := 0
	for _, who := range []string{"", "ann", "x"} {
		for _, tool := range []string{"", "st*", "list"} {
			for _, outcome := range []string{"", "failed", "none"} {
				for _, node := range []string{"", "pve2"} {
					f := url.Values{"who": {who}, "tool": {tool}, "outcome": {outcome},
						"node": {node}, "rule": {"check"}, "guest": {"db"},
						"since": {"2026-11-20 12:00:30"[:16]}}
					since, err := audit.Moment(f.Get("since"), time.Now())
					must(t, err)
					var want []string
					for c, err := range (audit.Union{{Dir: w.dir}}).Calls(audit.Query{Who: who,
						Tool: tool, Outcome: outcome, Node: node, Rule: "check", Guest: "db",
						Since: since}) {
						must(t, err)
						want = append(want, c.Call)
					}
					got := w.all("?" + f.Encode())
					slices.Sort(got)
					slices.Sort(want)
					if !slices.Equal(got, want) {
						t.Errorf("%v:\n got %v\nwant %v", f, got, want)
					}
					some += len(want)
				}
			}
		}
	}
	if some < 100 {
		t.Errorf("only %d calls were found", some)
	}
}

// all follows the pages of a list, and returns the ids of their calls.
func (w *world) all(path string) (ids []string) {
	for {
		page := w.get(path)
		for part := range strings.SplitSeq(page, `<tr><td><a href="`+console.Path+"/call/") {
			if id, _, is := strings.Cut(part, `"`); is && strings.HasPrefix(id, "c") {
				ids = append(ids, id)
			}
		}
		before, _, more := strings.Cut(page, `" rel="next"`)
		if !more {
			return ids
		}
		next := before[strings.LastIndex(before, `"`)+1:]
		path = strings.ReplaceAll(strings.TrimPrefix(next, console.Path), "&amp;", "&")
	}
}

// Whatever stands in an address: an answer, which is harmless, and no call that does not fit.
func FuzzAddress(f *testing.F) {
	w := newWorld(f, call("c1", "", ""))
	for _, seed := range []string{"who=ann", "after=1.2", "since=7d&until=2026-11-23", "tool=*",
		"outcome=none", "after=-1.-1", "since=1e9d", "after=4611686018427387904.0",
		"#\x04"} {
		f.Add("", seed)
		f.Add("/call/c1", seed)
	}
	f.Fuzz(func(t *testing.T, path, asked string) {
		written := (&url.URL{Path: console.Path + path, RawQuery: asked}).String()
		u, err := url.ParseRequestURI(written) // as net/http reads a request line
		if err != nil || strings.ContainsAny(written, " \x7f") {
			return
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.URL = u
		res := httptest.NewRecorder()
		w.c.Serve(res, r, console.Visit{Who: "ann", Token: func(string) string { return "T" }})
		if to := res.Header().Get("Location"); to != "" { // net/http cleans the path
			if to[0] != '/' || len(to) > 1 && strings.Contains("/\\", to[1:2]) || res.Code != 307 {
				t.Errorf("%d %q leads to %q", res.Code, written, to)
			}
			return
		}
		if err := harmless(res.Body.String()); err != nil || res.Code >= 500 {
			t.Errorf("%d %v: %s", res.Code, err, res.Body)
		}
		q := u.Query()
		if who := q.Get("who"); path == "" && res.Code == 200 && who != "" && who != "ann" &&
			strings.Contains(res.Body.String(), "stop_guest</td>") {
			t.Errorf("%q finds a call of ann", asked)
		}
	})
}

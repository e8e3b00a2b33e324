package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	pageSize = 50
	opsSize  = 200 // operations on a page
	maxValue = 256 // bytes of a filter
)

// field is a filter of the list.
type field struct{ Name, Label, Value, Hint string }

// list is the page of calls.
type list struct {
	Fields        []field
	Outcomes      []string
	Outcome       string
	Calls         []audit.Found
	First         bool
	Older, Newest string
	Lost          int
	Behind        int64
}

// query reads the filters, which are those of `caponier audit query`.
func query(f url.Values, now time.Time) (q audit.Query, err error) {
	for name, values := range f {
		if len(values) > 1 || len(values[0]) > maxValue {
			return q, fmt.Errorf("the filter %s stands there twice, or is too long", name)
		}
	}
	q = audit.Query{Who: f.Get("who"), Tool: f.Get("tool"), Guest: f.Get("guest"),
		Node: f.Get("node"), Outcome: f.Get("outcome"), Rule: f.Get("rule")}
	if q.Outcome != "" && !slices.Contains(audit.Outcomes, q.Outcome) {
		return q, fmt.Errorf("outcome %s: want one of %s", q.Outcome,
			strings.Join(audit.Outcomes, ", "))
	}
	if q.Since, err = audit.Moment(f.Get("since"), now); err == nil {
		q.Until, err = audit.Moment(f.Get("until"), now)
	}
	return q, err
}

func (c *Console) calls(w http.ResponseWriter, r *http.Request, v Visit) {
	given := r.URL.Query()
	q, err := query(given, time.Now())
	var after index.Mark
	if at := given.Get("after"); at != "" && err == nil {
		after, err = mark(at)
	}
	if err != nil {
		c.fail(w, v, http.StatusBadRequest, err.Error())
		return
	}
	p, err := c.opt.Index.Find(r.Context(), q, after, pageSize)
	l := list{Calls: p.Calls, Outcomes: audit.Outcomes, Outcome: q.Outcome, Lost: p.Lost,
		First: after == index.Mark{}}
	if err == nil {
		l.Behind, err = c.opt.Index.Behind(r.Context())
	}
	if err != nil {
		c.broken(w, v, "The journal", err)
		return
	}
	for _, f := range []field{{"who", "Principal", "", "agent-a"}, {"tool", "Tool", "", "stop_*"},
		{"guest", "Guest", "", "105"}, {"node", "Node", "", "pve1"},
		{"rule", "Rule", "", "protected"}, {"since", "Since", "", "24h"},
		{"until", "Until", "", "2026-11-23"}} {
		f.Value = given.Get(f.Name)
		l.Fields = append(l.Fields, f)
	}
	given.Del("live")
	if p.More {
		given.Set("after", fmt.Sprintf("%d.%d", p.Next.Ended, p.Next.Call))
		l.Older = Path + "?" + given.Encode()
	}
	given.Del("after")
	l.Newest = Path + "?" + given.Encode()
	page := view{Title: "Calls", Data: l}
	if l.First { // older calls stay as they are
		page = live(r, page)
	}
	c.render(w, v, http.StatusOK, "calls", page)
}

func mark(text string) (m index.Mark, err error) {
	a, b, ok := strings.Cut(text, ".")
	if m.Ended, err = strconv.ParseInt(a, 10, 64); err == nil {
		m.Call, err = strconv.ParseInt(b, 10, 64)
	}
	if !ok || err != nil {
		err = fmt.Errorf("%q is no place in the list", text)
	}
	return m, err
}

// tree is the page of one call.
type tree struct {
	audit.Found
	Decisions []branch
	Plan      string
	More      string // the next page of operations
}

// branch is a decision, and what came of it.
type branch struct {
	terms.Record
	End   *terms.Record // its outcome, nil for none
	Input string
}

func (c *Console) call(w http.ResponseWriter, r *http.Request, v Visit) {
	f, records, ok, err := c.opt.Index.Call(r.Context(), r.PathValue("id"))
	from, wrong := strconv.ParseUint("0"+r.URL.Query().Get("from"), 10, 31)
	switch {
	case err != nil:
		c.broken(w, v, "The journal", err)
		return
	case !ok || wrong != nil:
		c.fail(w, v, http.StatusNotFound, "There is no such call, or it was not indexed yet.")
		return
	}
	t := tree{Found: f}
	ends := map[string]*terms.Record{}
	for _, r := range records {
		if r.Type == "outcome" {
			ends[r.ID] = &r
		}
	}
	for _, r := range records {
		if r.Type != "outcome" {
			t.Decisions = append(t.Decisions, branch{r, ends[r.ID], ""})
		}
	}
	n, next := len(t.Decisions), int(from)+opsSize
	if n > next {
		t.More = fmt.Sprintf("%s/call/%s?from=%d", Path, url.PathEscape(f.Call), next)
	}
	t.Decisions = t.Decisions[min(int(from), n):min(next, n)]
	for i, d := range t.Decisions {
		t.Decisions[i].Input = indented(d.Record.Input)
	}
	if t.Plan, err = c.opt.Plan(f.Call, records); err != nil {
		t.Plan = "what was planned cannot be read: " + err.Error()
	}
	c.render(w, v, http.StatusOK, "call", view{Title: "Call " + f.Call, Data: t})
}

func indented(input json.RawMessage) string {
	if len(input) == 0 {
		return ""
	}
	text := string(input)
	var value any
	if json.Unmarshal(input, &value) == nil {
		if b, err := json.MarshalIndent(value, "", "  "); err == nil {
			text = string(b)
		}
	}
	return text
}

func (c *Console) explain(w http.ResponseWriter, r *http.Request, v Visit) {
	f, records, _, err := c.opt.Index.Call(r.Context(), r.PathValue("id"))
	at := slices.IndexFunc(records, func(x terms.Record) bool {
		return x.ID == r.PathValue("decision") && x.Type != "outcome"
	})
	if err != nil || at < 0 {
		c.fail(w, v, http.StatusNotFound, "There is no such decision of this call.")
		return
	}
	told, err := c.opt.Explain(r.Context(), records[at])
	if err != nil {
		c.broken(w, v, "The explanation", err)
		return
	}
	c.render(w, v, http.StatusOK, "explain", view{Title: "Decision " + records[at].ID,
		Data: map[string]any{"Call": f.Call, "Text": told}})
}

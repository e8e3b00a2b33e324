package mcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	keptTime     = 10 * time.Minute
	keptPrefix   = "caponier://results/"
	keptTemplate = keptPrefix + "{id}/{from}"
)

// kept holds the whole texts of results that were truncated: in memory, for keptTime, for the
// caller alone. One caller may hold a quarter of the bytes.
type kept struct {
	most int // bytes altogether

	mu    sync.Mutex // guards the following
	bytes int
	byID  map[string]keptText
	order []string // the oldest first
}

type keptText struct {
	owner, text string
	tool        string   // that returned it
	nodes       []string // of the call
	expires     time.Time
}

// keep returns the URI of the text's beginning, or "" for a text that is too long to keep.
func (k *kept) keep(t keptText, now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(t.text) > k.most/4 {
		return ""
	}
	if k.byID == nil {
		k.byID = map[string]keptText{}
	}
	mine := 0
	for _, old := range k.byID {
		if old.owner == t.owner {
			mine += len(old.text)
		}
	}
	drop := func(old keptText) { // those that are over, the oldest first
		k.bytes -= len(old.text)
		if old.owner == t.owner {
			mine -= len(old.text)
		}
	}
	k.order = slices.DeleteFunc(k.order, func(id string) bool {
		old := k.byID[id]
		over := now.After(old.expires) ||
			old.owner == t.owner && mine+len(t.text) > k.most/4
		if over {
			drop(old)
			delete(k.byID, id)
		}
		return over
	})
	for k.bytes+len(t.text) > k.most {
		drop(k.byID[k.order[0]])
		delete(k.byID, k.order[0])
		k.order = k.order[1:]
	}
	id := rand.Text()
	t.expires = now.Add(keptTime)
	k.byID[id], k.order, k.bytes = t, append(k.order, id), k.bytes+len(t.text)
	return keptPrefix + id + "/0"
}

func (k *kept) get(owner, id string, now time.Time) (keptText, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, found := k.byID[id]
	return t, found && t.owner == owner && now.Before(t.expires)
}

// offerKept lets callers read the whole of a truncated result. What is read was decided and
// journaled when it was called for; each read checks again that the caller may see the tool and
// that nothing of it is frozen. Otherwise, and for other callers, the resource does not exist.
func (s *Server) offerKept() {
	s.sdk.AddResourceTemplate(&mcp.ResourceTemplate{Name: "results",
		Title: "The whole of a long result", URITemplate: keptTemplate, MIMEType: "text/plain",
		Description: "The whole text of a truncated result, from a character on. The result " +
			"names the URI, which is valid for 10 minutes and for the caller alone."}, s.readKept)
}

func (s *Server) readKept(ctx context.Context, req *mcp.ReadResourceRequest,
) (*mcp.ReadResourceResult, error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, err
	}
	uri, most := req.Params.URI, s.opts.MaxChars
	id, at, _ := strings.Cut(strings.TrimPrefix(uri, keptPrefix), "/")
	from, err := strconv.Atoi(at)
	t, found := s.kept.get(who.owner(), id, time.Now())
	total := utf8.RuneCountInString(t.text)
	if err != nil || !found || from < 0 || from > total || strconv.Itoa(from) != at {
		return nil, missing("resource", uri)
	}
	if tool := s.find("tool", t.tool); tool == nil ||
		!s.door.Readable(ctx, who.Principal, who.Source, tool, t.nodes) {
		return nil, missing("resource", uri)
	}
	part := skip(t.text, from)
	rest := skip(part, most)
	res := &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: uri, MIMEType: "text/plain", Text: part[:len(part)-len(rest)]}}}
	if rest != "" {
		next := fmt.Sprintf("%s%s/%d", keptPrefix, id, from+most)
		res.Contents = append(res.Contents, &mcp.ResourceContents{URI: next, MIMEType: "text/plain",
			Text: fmt.Sprintf("[Characters %d to %d of %d. Read on: %s]", from, from+most,
				total, next)})
	}
	return res, nil
}

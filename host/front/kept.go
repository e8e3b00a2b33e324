package front

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	keptTime   = 10 * time.Minute
	keptPrefix = "caponier://results/"

	keptTemplate = keptPrefix + "{id}/{from}"
)

// kept are whole outputs of which a result showed only the beginning. They are in memory alone, for
// a while, and only for who made the call.
type kept struct {
	most int // bytes of all together

	mu    sync.Mutex // guards the following
	bytes int
	byID  map[string]keptText
	order []string // oldest first
}

type keptText struct {
	owner, text string
	tool        string   // that gave it
	nodes       []string // that the call was about
	expires     time.Time
}

// keep gives the URI of the text's beginning, or "" for a text that is too long to keep.
func (k *kept) keep(t keptText, now time.Time) string {
	if len(t.text) > k.most/4 { // so that one output cannot push out all others
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		k.byID = map[string]keptText{}
	}
	for len(k.order) > 0 && (k.bytes+len(t.text) > k.most || now.After(k.byID[k.order[0]].expires)) {
		k.bytes -= len(k.byID[k.order[0]].text)
		delete(k.byID, k.order[0])
		k.order = k.order[1:]
	}
	id := rand.Text()
	t.expires = now.Add(keptTime)
	k.byID[id] = t
	k.order = append(k.order, id)
	k.bytes += len(t.text)
	return keptPrefix + id + "/0"
}

func (k *kept) get(owner, id string, now time.Time) (keptText, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, found := k.byID[id]
	return t, found && t.owner == owner && now.Before(t.expires)
}

// offerKept lets callers read on where a result of theirs was cut. What is read was decided and
// journaled when it was called for; that its tool may still be seen, and nothing of it is frozen,
// is asked each time. To everybody else, and otherwise, there is no such resource.
func (s *Server) offerKept() {
	s.mcp.AddResourceTemplate(
		&mcp.ResourceTemplate{
			Name:        "results",
			Title:       "The rest of a long result",
			URITemplate: keptTemplate,
			MIMEType:    "text/plain",
			Description: "What a truncated result left out, from a character on. The result names the URI; it is good for 10 minutes, for the caller alone.",
		},
		s.readKept,
	)
}

func (s *Server) readKept(
	ctx context.Context,
	req *mcp.ReadResourceRequest,
) (*mcp.ReadResourceResult, error) {
	who, err := callerOf(req)
	if err != nil {
		return nil, err
	}
	id, at, _ := strings.Cut(strings.TrimPrefix(req.Params.URI, keptPrefix), "/")
	from, err := strconv.Atoi(at)
	kept, found := s.kept.get(who.owner(), id, time.Now())
	if err != nil || !found || from < 0 || strconv.Itoa(from) != at {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	if tool := s.find("tool", kept.tool); tool == nil ||
		!s.door.Readable(ctx, who.Principal, who.source, tool, kept.nodes) {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	text := kept.text
	total := utf8.RuneCountInString(text)
	if from > total {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	part := skip(text, from)
	rest := skip(part, s.opts.MaxChars)
	part = part[:len(part)-len(rest)]
	res := &mcp.ReadResourceResult{
		Contents: []*mcp.ResourceContents{
			{URI: req.Params.URI, MIMEType: "text/plain", Text: part},
		},
	}
	if rest != "" {
		next := fmt.Sprintf("%s%s/%d", keptPrefix, id, from+s.opts.MaxChars)
		res.Contents = append(
			res.Contents,
			&mcp.ResourceContents{
				URI:      next,
				MIMEType: "text/plain",
				Text: fmt.Sprintf(
					"[Characters %d to %d of %d. Read on: %s]",
					from,
					from+s.opts.MaxChars,
					total,
					next,
				),
			},
		)
	}
	return res, nil
}

// skip gives s without its first n characters.
func skip(s string, n int) string {
	for range n {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	return s
}

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// summary is how a call ended, for programs: the _meta of its result under io.caponier/call. It
// has codes and ids; the sentences stand once, in the text.
type summary struct {
	Outcome       terms.Outcome `json:"outcome"`
	CallID        string        `json:"call_id"`
	Tier          string        `json:"tier,omitempty"`
	Refused       []refusal     `json:"refused"`
	ApprovalID    string        `json:"approval_id,omitempty"`
	Error         *toolError    `json:"error,omitempty"`
	JournalFailed bool          `json:"journal_failed,omitempty"`
	Untrusted     bool          `json:"untrusted,omitempty"` // the content is a plugin's
	Truncated     bool          `json:"truncated,omitempty"`
}

type refusal struct {
	Kind       string   `json:"kind"`
	Op         string   `json:"op,omitempty"`
	Failed     []string `json:"failed"` // checks
	Deny       []string `json:"deny"`   // ids of reasons
	DecisionID string   `json:"decision_id"`
}

const (
	metaCall = "io.caponier/call"
	// metaPlan is true in the _meta of a tools/call that is only to be planned, and the plan in the
	// _meta of its result.
	metaPlan = "io.caponier/plan"
)

func summaries(refused []*terms.Refused) []refusal {
	list := []refusal{}
	for _, r := range refused {
		deny := []string{}
		for _, d := range r.Denied {
			deny = append(deny, plaintext.Clean(d.ID))
		}
		list = append(list, refusal{r.Kind, r.Op, append([]string{}, r.Failed...), deny,
			r.DecisionID})
	}
	return list
}

// failure is the protocol error of a resource or prompt.
func failure(sum summary) error {
	code := int64(codeFailed)
	switch sum.Error.Code {
	case "refused", "waiting":
		code = codeRefused
	case "invalid_arguments":
		code = jsonrpc.CodeInvalidParams
	}
	data, err := json.Marshal(sum)
	if err != nil { // it is made of strings
		panic(err)
	}
	return &jsonrpc.Error{Code: code, Message: sum.Error.text(), Data: data}
}

// result is what a client gets. Out is nil for a call that returned no output.
type result struct {
	mcp.CallToolResult
	out    *output
	sum    summary
	hidden bool                // refused, and not to be told from what does not exist
	asks   mcp.InputRequestMap // what the client must ask first, nil for nothing
	state  string              // with which the client repeats the call then
}

// result converts how a call ended into what the client gets. IsError is set if the call was
// refused or waits, if its arguments are invalid, if the plugin or the host failed, and if the tool
// says that it failed. It is not set for a command that ran and ended with another exit code than
// 0, unless the tool calls that a failure: the exit code is a result. An error has its sentences in
// the text and no structuredContent, which clients would hold against the output schema.
func (s *Server) result(r *request, a answer) *result {
	sum := summary{Outcome: a.Outcome, CallID: a.CallID, Tier: a.Tier.String(),
		Refused: summaries(a.Refused), JournalFailed: a.JournalFailed}
	res := &result{}
	err := a.Err
	if err == nil {
		res.out, err = s.decode(r.tool, a.Output)
	}
	if err == nil {
		err = res.out.render(r.tool, &s.opts, &res.CallToolResult)
	}
	if err == nil {
		if sum.Untrusted, sum.Error = true, res.out.failed; sum.Error != nil &&
			sum.Outcome == terms.Succeeded { // the gate could not know
			sum.Outcome = terms.Failed
		}
	}
	if err != nil {
		res.out, res.CallToolResult = nil, mcp.CallToolResult{}
		s.explain(r.tool, err, a.stopped, &sum)
		no, bad := (*terms.Refused)(nil), (*terms.InvalidArguments)(nil)
		res.hidden = (errors.As(err, &no) || errors.As(err, &bad)) &&
			!s.sees(context.WithoutCancel(r.who.Gone), r.who, r.tool)
	}
	said := map[string]bool{} // by decision
	if e := sum.Error; e != nil {
		for _, no := range a.Refused {
			e.message = strings.ReplaceAll(e.message, plaintext.Clean(no.Error()), refusalText(no))
			said[no.DecisionID] = strings.Contains(e.message, no.DecisionID)
		}
		res.IsError, res.StructuredContent = true, nil
		res.say(e.text())
	}
	if res.out != nil && res.out.cut {
		sum.Truncated = true
		res.say(fmt.Sprintf("[Truncated: about %d of %d characters shown, the middle of the "+
			"longest text is left out. To get less at a time, ask for less: a smaller range or "+
			"limit, a filter, or on a command line head, tail or grep.]", res.out.shown,
			res.out.total))
	}
	res.refused(a.Refused, said)
	if a.Outcome == terms.Unknown {
		res.say("The outcome is unknown: it may have happened, or may still be happening. Check " +
			"the state before you repeat it.")
	}
	if a.JournalFailed {
		res.say("journal_failed: this call could not be recorded, and everything else is refused " +
			"until the journal can be written. Tell the operator.")
	}
	if res.IsError {
		res.say("Call " + a.CallID + ", outcome " + string(sum.Outcome) + ".")
	}
	res.Meta, res.sum = mcp.Meta{metaCall: sum}, sum
	if r.plan && a.Plan != nil {
		res.planned(a.Plan)
	}
	return res
}

// refused explains the parts of a call that were refused, but for the decisions that were told.
func (r *result) refused(refused []*terms.Refused, told map[string]bool) {
	for i, no := range refused {
		if i == maxRefusals {
			r.say(fmt.Sprintf("%d more parts of this call were refused.", len(refused)-i))
			break
		}
		if !told[no.DecisionID] {
			r.say("A part of this call was refused. " + refusalText(no))
		}
	}
}

// planned puts a plan in front of what the tool said in its dry run.
func (r *result) planned(p terms.Plan) {
	text := &mcp.TextContent{Text: "Nothing of this was done:\n" + p.Text()}
	r.Content = append([]mcp.Content{text}, r.Content...)
	r.Meta[metaPlan] = p
}

func (r *result) say(text string) {
	r.Content = append(r.Content, &mcp.TextContent{Text: text})
}

const (
	maxRefusal  = 600 // bytes of the text of one
	maxRefusals = 3   // of one call that are explained
)

// refusalText says what was refused, which checks and reasons did it, and what would work.
func refusalText(r *terms.Refused) string {
	what := "Refused by policy"
	if r.Op != "" {
		what = "Operation " + r.Op + " refused by policy"
	}
	told := map[string]bool{}
	var why []string
	for _, d := range r.Denied {
		told[d.ID] = true
		msg := strings.TrimSuffix(plaintext.Clean(d.Msg), ".")
		why = append(why, plaintext.Short(msg, 300/len(r.Denied))+" ("+d.ID+")")
	}
	if others := slices.DeleteFunc(slices.Clone(r.Failed),
		func(id string) bool { return told[id] }); len(others) > 0 {
		why = append(why, "checks: "+strings.Join(others, ", "))
	}
	tail := ". " + whatNow(r) + " Decision " + r.DecisionID + "."
	head := plaintext.Clean(what + ": " + strings.Join(why, "; "))
	return plaintext.Short(head, max(maxRefusal-len(tail)-len("…"), 0)) + tail
}

// whatNow says what can be done about a refusal. It does not suggest other arguments, a retry or
// an approval where these cannot help.
func whatNow(r *terms.Refused) string {
	has := func(ids ...string) bool {
		return slices.ContainsFunc(ids,
			func(id string) bool { return slices.Contains(r.Failed, id) })
	}
	switch {
	case has("approval.denied"):
		return "A person said no to this call: do not make it again, and tell your user."
	case has("freeze"):
		return "An operator has frozen this: no other arguments help. Ask the operator to thaw it."
	case has("readonly"):
		return "The host only reads for now: no other arguments help. Tell your user."
	case has("journal.unavailable", "ledger.unavailable", "approval.unavailable", "policy.error",
		"policy.panic"):
		return "The host cannot decide for now: no other arguments help. Tell the operator."
	case r.Decision.Tier == terms.Black:
		return "Tier black never runs, and no approval changes that. Tell your user."
	case has("protected"):
		return "What it touches is protected, and no approval changes that. Tell your user."
	case has("grant", "identity", "ceiling"):
		return "No role of this principal allows it. Tell your user."
	case len(r.Failed) == 1 && has("rate", "refusals", "approval.flood"):
		return "Wait as long as it says, then make the same call again."
	case len(r.Failed) == 1 && has("budget"):
		return "Wait for the next day, or tell your user."
	case r.NeedsApproval:
		return "Only a person's confirmation is missing: tell your user."
	}
	return "Do not repeat it unchanged: change what the rules name, or tell your user."
}

// explain turns why there is no output into words and a code. Errors that are not meant for the
// client go to the log.
func (s *Server) explain(tool *terms.Tool, err, stopped error, sum *summary) {
	var refused *terms.Refused
	var invalid *terms.InvalidArguments
	var waiting *terms.Waiting
	var broken *terms.PluginError
	e := &toolError{}
	switch {
	case errors.As(err, &refused):
		sum.Refused = append(summaries([]*terms.Refused{refused}), sum.Refused...)
		e.Code, e.message = "refused", refusalText(refused)
		e.suggestion = "Nothing was executed."
	case errors.As(err, &invalid):
		e.Code, e.message = "invalid_arguments", invalid.Error()
		e.suggestion = "Nothing was executed. Correct the arguments to fit the tool's input " +
			"schema and call it again."
	case errors.As(err, &waiting):
		sum.ApprovalID = waiting.ApprovalID
		e.Code, e.message = "waiting", waiting.Error()
		e.suggestion = "Nothing was executed yet. Tell your user; then make the same call again."
		if !waiting.Expires.IsZero() {
			e.suggestion += " The request expires at " +
				waiting.Expires.UTC().Format("15:04:05 MST") + "."
		}
	case errors.As(err, &broken):
		s.log.Error("a plugin failed", "plugin", tool.Plugin.Name, "digest", tool.Plugin.Digest,
			"tool", tool.Name, "call", sum.CallID, "error", err)
		fault := "a fault of plugin " + tool.Plugin.Name
		e.Code, e.message, e.suggestion = broken.Code, broken.Message,
			"This is "+fault+": tell your user."
		if broken.Code == "plugin_memory" { // most often it was asked for too much
			e.suggestion = "Ask for less at a time. If that does not help, tell your user: it is " +
				fault + ", or sandbox.memory_max is too small for it."
		}
	case stopped != nil:
		e.Code, e.message = "cancelled", "the call was cancelled"
		if errors.Is(stopped, errStopping) {
			e.message += " because the host is stopping"
		}
	default:
		s.log.Error("a call failed inside the host", "tool", tool.Name, "call", sum.CallID,
			"error", err)
		e.Code, e.message = "internal", "the host could not do this"
		e.suggestion = "Its log has the cause, under this call's id."
	}
	if sum.Outcome == terms.Succeeded { // the gate could not know
		sum.Outcome = terms.Failed
	}
	e.message = cut(e.message, s.opts.MaxChars)
	e.suggestion = plaintext.Clean(e.suggestion)
	sum.Error = e
}

package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// summary is how every call ended, for programs. It is in the result's _meta under
// io.caponier/call, and for a call that gave no output also in structuredContent.
type summary struct {
	Outcome       gate.Outcome `json:"outcome"`
	CallID        string       `json:"call_id"`
	Tier          string       `json:"tier,omitempty"`
	Refused       []refusal    `json:"refused"`
	ApprovalID    string       `json:"approval_id,omitempty"`
	Error         *toolError   `json:"error,omitempty"`
	JournalFailed bool         `json:"journal_failed,omitempty"`
	// the content came from a plugin and what it ran
	Untrusted bool `json:"untrusted,omitempty"`
}

type refusal struct {
	Kind       string        `json:"kind"`
	Op         string        `json:"op,omitempty"`
	Failed     []string      `json:"failed"`
	Deny       []gate.Reason `json:"deny"`
	DecisionID string        `json:"decision_id"`
}

type toolError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Suggestion string `json:"suggestion,omitempty"`
}

const metaCall = "io.caponier/call"

func summaries(refused []*gate.Refused) []refusal {
	list := []refusal{}
	for _, r := range refused {
		deny := []gate.Reason{}
		for _, d := range r.Denied {
			deny = append(deny, gate.Reason{ID: clean(d.ID), Msg: clean(d.Msg)})
		}
		list = append(
			list,
			refusal{
				Kind:       r.Kind,
				Op:         r.Op,
				Failed:     append([]string{}, r.Failed...),
				Deny:       deny,
				DecisionID: r.DecisionID,
			},
		)
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
	return &jsonrpc.Error{
		Code:    code,
		Message: strings.TrimSpace(sum.Error.Message + " " + sum.Error.Suggestion),
		Data:    data,
	}
}

// result converts how a call ended, each way on purpose, into what the client gets: as a result,
// since the model can act on it. A spent budget does not come here.
func (s *Server) result(
	who caller,
	tool *gate.Tool,
	a gate.Answer,
	stopped error,
) (*mcp.CallToolResult, *output, summary) {
	sum := summary{
		Outcome:       a.Outcome,
		CallID:        a.CallID,
		Tier:          a.Tier.String(),
		Refused:       summaries(a.Refused),
		JournalFailed: a.JournalFailed,
	}
	chars := &budget{left: s.opts.MaxChars}
	res := &mcp.CallToolResult{}
	var out *output
	err := a.Err
	if err == nil {
		if out, err = s.decode(tool, a.Output, chars); err == nil {
			sum.Untrusted = true
			sum.Error = out.Error
			res.Content, res.StructuredContent = out.content, out.structured
		}
	}
	if err != nil {
		s.explain(tool, err, stopped, &sum)
	}
	if sum.Error != nil {
		res.IsError = true
		say(
			res,
			strings.TrimSpace(
				fmt.Sprintf(
					"%s (%s). %s",
					strings.TrimSuffix(sum.Error.Message, "."),
					sum.Error.Code,
					sum.Error.Suggestion,
				),
			),
		)
	}
	if note := chars.notice(); note != "" {
		if text := out.whole(); tool.Kind == "tool" &&
			utf8.RuneCountInString(text) > s.opts.MaxChars {
			if uri := s.kept.keep(keptText{owner: who.owner(), text: text, tool: tool.Name, nodes: a.Nodes}, time.Now()); uri != "" {
				note += fmt.Sprintf(
					" The whole text can be read for 10 minutes, %d characters at a time, as resource %s.",
					s.opts.MaxChars,
					uri,
				)
				res.Content = append(
					res.Content,
					&mcp.ResourceLink{
						URI:      uri,
						Name:     "whole-result",
						Title:    "The whole text",
						MIMEType: "text/plain",
					},
				)
			}
		}
		say(res, note)
	}
	for _, r := range a.Refused {
		say(res, "Policy refused a part of this call: "+clean(r.Error()))
	}
	if a.Outcome == gate.Unknown {
		say(
			res,
			"The outcome is unknown: it may have happened, or may still be happening. Look before you repeat it.",
		)
	}
	if a.JournalFailed {
		say(
			res,
			"journal_failed: this call could not be recorded, and until the journal can be written everything else is refused. Tell the operator.",
		)
	}
	if res.IsError {
		say(res, "Call "+a.CallID+", outcome "+string(a.Outcome)+".")
		// A client that holds a tool to its output schema takes an error's structuredContent for a
		// broken promise and throws the error away.
		res.StructuredContent = nil
		if len(tool.OutputSchema) == 0 {
			res.StructuredContent = sum
		}
	}
	res.Meta = mcp.Meta{metaCall: sum}
	if out != nil {
		out.sum, out.chars = sum, chars
	}
	return res, out, sum
}

func say(res *mcp.CallToolResult, text string) {
	res.Content = append(res.Content, &mcp.TextContent{Text: text})
}

// whatNow tells what can be done about a refusal. Nobody's arguments are at fault when the host is
// frozen or busy.
func whatNow(r *gate.Refused) string {
	has := func(ids ...string) bool {
		return slices.ContainsFunc(
			ids,
			func(id string) bool { return slices.Contains(r.Failed, id) },
		)
	}
	switch {
	case has("freeze"):
		return "An operator has frozen this: no other arguments help. Ask the operator to thaw it."
	case has("readonly"):
		return "The host only reads for now: no other arguments help. Tell your user."
	case has("journal.unavailable", "ledger.unavailable", "approval.unavailable", "policy.error", "policy.panic"):
		return "The host cannot decide for now: no other arguments help. Tell the operator."
	case len(r.Failed) == 1 && has("rate", "refusals", "approval.flood"):
		return "Wait as long as it says, then make the same call again."
	case len(r.Failed) == 1 && has("budget"):
		return "Wait for the next day, or tell your user."
	case r.NeedsApproval:
		return "Only a person's confirmation is missing: tell your user."
	}
	return "Do not repeat it unchanged: change what the rules name, or tell your user."
}

// explain turns why there is no output into words and a code. What is not known to be meant for the
// client goes to the log.
func (s *Server) explain(tool *gate.Tool, err, stopped error, sum *summary) {
	var refused *gate.Refused
	var invalid *gate.InvalidArguments
	var waiting *gate.Waiting
	var broken *gate.PluginError
	e := &toolError{}
	switch {
	case errors.As(err, &refused):
		sum.Refused = append(summaries([]*gate.Refused{refused}), sum.Refused...)
		e.Code, e.Message = "refused", refused.Error()
		e.Suggestion = "Nothing was executed. " + whatNow(refused)
	case errors.As(err, &invalid):
		e.Code, e.Message, e.Suggestion = "invalid_arguments", invalid.Error(), "Nothing was executed. Correct the arguments to fit the tool's input schema and call it again."
	case errors.As(err, &waiting):
		sum.ApprovalID = waiting.ApprovalID
		e.Code, e.Message = "waiting", waiting.Error()
		e.Suggestion = "Nothing was executed yet. Tell your user; then make the same call again."
		if !waiting.Expires.IsZero() {
			e.Suggestion += " The request expires at " + waiting.Expires.UTC().
				Format("15:04:05 MST") +
				"."
		}
	case errors.As(err, &broken):
		s.log.Error(
			"a plugin broke",
			"plugin",
			tool.Plugin.Name,
			"digest",
			tool.Plugin.Digest,
			"tool",
			tool.Name,
			"call",
			sum.CallID,
			"error",
			err,
		)
		e.Code, e.Message, e.Suggestion = broken.Code, broken.Message, "This is a fault of plugin "+tool.Plugin.Name+": tell your user."
		if broken.Code == "plugin_memory" { // most often it was asked for too much
			e.Suggestion = "Ask for less at a time. If that does not help, tell your user: it is a fault of plugin " + tool.Plugin.Name + ", or sandbox.memory_max is too small for it."
		}
	case stopped != nil:
		e.Code, e.Message = "cancelled", "the call was cancelled"
		if errors.Is(stopped, errStopping) {
			e.Message += " because the host is stopping"
		}
	default:
		s.log.Error(
			"a call failed inside the host",
			"tool",
			tool.Name,
			"call",
			sum.CallID,
			"error",
			err,
		)
		e.Code, e.Message, e.Suggestion = "internal", "the host could not do this", "Its log says why, under this call's id."
	}
	if sum.Outcome == gate.Succeeded { // the gate could not know
		sum.Outcome = gate.Failed
	}
	e.Message, e.Suggestion = (&budget{left: s.opts.MaxChars}).take(e.Message), clean(e.Suggestion)
	sum.Error = e
}

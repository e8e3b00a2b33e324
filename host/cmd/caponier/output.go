package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// callResult is what call --json prints.
type callResult struct {
	Outcome       terms.Outcome    `json:"outcome"`
	Result        json.RawMessage  `json:"result"`
	Refused       []*terms.Refused `json:"refused"`
	CallID        string           `json:"call_id"`
	ApprovalID    string           `json:"approval_id,omitempty"`
	JournalFailed bool             `json:"journal_failed,omitempty"`
	Error         string           `json:"error,omitempty"`
	Plan          terms.Plan       `json:"plan,omitempty"`
}

// toolOutput is what a tool wrote (docs/abi.md).
type toolOutput struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structured"`
	Error      *struct {
		Code       string `json:"code"`
		Message    string `json:"message"`
		Suggestion string `json:"suggestion"`
	} `json:"error"`
}

// outputOf picks the texts out of an answer. What is no output of a tool has none.
func outputOf(a terms.Answer) (out toolOutput) {
	_ = json.Unmarshal(a.Output.JSON, &out)
	return out
}

// text returns the text contents, each as lines of its own, or else the structured value, safe for
// a terminal.
func (o toolOutput) text() (all string) {
	for _, c := range o.Content {
		if c.Type == "text" {
			all += strings.TrimRight(plaintext.Clean(c.Text), "\n") + "\n"
		}
	}
	if all == "" && len(o.Structured) > 0 {
		all = plaintext.Clean(string(o.Structured)) + "\n"
	}
	return all
}

// report prints an answer and gives its exit code.
func report(stdout, stderr io.Writer, a terms.Answer, asJSON bool) error {
	if asJSON {
		if err := plaintext.JSON(stdout, resultOf(a)); err != nil {
			return err
		}
	} else {
		describeAnswer(stdout, stderr, a)
	}
	return codeFor(a)
}

// resultOf is an answer for programs.
func resultOf(a terms.Answer) callResult {
	r := callResult{Outcome: a.Outcome, Result: a.Output.JSON, Refused: a.Refused, CallID: a.CallID,
		JournalFailed: a.JournalFailed, Plan: a.Plan}
	if r.Refused == nil {
		r.Refused = []*terms.Refused{}
	}
	if len(r.Result) == 0 {
		r.Result = json.RawMessage("null")
	}
	var refused *terms.Refused
	var waiting *terms.Waiting
	if errors.As(a.Err, &refused) {
		r.Refused = append(r.Refused, refused)
	}
	if errors.As(a.Err, &waiting) {
		r.ApprovalID = waiting.ApprovalID
	}
	if a.Err != nil {
		r.Error = a.Err.Error()
	}
	return r
}

// describeAnswer prints an answer for people. Its texts are from plugins and nodes.
func describeAnswer(stdout, stderr io.Writer, a terms.Answer) {
	out := outputOf(a)
	if a.Plan == nil {
		fmt.Fprint(stdout, out.text())
	} else { // the tool's own text is of what was not done
		fmt.Fprint(stdout, a.Plan.Text())
	}
	if out.Error != nil {
		fmt.Fprintf(stderr, "caponier: %s: %s\n", plaintext.Clean(out.Error.Code),
			plaintext.Clean(out.Error.Message))
		if out.Error.Suggestion != "" {
			fmt.Fprintf(stderr, "  try: %s\n", plaintext.Clean(out.Error.Suggestion))
		}
	}
	if a.Err != nil {
		fmt.Fprintln(stderr, "caponier:", a.Err)
	}
	for _, r := range a.Refused {
		fmt.Fprintln(stderr, "caponier:", r)
	}
	if a.JournalFailed {
		fmt.Fprintln(stderr, "caponier: the outcome could not be journaled; every further call "+
			"is refused until the journal can be written")
	}
}

func codeFor(a terms.Answer) error {
	var invalid *terms.InvalidArguments
	switch {
	case errors.As(a.Err, &invalid):
		return &exit{code: exitUsage}
	case a.Outcome == terms.Waits:
		return &exit{code: exitWaiting}
	case a.Outcome == terms.Refusal || len(a.Refused) > 0:
		return &exit{code: exitRefused}
	case a.Outcome == terms.Unknown:
		return &exit{code: exitUnknown}
	case a.Outcome != terms.Succeeded && a.Outcome != terms.Planned:
		return &exit{code: exitFailed}
	}
	return nil
}

// progressTo shows progress on a terminal and nothing elsewhere.
func progressTo(f *os.File) func(done, total float64, message string) {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(done, total float64, message string) {
		fmt.Fprintf(f, "\r\x1b[K%s %.0f/%.0f\r", plaintext.Clean(message), done, total)
	}
}

// logOutput writes to where the log goes, which leaves out the secrets of the configuration once
// that is loaded.
type logOutput struct{ g *global }

func (l logOutput) Write(p []byte) (int, error) {
	return cmp.Or(l.g.logs, io.Writer(os.Stderr)).Write(p)
}

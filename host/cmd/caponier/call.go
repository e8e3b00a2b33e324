package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/spf13/cobra"
)

// callResult is what call --json prints.
type callResult struct {
	Outcome       gate.Outcome    `json:"outcome"`
	Result        json.RawMessage `json:"result"`
	Refused       []*gate.Refused `json:"refused"`
	CallID        string          `json:"call_id"`
	ApprovalID    string          `json:"approval_id,omitempty"`
	JournalFailed bool            `json:"journal_failed,omitempty"`
	Error         string          `json:"error,omitempty"`
}

// guestOutput is what a tool wrote (docs/abi.md).
type guestOutput struct {
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

func callCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "call TOOL [JSON]",
		Short: "Call a tool from the terminal, through the same door ([cli] principal)",
		Args:  cobra.RangeArgs(1, 2),
		Example: `  caponier call proxmox_container_exec_command '{"vmid":101,"command":"uname -a"}'
  caponier call --json proxmox_list_containers`,
		RunE: func(cmd *cobra.Command, args []string) error {
			raw := "{}"
			if len(args) == 2 {
				raw = args[1]
			}
			if raw == "-" {
				data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 2<<20))
				if err != nil {
					return err
				}
				raw = string(data)
			}
			h, err := open(cmd.Context(), g, wantNodes, args[0])
			if err != nil {
				return err
			}
			defer h.Close()
			tool := h.tool(args[0])
			if tool == nil {
				return &exit{exitUsage, h.noTool(args[0])}
			}
			principal, err := h.cfg.Caller()
			if err != nil {
				return err
			}
			a := h.door.Call(
				cmd.Context(),
				gate.Request{Source: "cli", Principal: principal, Tool: tool,
					Arguments: []byte(raw), Progress: progressTo(os.Stderr)},
			)
			// whatever else is said of the call, this is why it cannot succeed
			if err := h.broken[tool.Plugin.Name]; err != nil &&
				!errors.As(a.Err, new(*gate.PluginError)) {
				fmt.Fprintf(cmd.ErrOrStderr(), "caponier: plugin_unavailable: %v\n", err)
			}
			return report(cmd.OutOrStdout(), cmd.ErrOrStderr(), a, g.json)
		},
	}
}

// report prints an answer and gives its exit code.
func report(stdout, stderr io.Writer, a gate.Answer, asJSON bool) error {
	r := callResult{Outcome: a.Outcome, Result: a.Output.JSON, Refused: a.Refused, CallID: a.CallID,
		JournalFailed: a.JournalFailed}
	if r.Refused == nil {
		r.Refused = []*gate.Refused{}
	}
	if len(r.Result) == 0 {
		r.Result = json.RawMessage("null")
	}
	var refused *gate.Refused
	var waiting *gate.Waiting
	if errors.As(a.Err, &refused) {
		r.Refused = append(r.Refused, refused)
	}
	if errors.As(a.Err, &waiting) {
		r.ApprovalID = waiting.ApprovalID
	}
	if a.Err != nil {
		r.Error = a.Err.Error()
	}
	var out guestOutput
	// checked by whoever shows it; here only texts are picked
	_ = json.Unmarshal(a.Output.JSON, &out)
	if asJSON {
		if err := writeJSON(stdout, r); err != nil {
			return failed(err)
		}
	} else {
		for _, c := range out.Content {
			if c.Type == "text" {
				fmt.Fprintln(stdout, strings.TrimRight(plaintext.Clean(c.Text), "\n"))
			}
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
			fmt.Fprintln(stderr, "caponier: the outcome could not be journaled; every further "+
				"call is refused until the journal can be written")
		}
	}
	return codeFor(a)
}

// writeJSON writes v as one line of JSON that is safe for a terminal: characters that do not show
// are escaped, which JSON allows in strings and which is the only place for them.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if !plaintext.Hidden(r) {
			out.WriteRune(r)
			continue
		}
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err := io.WriteString(w, out.String()+"\n")
	return err
}

func codeFor(a gate.Answer) error {
	var invalid *gate.InvalidArguments
	switch {
	case errors.As(a.Err, &invalid):
		return &exit{code: exitUsage}
	case a.Outcome == gate.Waits:
		return &exit{code: exitWaiting}
	case a.Outcome == gate.Refusal || len(a.Refused) > 0:
		return &exit{code: exitRefused}
	case a.Outcome == gate.Unknown:
		return &exit{code: exitUnknown}
	case a.Outcome != gate.Succeeded:
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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/spf13/cobra"
)

// Exit codes (docs/design.md, section 5).
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitWaiting = 4
	exitUnknown = 5
)

// exit is an error that ends the program with a code. A nil err prints nothing more.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// usage marks an error of what the user wrote: flags, arguments, configuration.
func usage(err error) error { return &exit{exitUsage, err} }

// verb is one run of a subcommand.
type verb struct {
	*global
	ctx      context.Context
	args     []string
	in       io.Reader
	out, say io.Writer // results, and remarks about them
}

// does makes a function the body of a subcommand. Its error ends the program with exitFailed,
// unless the error carries another code.
func (g *global) does(do func(*verb) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := do(&verb{g, cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(),
			cmd.ErrOrStderr()})
		if err == nil || errors.As(err, new(*exit)) {
			return err
		}
		return &exit{exitFailed, err}
	}
}

// print prints a result: as JSON with --json, else as what text writes.
func (v *verb) print(result any, text func(w io.Writer)) error {
	if v.json {
		return writeJSON(v.out, result)
	}
	var b bytes.Buffer
	text(&b)
	_, err := b.WriteTo(v.out)
	return err
}

// table writes rows in columns below a heading.
func table(w io.Writer, heading string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, "|", "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush() // w is a buffer
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

// Command caponier-keyless verifies a Sigstore bundle and prints the identity in its certificate.
//
// The host starts it for a bundle with a certificate instead of a key, and passes everything that
// it needs on standard input. The command opens no file and no connection. It does not decide
// whether the identity may sign; the site's policy does. It prints the answer as one line of JSON.
// An invalid bundle is an answer too. The exit code is not 0 only if the input is not a question.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

const (
	maxQuestion = 2 << 20   // bytes
	maxMemory   = 512 << 20 // bytes of the heap, about
)

// version is set by the linker.
var version = "0.0.0"

// question is the input from the host. All fields are required, and no others are allowed.
type question struct {
	TrustedRoot string `json:"trusted_root"` // the text of a trusted_root.json
	Bundle      string `json:"bundle"`       // the text of a Sigstore bundle, version 0.3
	Digest      string `json:"digest"`       // of the module: "sha256:" and 64 hexadecimal digits
}

// answer is an identity, or why there is none.
type answer struct {
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("caponier-keyless", version)
		return
	}
	debug.SetMemoryLimit(maxMemory)
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "caponier-keyless:", err)
		os.Exit(2)
	}
}

func run(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(in, maxQuestion+1))
	if err != nil {
		return err
	}
	if len(data) > maxQuestion {
		return fmt.Errorf("the question has more than %d bytes", maxQuestion)
	}
	q, err := parse(data)
	if err != nil {
		return fmt.Errorf("reading the question: %w (the host asks; `caponier plugin verify` is "+
			"the command for people)", err)
	}
	var a answer
	if a.Issuer, a.Subject, err = verify(q); err != nil {
		a = answer{Error: err.Error()}
	}
	return json.NewEncoder(out).Encode(a)
}

func parse(data []byte) (q question, err error) {
	var fields map[string]string
	if err := json.Unmarshal(data, &fields); err != nil {
		return q, err
	}
	q = question{fields["trusted_root"], fields["bundle"], fields["digest"]}
	if q.TrustedRoot == "" || q.Bundle == "" || q.Digest == "" || len(fields) != 3 {
		return q, errors.New("want trusted_root, bundle and digest")
	}
	return q, nil
}

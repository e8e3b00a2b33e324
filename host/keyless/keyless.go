// Package keyless asks the program caponier-keyless for the identity that signed a module.
//
// A separate program verifies certificates and transparency logs (docs/rationale.md), so that the
// host contains none of that code. It reads everything from standard input, has no environment, and
// is killed after its time limit. It only returns an identity. The site's policy decides whether
// that identity may sign (core/trust.rego).
package keyless

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxRoot   = 1 << 20  // bytes of a trusted root
	maxAnswer = 16 << 10 // bytes
	patience  = 30 * time.Second
)

// Options name the program that verifies keyless signatures. The zero value verifies none.
type Options struct {
	Program     string `koanf:"program" path:"true"`
	TrustedRoot string `koanf:"trusted_root" path:"true"` // a trusted_root.json of Sigstore
}

// Identity is the OpenID Connect identity for which a certificate was issued.
type Identity struct {
	Issuer  string // URL
	Subject string // the subject alternative name: a URL, an address
}

// Validate reports a key that lacks the other one.
func (o Options) Validate() error {
	switch {
	case o.Program != "" && o.TrustedRoot == "":
		return errors.New("trusted_root is not set: name the trusted_root.json of the instance " +
			"of Sigstore that you trust")
	case o.TrustedRoot != "" && o.Program == "":
		return errors.New("program is not set: name the program caponier-keyless")
	}
	return nil
}

// question and answer are what goes to the program and comes back.
type question struct {
	TrustedRoot string `json:"trusted_root"`
	Bundle      string `json:"bundle"`
	Digest      string `json:"digest"`
}

type answer struct {
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Identity returns the identity that signed the digest (sha256:…), according to the certificate in
// a Sigstore bundle. The files that it reads must be trusted (package trusted).
func (o Options) Identity(ctx context.Context, bundle []byte, digest string) (Identity, error) {
	if o.Program == "" {
		return Identity{}, errors.New("the bundle is keyless, and there is no program that " +
			"verifies one: set program and trusted_root in [keyless] (docs/plugin-registry.md)")
	}
	if err := trusted.File(o.Program); err != nil {
		return Identity{}, fmt.Errorf("the program that verifies keyless signatures: %w", err)
	}
	root, err := trusted.Read(o.TrustedRoot, maxRoot)
	if err != nil {
		return Identity{}, fmt.Errorf("reading the trusted root: %w", err)
	}
	asked, err := json.Marshal(question{string(root), string(bundle), digest})
	if err != nil {
		return Identity{}, err
	}
	a, err := ask(ctx, o.Program, asked)
	switch {
	case err != nil:
		return Identity{}, fmt.Errorf("asking %s: %w", o.Program, err)
	case a.Error != "":
		return Identity{}, errors.New(line(a.Error, 1000))
	case a.Issuer == "" || a.Subject == "":
		return Identity{}, fmt.Errorf("%s answered with no identity", o.Program)
	}
	return Identity{a.Issuer, a.Subject}, nil
}

// ask runs the program with a question.
func ask(ctx context.Context, program string, asked []byte) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%v are over", patience))
	defer cancel()
	var out, complaints bounded
	cmd := exec.CommandContext(ctx, program)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, os.TempDir(), time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(asked), &out, &complaints
	if err := cmd.Run(); ctx.Err() != nil {
		return a, fmt.Errorf("it was killed before it answered: %w", context.Cause(ctx))
	} else if err != nil {
		said := line(complaints.kept.String(), 200)
		return a, fmt.Errorf("%w: %s", err, cmp.Or(said, "it wrote nothing"))
	}
	if err := abi.DecodeInto(out.kept.Bytes(), maxAnswer, &a); err != nil {
		return a, fmt.Errorf("its answer: %w", err)
	}
	return a, nil
}

// line is a text of the program's, for people.
func line(text string, most int) string {
	return plaintext.Short(strings.Join(strings.Fields(plaintext.Clean(text)), " "), most)
}

// bounded keeps the first maxAnswer bytes, and one more. The buffer is not embedded: its ReadFrom
// would know no maximum.
type bounded struct{ kept bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxAnswer+1-b.kept.Len())])
	return len(p), nil
}

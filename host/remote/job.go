package remote

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxOutput = 1 << 20 // bytes of a command's stdout, and of its stderr
	maxData   = 1 << 20 // bytes of file data in one response
)

// job is one operation on its node.
type job struct {
	r   *Remote
	n   *node
	q   terms.Question
	d   terms.Decision // of Execute
	max int64          // bytes of a file
}

func resultOf(e command.Ended, rendered string) terms.Result {
	v := abi.ExecResponse{Exit: e.Exit, Signal: e.Signal, Truncated: e.Truncated,
		Rendered: rendered}
	v.Stdout, v.StdoutB64 = textOr64(e.Stdout, e.Truncated)
	v.Stderr, v.StderrB64 = textOr64(e.Stderr, e.Truncated)
	return terms.Result{Value: v, Bytes: int64(len(e.Stdout) + len(e.Stderr)), Exit: &v.Exit}
}

// textOr64 returns bytes as text, or as base64 when they are not UTF-8. A cut in the middle of a
// character does not make text binary.
func textOr64(b []byte, cut bool) (text, b64 string) {
	if cut {
		for i := 1; i <= 3 && i <= len(b) && !utf8.Valid(b); i++ {
			if c := b[len(b)-i]; c >= 0xC0 { // the first byte of the last character
				if utf8.Valid(b[:len(b)-i]) && !utf8.FullRune(b[len(b)-i:]) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	if utf8.Valid(b) {
		return string(b), ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}

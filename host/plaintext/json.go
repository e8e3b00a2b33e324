package plaintext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON writes v as one line of JSON that is safe for a terminal: characters that do not show
// are escaped, which JSON allows in strings and which is the only place for them.
func JSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if !hidden(r) {
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

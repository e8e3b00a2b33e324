package result

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzOutput compares what goes back with a reader of its own: no string of it has a secret, in
// base64 neither where a name says so, and an output without secrets says what it said.
func FuzzOutput(f *testing.F) {
	s := all(f)
	for _, p := range planted {
		if len(p.value) > 4<<10 {
			continue
		}
		text, _ := json.Marshal(p.value)
		f.Add([]byte(`{"text":` + string(text) + `,"text":"ok"}`))
		f.Add([]byte(`{"a\u0041":[` + string(text) + `,"b",1.50,null]}`))
		f.Add([]byte(`{"x_b64":"` + base64.StdEncoding.EncodeToString([]byte(p.value)) + `"}`))
		f.Add([]byte(p.value))
	}
	f.Add([]byte(`{"a":1}{"b":2}`))
	mask := func(b []byte) ([]byte, int) {
		masked, hits, err := s.Mask(context.Background(), b)
		if err != nil {
			f.Fatal(err)
		}
		return masked, len(hits)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		total := 0
		out := inOutput(s, raw, func(b []byte) []byte {
			masked, hits := mask(b)
			total += hits
			return masked
		})
		before, ok := parsed(raw)
		after, still := parsed(out)
		if ok && !still {
			t.Fatalf("%.300q became %.300q", raw, out)
		}
		if !still {
			if _, hits := mask(out); hits > 0 {
				t.Fatalf("%.300q has a secret yet", out)
			}
			return
		}
		if ok && total == 0 {
			a, _ := json.Marshal(before)
			b, _ := json.Marshal(after)
			if !bytes.Equal(a, b) {
				t.Fatalf("%.300q became %.300q without a secret", raw, out)
			}
		}
		d := json.NewDecoder(bytes.NewReader(out)) // of the bytes, so that no member is passed over
		name := ""
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			text, is := token.(string)
			if !is {
				continue
			}
			if _, hits := mask([]byte(text)); hits > 0 {
				t.Fatalf("%.300q: %.300q has a secret yet", out, text)
			}
			if strings.HasSuffix(name, "_b64") {
				b, err := base64.StdEncoding.DecodeString(text)
				if _, hits := mask(b); err == nil && hits > 0 {
					t.Fatalf("%.300q: %.300q has a secret in base64", out, text)
				}
			}
			name = text
		}
	})
}

func parsed(b []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	return v, len(bytes.TrimSpace(b[d.InputOffset():])) == 0
}

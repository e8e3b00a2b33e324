package jq

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/caponier-mcp/caponier/sdk"
)

// elements calls each with the values of a list, or with those of an object in the order of its
// keys. Of equal keys the last counts.
func elements(b []byte, each func([]byte) error) error {
	if b[0] == '[' {
		n := 0
		for i := space(b, 1); b[i] != ']'; {
			end := skip(b, i)
			if err := each(b[i:end]); err != nil {
				return err
			}
			if n += end - i; n > yieldBytes { // for the collector
				sdk.Yield()
				n = 0
			}
			i = after(b, end)
		}
		return nil
	}
	values := map[string][]byte{}
	for i := space(b, 1); b[i] != '}'; {
		end := skip(b, i)
		var key string
		if err := json.Unmarshal(b[i:end], &key); err != nil {
			return fail("not_json", "a key of an object: %v", err)
		}
		i = space(b, space(b, end)+1) // over the colon
		end = skip(b, i)
		values[key] = b[i:end]
		i = after(b, end)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := each(values[key]); err != nil {
			return err
		}
	}
	return nil
}

// batches calls do with lists of elements, each of about batchBytes.
func batches(b []byte, do func([]byte) error) error {
	some := []byte{'['}
	flush := func() error {
		err := do(append(some, ']'))
		some = append(make([]byte, 0, 2*batchBytes), '[') // what was given may still be in use
		return err
	}
	err := elements(b, func(e []byte) error {
		if len(some) > 1 {
			some = append(some, ',')
		}
		if some = append(some, e...); len(some) < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(some) > 1 {
		err = flush()
	}
	return err
}

// after returns where the next element begins, or the bracket that ends the list.
func after(b []byte, end int) int {
	if end = space(b, end); b[end] == ',' {
		end = space(b, end+1)
	}
	return end
}

func count(b []byte) (n int) {
	for i := space(b, 1); b[i] != ']'; n++ {
		i = after(b, skip(b, i))
	}
	return n
}

// cut returns the part [from:to] of a list, with the meaning of jq.
func cut(b []byte, from, to *int) []byte {
	n := count(b)
	at := func(i *int, absent int) int {
		if i == nil {
			return absent
		}
		if *i < 0 {
			return max(*i+n, 0)
		}
		return min(*i, n)
	}
	first, last := at(from, 0), at(to, n)
	out, k := []byte{'['}, 0
	for i := space(b, 1); b[i] != ']' && k < last; k++ {
		end := skip(b, i)
		if k >= first {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, b[i:end]...)
		}
		i = after(b, end)
	}
	return append(out, ']')
}

// tidy returns a piece of the document as an output.
func tidy(b []byte) ([]byte, error) {
	var out bytes.Buffer
	err := json.Compact(&out, b)
	return bytes.ToValidUTF8(out.Bytes(), []byte("\uFFFD")), err
}

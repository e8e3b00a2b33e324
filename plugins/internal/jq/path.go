package jq

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// MaxPaths is how many short paths a list may have.
const MaxPaths = 20

var segment = regexp.MustCompile(
	`^(?:\.([A-Za-z_][A-Za-z0-9_]*)|\.([0-9]+)|\.?\[([0-9]+)\]|` +
		`\.?\[("(?:[^"\\]|\\.)*")\]|\.("(?:[^"\\]|\\.)*"))`,
)

// step goes into an object by key, or into a list by index.
type step struct {
	key   string
	index int
	list  bool
}

// paths reads a list of short paths such as .results.0,.total. It is nil for a filter that is
// something else.
func paths(filter string) (list [][]step, err error) {
	for rest := strings.TrimSpace(filter); ; {
		path, after, err := short(rest)
		if err != nil || path == nil {
			return nil, err
		}
		if list = append(list, path); len(list) > MaxPaths {
			return nil, bad("a list of more than %d paths", MaxPaths)
		}
		after = strings.TrimLeft(after, " \t\n")
		if after == "" {
			return list, nil
		}
		if after[0] != ',' {
			return nil, nil
		}
		rest = strings.TrimLeft(after[1:], " \t\n")
	}
}

// short reads one short path from the beginning of s. path is nil when there is none.
func short(s string) (path []step, rest string, err error) {
	for rest = s; strings.HasPrefix(s, "."); { // without a dot, [0] is a list of its own
		m := segment.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		one := step{key: m[1]}
		if index := m[2] + m[3]; index != "" {
			n, err := strconv.Atoi(index)
			if err != nil || n > 1<<31-1 || strconv.Itoa(n) != index {
				return nil, "", bad("the index %.32s: write it without leading zeros, at most %d",
					index, 1<<31-1)
			}
			one = step{index: n, list: true}
		} else if quoted := m[4] + m[5]; quoted != "" &&
			json.Unmarshal([]byte(quoted), &one.key) != nil {
			return nil, s, nil // an escape that jq may know
		}
		path, rest = append(path, one), rest[len(m[0]):]
	}
	if path == nil && strings.HasPrefix(s, ".") &&
		(len(s) == 1 || strings.ContainsRune(", \t\n", rune(s[1]))) {
		return []step{}, s[1:], nil
	}
	return path, rest, nil
}

// enter goes one step into a list or an object, without making anything of the rest of the
// document. What is not there is null.
func enter(b []byte, s step) []byte {
	if s.list && s.index < 0 {
		s.index += count(b)
	}
	found, at := -1, 0
	for i := space(b, 1); b[i] != ']' && b[i] != '}'; at++ {
		if s.list {
			if at == s.index {
				found = i
				break
			}
		} else {
			end := skip(b, i)
			name := b[i:end]
			i = space(b, space(b, end)+1) // over the colon
			if is(name, s.key) {
				found = i // the last one counts
			}
		}
		i = after(b, skip(b, i))
	}
	if found < 0 {
		return []byte("null")
	}
	return b[found:skip(b, found)]
}

// is compares a quoted name with a key.
func is(name []byte, key string) bool {
	if bytes.IndexByte(name, '\\') < 0 {
		return string(name[1:len(name)-1]) == key
	}
	var s string
	return json.Unmarshal(name, &s) == nil && s == key
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns the end of the value that begins at i.
func skip(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default:
			for i < len(b) && bytes.IndexByte([]byte(",]} \t\n\r"), b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

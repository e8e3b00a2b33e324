package offline

import (
	"reflect"
	"strings"
	"testing"
)

const whole = `nodes: [pve1, pve2]
commands:
  - argv: [pct, status, "101"]
    node: pve1
    stdout: "status: stopped\n"
    then:
      - stdout: "status: running\n"
  - script: df -h | tail -1
    exit: 3
    stderr_b64: /w==
files:
  - path: /etc/hosts
    text: "127.0.0.1 localhost\n"
  - {path: /etc, type: dir, mode: "0755"}
requests:
  - url: https://example.com/a
    status: 404
    headers: [[content-type, text/plain]]
    text: gone
asks:
  - key: sure
    content: {yes: true}
local:
  - {path: in.txt, text: hello}
`

func TestParseReadsEveryPart(t *testing.T) {
	got, err := Parse("a.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := &Answers{
		Nodes: []string{"pve1", "pve2"},
		Commands: []Command{
			{Node: "pve1", Argv: []string{"pct", "status", "101"}, Results: []Result{
				{Stdout: []byte("status: stopped\n")}, {Stdout: []byte("status: running\n")}}},
			{Script: "df -h | tail -1", Results: []Result{{Exit: 3, Stderr: []byte{0xff}}}},
		},
		Files: []File{
			{Path: "/etc/hosts", Type: "file", Mode: 0o644, Bytes: []byte("127.0.0.1 localhost\n")},
			{Path: "/etc", Type: "dir", Mode: 0o755},
		},
		Requests: []Request{{Method: "GET", URL: "https://example.com/a", Status: 404,
			Headers: [][2]string{{"content-type", "text/plain"}}, Body: []byte("gone")}},
		Asks:  []Ask{{Key: "sure", Action: "accept", Content: []byte(`{"yes":true}`)}},
		Local: map[string][]byte{"in.txt": []byte("hello")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	json := `{"commands":[{"argv":["true"],"exit":1}]}`
	if a, err := Parse("a.json", []byte(json)); err != nil || a.Commands[0].Results[0].Exit != 1 {
		t.Errorf("JSON: %+v, %v", a, err)
	}
}

func TestParseRefusesWithTheLine(t *testing.T) {
	for name, x := range map[string]struct{ text, want string }{
		"empty":  {"", "a.yaml: is empty"},
		"no map": {"- a", "a.yaml:1: want a map with the keys [asks commands"},
		"an unknown key": {"commands: []\nfile: []",
			`a.yaml:2: the key "file" is not known`},
		"an unknown key below": {"commands:\n  - argv: [a]\n    out: b",
			`a.yaml:3: the key "out" is not known; want [argv exit`},
		"a key twice": {"files: []\nfiles: []", "already"},
		"a command twice": {"commands:\n  - argv: [a, b]\n  - argv: [a, b]",
			"a.yaml:3: the answer to this command is already in line 2"},
		"a file twice": {"files:\n  - path: /a\n  - path: /a",
			"a.yaml:3: the answer to this file"},
		"a request twice": {"requests:\n  - url: http://a/\n  - {url: http://a/, method: GET}", "a.yaml:3: the answer to this request"},
		"an ask twice": {"asks:\n  - key: a\n  - key: a",
			"a.yaml:3: the answer to this ask"},
		"a number for a word": {"commands:\n  - argv:\n      - pct\n      - 101",
			`a.yaml:4: 101 is not text: write it in quotes, "101"`},
		"text for a list": {"commands:\n  - argv: pct status", "a.yaml:2: want a list"},
		"text for a number": {"commands:\n  - argv: [a]\n    exit: \"1\"",
			"a.yaml:3: want a whole number"},
		"a number out of range": {"commands:\n  - argv: [a]\n    exit: 256",
			"a.yaml:3: 256: want a whole number from -1 to 255"},
		"a map for text": {"commands:\n  - argv: [a]\n    stdout: {a: b}",
			"a.yaml:3: want text"},
		"null for a list":       {"commands:", "a.yaml:1: want a list"},
		"neither argv nor text": {"commands:\n  - stdout: a", "a.yaml:2: a command needs argv"},
		"argv and text": {"commands:\n  - argv: [a]\n    script: a",
			"a.yaml:2: a command needs argv"},
		"text and base64": {"files:\n  - path: /a\n    text: a\n    b64: YQ==",
			"a.yaml:4: set the text or its base64"},
		"no base64": {"files:\n  - path: /a\n    b64: '*'", "a.yaml:3: want base64"},
		"a relative path": {"files:\n  - path: a",
			`a.yaml:2: path "a": want an absolute path`},
		"a path that climbs":  {"files:\n  - path: /a/../b", "a.yaml:2: path"},
		"a type that is none": {"files:\n  - {path: /a, type: link}", `a.yaml:2: type "link"`},
		"a directory with text": {"files:\n  - {path: /a, type: dir, text: b}",
			"a.yaml:2: a dir path holds no text"},
		"a mode that is a number": {"files:\n  - path: /a\n    mode: 0644",
			"a.yaml:3: 0644 is not text"},
		"an anchor":          {"commands: &x []\nfiles: *x", "a.yaml:1: anchors and aliases"},
		"an alias of itself": {"commands: &x [*x]", "a.yaml:1: anchors and aliases"},
		"a tag": {"commands:\n  - argv: [!!str 1]",
			"a.yaml:2: the tag !!str is not read"},
		"two documents":          {"files: []\n---\nfiles: []", "more than one document"},
		"no YAML":                {"files: [", "a.yaml: yaml: line"},
		"an action that is none": {"asks:\n  - {key: a, action: maybe}", "a.yaml:2: action"},
		"a header of one part":   {"requests:\n  - url: http://a/\n    headers: [[a]]", "a.yaml:3: a header is a list"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Parse("a.yaml", []byte(x.text))
			if err == nil || a != nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%+v, %v; want an error with %q", a, err, x.want)
			}
		})
	}
	if _, err := Parse("a.yaml", make([]byte, MaxAnswers+1)); err == nil {
		t.Error("a file over the limit is read")
	}
}

// FuzzParse holds the reader to its promise: it does not panic, what it takes reads the same once
// it is written again, and what it takes has no answer
// twice.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Parse("a.yaml", text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, c := range a.Commands {
			if seen[c.key()] {
				t.Errorf("%q twice", c.key())
			}
			seen[c.key()] = true
		}
		again, err := Parse("b.yaml", Format(a))
		if err != nil || !reflect.DeepEqual(normal(a), normal(again)) {
			t.Errorf("written again: %v\n%+v\n%+v\n%s", err, a, again, Format(a))
		}
	})
}

// normal has no difference between no bytes and none.
func normal(a *Answers) *Answers {
	for i := range a.Commands {
		for j := range a.Commands[i].Results {
			r := &a.Commands[i].Results[j]
			r.Stdout, r.Stderr = append([]byte{}, r.Stdout...), append([]byte{}, r.Stderr...)
		}
	}
	for i := range a.Files {
		a.Files[i].Bytes = append([]byte{}, a.Files[i].Bytes...)
	}
	for i := range a.Requests {
		a.Requests[i].Body = append([]byte{}, a.Requests[i].Body...)
	}
	for name, data := range a.Local {
		a.Local[name] = append([]byte{}, data...)
	}
	if len(a.Nodes) == 0 {
		a.Nodes = nil
	}
	return a
}

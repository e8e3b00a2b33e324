package offline

import (
	"slices"
	"strings"
)

// Answers are what a tool gets for the operations that it asks for. The zero value answers none of
// them. They must not be changed while they are used.
type Answers struct {
	Nodes    []string // of the inventory, the first is the default; nil: pve1
	Commands []Command
	Files    []File
	Requests []Request
	Asks     []Ask
	Local    map[string][]byte // files of the workspace, by path
}

// Command answers one command, by its words, or one command text.
type Command struct {
	Node    string // "" for every node
	Argv    []string
	Script  string
	Results []Result // of the first time, the second, …; the last one stays
}

// Result is how a command ended.
type Result struct {
	Exit           int
	Stdout, Stderr []byte
}

// File is what a path of a node holds. A path that is in the answers may be written.
type File struct {
	Node, Path string // Node "" is every node
	Type       string // file, dir or missing
	Mode       uint32
	Bytes      []byte
}

// Request answers an HTTP request.
type Request struct {
	Method, URL string
	Status      int
	Headers     [][2]string
	Body        []byte
}

// Ask answers a question to the user.
type Ask struct {
	Key, Action string
	Content     []byte // JSON
}

func (c Command) key() string {
	if c.Script != "" {
		return c.Node + "\x00script\x00" + c.Script
	}
	return c.Node + "\x00argv\x00" + strings.Join(c.Argv, "\x00")
}

func (f File) key() string    { return f.Node + "\x00" + f.Path }
func (r Request) key() string { return r.Method + " " + r.URL }

// command returns the index of the answer to a command, the one for its own node before the one for
// every node, or -1.
func (a *Answers) command(want Command) int {
	for _, node := range []string{want.Node, ""} {
		want.Node = node
		is := func(c Command) bool { return c.key() == want.key() }
		if i := slices.IndexFunc(a.Commands, is); i >= 0 {
			return i
		}
	}
	return -1
}

func (a *Answers) request(method, url string) *Request {
	is := func(r Request) bool { return r.key() == method+" "+url }
	if i := slices.IndexFunc(a.Requests, is); i >= 0 {
		return &a.Requests[i]
	}
	return nil
}

func (a *Answers) ask(key string) *Ask {
	if i := slices.IndexFunc(a.Asks, func(x Ask) bool { return x.Key == key }); i >= 0 {
		return &a.Asks[i]
	}
	return nil
}

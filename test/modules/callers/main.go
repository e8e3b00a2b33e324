// Callers is a plugin for the tests that two callers never meet: it keeps, shows and remembers what
// it is given, and offers prompts and resources.
package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/caponier-mcp/caponier/sdk"
)

type word struct {
	Word string `json:"word" doc:"what is the caller's own" maxlen:"200"`
}

type blob struct {
	Blob string `json:"blob" doc:"which blob" maxlen:"200"`
}

type guest struct {
	Node string `json:"node" doc:"The node that the guest is on" target:"node"`
	VMID int    `json:"vmid" doc:"The guest's number"            target:"vmid"`
}

type found struct {
	Node string `json:"node,omitempty" doc:"The node to look at" target:"node"`
}

type search struct {
	Masked []int `json:"masked" doc:"the bytes of the text, each xor 90" maxitems:"200"`

	Plain string `json:"plain,omitempty" doc:"anything, to be in memory" maxlen:"200"`
}

// memory counts a text in linear memory: from its beginning over what the linker laid out, last
// among it, to what the runtime has asked for beyond.
func memory(masked []int) (n int) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	all := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), 1024)),
		int(uintptr(unsafe.Pointer(&last)))+int(m.Sys)-1024)
	for i := range len(all) - len(masked) {
		j := 0
		for j < len(masked) && int(all[i+j]^90) == masked[j] {
			j++
		}
		if j == len(masked) {
			n++
		}
	}
	return n
}

// last is what no later call may ever see.
var last string

func hints(imports ...string) sdk.Hints {
	return sdk.Hints{
		ReadOnly: true,
		Imports:  imports,
		Budget:   20 * time.Second,
		Runs:     "pct list or pct status",
	}
}

func reads(command string) sdk.Hints {
	h := hints("ssh_exec")
	h.Commands = []string{command}
	return h
}

func init() {
	sdk.Serve(
		"callers",
		"1.0.0",
		sdk.NewTool(
			"callers_keep",
			"Keeps a word as a blob and names the blob.",
			hints("blob_write"),
			func(c *sdk.Call, in word) (string, error) {
				b, err := sdk.BlobWrite(c, "word", "text/plain", []byte(in.Word), time.Minute)
				return b.Blob, err
			},
		),
		sdk.NewTool(
			"callers_show",
			"Shows a blob that was kept before.",
			hints("blob_read"),
			func(c *sdk.Call, in blob) (string, error) {
				r, err := sdk.BlobRead(c, in.Blob, 0, 1000)
				return string(r.Data), err
			},
		),
		sdk.NewTool(
			"callers_long",
			"Says a word so often that the result is cut.",
			hints(),
			func(c *sdk.Call, in word) (string, error) {
				return strings.Repeat(in.Word+" ", 30_000/len(in.Word)), nil
			},
		),
		sdk.NewTool(
			"callers_last",
			"Says which word the call before had, which must be none.",
			hints(),
			func(c *sdk.Call, in word) (string, error) {
				was := last
				last = in.Word
				return fmt.Sprintf("the last word was %q; nodes %v", was, c.Nodes), nil
			},
		),
		sdk.NewTool(
			"callers_search",
			"Looks for a text in all memory of this plugin. The text is masked, so as not to be "+
				"found because it was asked for.",
			hints(),
			func(c *sdk.Call, in search) (string, error) {
				return fmt.Sprintf("found %d times", memory(in.Masked)), nil
			},
		),
		sdk.NewTool(
			"callers_list",
			"Lists the containers of a node as the node does.",
			reads("pct list"),
			func(c *sdk.Call, in found) (string, error) {
				r, err := sdk.SSHExec(c, c.Node(in.Node), []string{"pct", "list"},
					sdk.ExecOptions{})
				return string(r.Stdout), err
			},
		),
		sdk.NewPrompt(
			"callers_check",
			"Asks to look at one guest.",
			hints(),
			func(c *sdk.Call, in guest) (string, []sdk.Message, error) {
				return "", []sdk.Message{
					{
						Role:    "user",
						Content: sdk.Text(fmt.Sprintf("Look at guest %d on %s.", in.VMID, in.Node)),
					},
				}, nil
			},
		),
		sdk.NewResourceTemplate(
			"lab://{node}/guests/{vmid}",
			"callers_status",
			"The status of one guest, as pct says it.",
			"text/plain",
			reads("pct status"),
			func(c *sdk.Call, in guest) ([]sdk.ResourceContent, error) {
				r, err := sdk.SSHExec(c, in.Node, []string{"pct", "status", fmt.Sprint(in.VMID)},
					sdk.ExecOptions{})
				return []sdk.ResourceContent{{URI: c.URI, Text: string(r.Stdout)}}, err
			},
		),
	)
}

func main() {}

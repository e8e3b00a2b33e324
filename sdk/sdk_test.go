package sdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

type base struct {
	Node string `json:"node,omitempty" doc:"where" target:"node"`
}

type in struct {
	base
	VMID    int      `json:"vmid" doc:"which" min:"100" max:"999999999" target:"vmid"`
	Name    string   `json:"name,omitzero" minlen:"1" maxlen:"8" pattern:"^[a-z]+$"`
	Format  string   `json:"format" enum:"json,text" default:"text"`
	Ratio   *float64 `json:"ratio" max:"0.5"`
	Paths   []string `json:"paths,omitempty" target:"remote_path" maxlen:"5" maxitems:"2"`
	Sure    bool     `json:"sure" default:"false" confirm:"true"`
	Wait    uint     `json:"wait" default:"30"`
	private int      //lint:ignore U1000 a field that no schema shows
}

type out struct {
	Lines []string       `json:"lines"`
	By    map[string]int `json:"by"`
	Inner *struct {
		X int `json:"x"`
	} `json:"inner,omitempty"`
	Args in                `json:"args"`
	Raw  []byte            `json:"raw"`
	Tags map[string]string `json:"tags,omitempty"`
}

func (o out) Text() string { return strings.Join(o.Lines, ",") }

var do func(c *sdk.Call) error // what the tool "op" does

func serve() {
	imports.Reset()
	all := abi.Operations()
	sdk.Serve(
		"test",
		"1.2.3",
		sdk.NewTool(
			"echo",
			"Doc.",
			sdk.Hints{Title: "Echo", ReadOnly: true, Budget: 3 * time.Second, Runs: "true"},
			func(c *sdk.Call, a in) (out, error) {
				if a.Name == "bad" {
					return out{}, &sdk.Error{
						Code:       "no_such",
						Message:    "there is none",
						Suggestion: "list them",
					}
				}
				return out{Args: a, Lines: nil}, nil
			},
		),
		sdk.NewTool("op", "Doc.", sdk.Hints{Imports: all, Commands: []string{"a"}},
			func(c *sdk.Call, _ struct{}) (string, error) { return "done", do(c) }),
		sdk.NewTool("full", "Doc.", sdk.Hints{}, func(c *sdk.Call, _ struct{}) (sdk.Result, error) {
			return sdk.Result{
				Content:        []sdk.Content{sdk.Text("a"), sdk.Text("b")},
				Structured:     map[string]int{"n": c.Round},
				SpentUSDMicros: 7,
			}, nil
		}),
		sdk.NewResource(
			"doc://x",
			"x",
			"Doc.",
			"text/plain",
			sdk.Hints{},
			func(c *sdk.Call) ([]sdk.ResourceContent, error) {
				return []sdk.ResourceContent{{URI: c.URI, Text: "hello"}}, nil
			},
		),
		sdk.NewPrompt("ask", "Doc.", sdk.Hints{}, func(c *sdk.Call, a struct {
			About string `json:"about"`
		}) (string, []sdk.Message, error) {
			return "d", []sdk.Message{{Role: "user", Content: sdk.Text(a.About)}}, nil
		}),
	)
}

func TestSchemaSaysWhatTheTagsSay(t *testing.T) {
	serve()
	var d struct {
		Tools []struct {
			Name         string          `json:"name"`
			InputSchema  json.RawMessage `json:"input_schema"`
			OutputSchema json.RawMessage `json:"output_schema"`
			Imports      []string        `json:"imports"`
			BudgetMS     int             `json:"budget_ms"`
		}
		Resources, Prompts []map[string]any
	}
	if err := json.Unmarshal(sdktest.New(t).Describe(), &d); err != nil {
		t.Fatal(err)
	}
	want := `{"additionalProperties":false,"properties":{` +
		`"format":{"default":"text","enum":["json","text"],"type":"string"},` +
		`"name":{"maxLength":8,"minLength":1,"pattern":"^[a-z]+$","type":"string"},` +
		`"node":{"description":"where","type":"string","x-caponier-target":"node"},` +
		`"paths":{"items":{"maxLength":5,"type":"string"},"maxItems":2,"type":"array",` +
		`"x-caponier-target":"remote_path"},` +
		`"ratio":{"maximum":0.5,"type":"number"},` +
		`"sure":{"default":false,"type":"boolean","x-caponier-confirm":true},` +
		`"vmid":{"description":"which","maximum":999999999,"minimum":100,"type":"integer",` +
		`"x-caponier-target":"vmid"},` +
		`"wait":{"default":30,"minimum":0,"type":"integer"}},"required":["vmid"],"type":"object"}`
	if got := string(d.Tools[0].InputSchema); got != want {
		t.Errorf("input schema\n%s\nwant\n%s", got, want)
	}
	if d.Tools[0].Imports == nil || d.Tools[0].BudgetMS != 3000 || d.Tools[1].OutputSchema != nil ||
		len(d.Resources) != 1 ||
		len(d.Prompts) != 1 {
		t.Errorf("described as %+v", d)
	}
}

func TestArgumentsAndResults(t *testing.T) {
	serve()
	h := sdktest.New(t)
	o, err := h.Call("echo", `{"vmid":101,"node":"pve2"}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"lines":[],"by":{},"args":{"node":"pve2","vmid":101,"format":"text","ratio":null,` +
		`"sure":false,"wait":30},"raw":""}`
	if string(o.Structured) != want || o.Text != "" {
		t.Errorf("got %s %q, want %s", o.Structured, o.Text, want)
	}
	if o, _ := h.Call("echo", `{"vmid":101,"name":"bad"}`); o.Error == nil ||
		*o.Error != (sdk.Error{"no_such", "there is none", "list them"}) ||
		o.Text != "there is none" {
		t.Errorf("the tool's own error became %+v", o)
	}
	for name, args := range map[string]string{"a missing one": `{}`, "one below its " +
		"minimum": `{"vmid":99}`, "one that is unknown": `{"vmid":101,"x":1}`, "text for a " +
		"number": `{"vmid":"101"}`, "a fraction": `{"vmid":101.5}`,
		"text that does not match": `{"vmid":101,"name":"A"}`, "one outside " +
			"its list": `{"vmid":101,"format":"xml"}`, "too many": `{"vmid":101,"paths":["a","b",` +
			`"c"]}`, "too long a part": `{"vmid":101,"paths":["123456"]}`, "no JSON": `{`} {
		if _, err := h.Call("echo", args); err == nil {
			t.Errorf("%s was taken: %s", name, args)
		}
	}
	if o, _ := h.Call("full", `{}`); o.Text != "ab" || string(o.Structured) != `{"n":1}` ||
		!strings.Contains(string(o.JSON), `"spent_usd_micros":7`) {
		t.Errorf("full control gave %s", o.JSON)
	}
	if o, err := h.Call("x", `{}`); err != nil ||
		!strings.Contains(string(o.JSON), `"contents":[{"uri":"doc://x","text":"hello"}]`) {
		t.Errorf("the resource gave %s %v", o.JSON, err)
	}
	if o, err := h.Call("ask", `{"about":"you"}`); err != nil ||
		!strings.Contains(string(o.JSON),
			`"messages":[{"role":"user","content":{"type":"text","text":"you"}}]`) {
		t.Errorf("the prompt gave %s %v", o.JSON, err)
	}
}

func TestTypesThatCannotBeDescribedPanic(t *testing.T) {
	for name, make := range map[string]func(){
		"no struct": func() {
			sdk.NewTool("t", "", sdk.Hints{}, func(*sdk.Call, int) (string,
				error) {
				return "", nil
			})
		},
		"a list as result": func() {
			sdk.NewTool("t", "", sdk.Hints{}, func(*sdk.Call, struct{}) ([]int, error) {
				return nil,
					nil
			})
		},
		"a field without name": func() {
			sdk.NewTool("t", "", sdk.Hints{}, func(*sdk.Call, struct{ X int }) (string,
				error) {
				return "", nil
			})
		},
		"a tag that fits not": func() {
			sdk.NewTool("t", "", sdk.Hints{}, func(*sdk.Call, struct {
				X bool `json:"x" min:"1"`
			}) (string, error) {
				return "", nil
			})
		},
		"a tag that is not one": func() {
			sdk.NewTool("t", "", sdk.Hints{}, func(*sdk.Call, struct {
				X int `json:"x" min:"one"`
			}) (string, error) {
				return "", nil
			})
		},
		"a channel": func() {
			sdk.NewTool("t", "", sdk.Hints{}, func(*sdk.Call, struct {
				X chan int `json:"x"`
			}) (string, error) {
				return "", nil
			})
		},
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, "sdk: tool t: ") {
					t.Errorf("%s: panicked with %q", name, p)
				}
			}()
			make()
		}()
	}
}

// operations calls every operation once. All answers are what the hooks below give.
var operations = map[string]func(c *sdk.Call) (any, error){
	"ssh_exec": func(c *sdk.Call) (any, error) {
		return sdk.SSHExec(c, "pve1", []string{"a", "b c"},
			sdk.ExecOptions{Stdin: []byte{0xff}, MaxBytes: 9, Timeout: time.Microsecond})
	},
	"ssh_script": func(c *sdk.Call) (any, error) {
		return sdk.SSHScript(c, "pve1", "a | b",
			sdk.ExecOptions{})
	},
	"stage":     func(c *sdk.Call) (any, error) { return sdk.Stage(c, "pve1") },
	"sftp_stat": func(c *sdk.Call) (any, error) { return sdk.SFTPStat(c, "pve1", "/a") },
	"sftp_list": func(c *sdk.Call) (any, error) { return sdk.SFTPList(c, "pve1", "/a", 3) },
	"sftp_read": func(c *sdk.Call) (any, error) { return sdk.SFTPRead(c, "pve1", "/a", 4) },
	"sftp_write": func(c *sdk.Call) (any, error) {
		return sdk.SFTPWrite(c, "pve1", "/a", []byte("x\x00"),
			sdk.FileOptions{Mode: "0600", Overwrite: true})
	},
	"sftp_get": func(c *sdk.Call) (any, error) {
		return sdk.SFTPGet(c, "pve1", "/a", "b",
			sdk.FileOptions{MaxBytes: 5})
	},
	"sftp_put": func(c *sdk.Call) (any, error) {
		return sdk.SFTPPut(c, "pve1", "b", "/a", sdk.FileOptions{Mode: "0644"})
	},
	"sftp_remove": func(c *sdk.Call) (any, error) { return nil, sdk.SFTPRemove(c, "pve1", "/a") },
	"http_request": func(c *sdk.Call) (any, error) {
		return sdk.HTTPRequest(c, sdk.Request{
			Method:           "POST",
			URL:              "https://x",
			Headers:          [][2]string{{"a", "b"}},
			Body:             []byte("q"),
			Credential:       "k",
			MaxHops:          1,
			Save:             true,
			ReserveUSDMicros: 3,
		})
	},
	"blob_write": func(c *sdk.Call) (any, error) {
		return sdk.BlobWrite(c, "n", "text/plain",
			[]byte("d"), time.Minute)
	},
	"blob_read": func(c *sdk.Call) (any, error) { return sdk.BlobRead(c, "b", 1, 2) },
	"undo_steps": func(c *sdk.Call) (any, error) {
		_, steps, err := sdk.UndoSteps(c, "06H0A6GOHA5FO7RMRKRL5E16US")
		return steps, err
	},
	"snapshots":     func(c *sdk.Call) (any, error) { return sdk.Snapshots(c, true) },
	"list_commands": func(c *sdk.Call) (any, error) { return sdk.ListCommands(c, "n", "w") },
	"ask": func(c *sdk.Call) (any, error) {
		return sdk.Ask(c, "k", "m",
			json.RawMessage(`{"type":"object"}`))
	},
}

// script gives h an answer, or err, for each operation, and returns the answers.
func script(h *sdktest.Host, err error) map[string]any {
	run := sdk.ExecResult{
		Exit:      3,
		Signal:    "KILL",
		Stdout:    []byte{0xfe, 0},
		Binary:    true,
		Stderr:    []byte("é"),
		Truncated: true,
		Rendered:  "a | b",
	}
	file := sdk.FileInfo{
		Type:     "file",
		Size:     1 << 40,
		Mode:     0o644,
		ModTime:  time.Unix(5, 0).UTC(),
		RealPath: "/r",
	}
	entry := sdk.FileInfo{Name: "\xff", Type: "dir", ModTime: time.Unix(6, 0).UTC()}
	list := sdk.List{Entries: []sdk.FileInfo{entry}, Truncated: true}
	read, written := sdk.ReadResult{Data: []byte{1, 0xff}, EOF: true}, sdk.Written{
		Bytes:  2,
		SHA256: "ab",
		Local:  "b",
	}
	resp := sdk.Response{
		Status:  204,
		Headers: [][2]string{{"x", "y"}},
		Body:    []byte("z"),
		Blob:    "b1",
		Bytes:   1,
		Hops:    []sdk.Hop{{302, "https://y"}},
	}
	blob, answer := sdk.Blob{
		Blob:   "b1",
		URI:    "blob://b1",
		Bytes:  1,
		SHA256: "cd",
	}, sdk.Answer{Action: "accept", Content: json.RawMessage(`{"a":1}`)}
	commands := abi.CommandsResponse{Tools: []abi.CommandTool{{Tool: "t", Nodes: []string{"n"}}},
		MoreNodes: 1}
	h.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult, error) { return run, err }
	h.SSHScript = func(string, string, sdk.ExecOptions) (sdk.ExecResult, error) { return run, err }
	h.Stage = func(string) (string, error) { return "/tmp/s", err }
	h.SFTPStat = func(string, string) (sdk.FileInfo, error) { return file, err }
	h.SFTPList = func(string, string, int) (sdk.List, error) { return list, err }
	h.SFTPRead = func(string, string, int64) (sdk.ReadResult, error) { return read, err }
	h.SFTPWrite = func(string, string, []byte, sdk.FileOptions) (sdk.Written,
		error) {
		return written, err
	}
	h.SFTPGet = func(string, string, string, sdk.FileOptions) (sdk.Written, error) {
		return written,
			err
	}
	h.SFTPPut = func(string, string, string, sdk.FileOptions) (sdk.Written, error) {
		return written,
			err
	}
	h.SFTPRemove = func(string, string) error { return err }
	h.HTTPRequest = func(sdk.Request) (sdk.Response, error) { return resp, err }
	h.BlobWrite = func(string, string, []byte, time.Duration) (sdk.Blob, error) { return blob, err }
	h.BlobRead = func(string, int64, int64) (sdk.ReadResult, error) { return read, err }
	h.ListCommands = func(string, string) (abi.CommandsResponse, error) { return commands, err }
	h.Ask = func(string, string, json.RawMessage) (sdk.Answer, error) { return answer, err }
	steps := []sdk.UndoStep{{Node: "pve1", Did: "a", Write: "/a", Data: []byte{0xff}, Mode: "0600"}}
	snapshots := []sdk.Snapshot{{VMID: "105", Name: "s", Taken: true}}
	h.UndoSteps = func(string) (string, []sdk.UndoStep, error) { return "stop", steps, err }
	h.Snapshots = func(bool) ([]sdk.Snapshot, error) { return snapshots, err }
	return map[string]any{
		"undo_steps":    steps,
		"snapshots":     snapshots,
		"ssh_exec":      run,
		"ssh_script":    run,
		"stage":         "/tmp/s",
		"sftp_stat":     file,
		"sftp_list":     list,
		"sftp_read":     read,
		"sftp_write":    written,
		"sftp_get":      written,
		"sftp_put":      written,
		"sftp_remove":   nil,
		"http_request":  resp,
		"blob_write":    blob,
		"blob_read":     read,
		"ask":           answer,
		"list_commands": commands,
	}
}

func TestEveryOperationOfTheHostHasItsFunction(t *testing.T) {
	serve()
	for _, name := range abi.Operations() {
		t.Run(name, func(t *testing.T) {
			h := sdktest.New(t)
			answers := script(h, nil)
			do = func(c *sdk.Call) error {
				got, err := operations[name](c)
				if !reflect.DeepEqual(got, answers[name]) {
					t.Errorf("answered %+v, want %+v", got, answers[name])
				}
				return err
			}
			if o, err := h.Call("op", `{}`); err != nil || o.Error != nil {
				t.Fatal(err, o.Error)
			}
			if len(h.Requests) != 1 || h.Requests[0].Import != name {
				t.Fatalf("it asked for %v", h.Requests)
			}
			op, err := abi.ParseOp(name, h.Requests[0].JSON)
			if err != nil {
				t.Fatalf("the host does not take %s: %v", h.Requests[0].JSON, err)
			}
			if name == "ssh_exec" && op.Timeout() != time.Millisecond {
				t.Errorf("a timeout of a microsecond became %s: it must not become none",
					op.Timeout())
			}
		})
	}
}

func TestErrorsOfOperations(t *testing.T) {
	serve()
	h := sdktest.New(t)
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"refused": {&sdk.Refused{DecisionID: "D", Failed: []string{"a"},
			Deny: []sdk.Reason{{ID: "r", Msg: "m"}}}, "refused"},
		"failed":      {&sdk.OpError{Code: "timeout", Message: "m"}, "timeout"},
		"unknown":     {&sdk.OpError{Code: "lost", Message: "m", Unknown: true}, "lost"},
		"bad request": {&sdk.BadRequest{Field: "f", Message: "m"}, "bad_request"},
		"pending":     {sdk.ErrPending, "pending"},
	} {
		t.Run(name, func(t *testing.T) {
			script(h, c.err)
			for _, op := range slices.Sorted(func(yield func(string) bool) {
				for name := range operations {
					if !yield(name) {
						return
					}
				}
			}) {
				do = func(call *sdk.Call) error {
					_, err := operations[op](call)
					if !reflect.DeepEqual(err, c.err) && !errors.Is(err, c.err) {
						t.Errorf("%s gave %#v, want %#v", op, err, c.err)
					}
					return err
				}
				o, err := h.Call("op", `{}`)
				if err != nil || o.Error == nil || o.Error.Code != c.code {
					t.Fatalf("%s: the tool's error became %+v, %v", op, o.Error, err)
				}
			}
		})
	}
}

func TestNotesAndNodes(t *testing.T) {
	serve()
	h := sdktest.New(t)
	do = func(c *sdk.Call) error {
		sdk.Log(c, sdk.Warn, "careful")
		sdk.Progress(c, 1, 2, "half")
		sdk.Yield()
		if c.Node("") != "pve1" || c.Node("pve2") != "pve2" || time.Until(c.Deadline) <= 0 {
			t.Errorf("call %+v", c)
		}
		return nil
	}
	if _, err := h.Call("op", `{}`); err != nil || !slices.Equal(h.Logs, []string{"careful"}) ||
		!slices.Equal(h.Progress, []string{`{"done":1,"total":2,"message":"half"}`}) {
		t.Errorf("logs %v, progress %v, %v", h.Logs, h.Progress, err)
	}
}

// told is a test that is failed on purpose.
type told struct {
	testing.TB
	said []string
}

func (t *told) Errorf(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}

func TestCommandThatIsNotDeclaredFailsTheTest(t *testing.T) {
	const read = "pvesh get /nodes/{node}/lxc/{vmid}/config"
	for _, c := range []struct{ runs, declares, is string }{
		{"pct stop 101", "pct stop", "pct stop"},
		{"pct destroy 101", "pct stop", ""},
		{"pct stopping 101", "pct stop", ""},
		{"pct", "pct stop", ""},
		{"uname -r", "uname", "uname"},
		{"ip -s link show", "ip,ip -s link show", "ip -s link show"},
		{"pvesh get /nodes/pve1/lxc/101/config --current 1", read, read},
		{"pvesh get /nodes/pve1/qemu/101/config", read, ""},
		{"pvesh get /nodes/pve1/lxc//config", read, ""},
		{"pvesh get /nodes/pve1/lxc/101/config/x", read, ""},
		{"true", "", ""},
	} {
		imports.Reset()
		sdk.Serve(
			"test",
			"1",
			sdk.NewTool(
				"t",
				"Doc.",
				sdk.Hints{
					Imports:  []string{"ssh_exec"},
					Commands: strings.FieldsFunc(c.declares, func(r rune) bool { return r == ',' }),
				},
				func(call *sdk.Call, _ struct{}) (string, error) {
					_, err := sdk.SSHExec(call, "", strings.Fields(c.runs), sdk.ExecOptions{})
					return "", err
				},
			),
		)
		to := &told{TB: t}
		h := sdktest.New(to)
		h.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult,
			error) {
			return sdk.ExecResult{}, nil
		}
		if _, err := h.Call("t", `{}`); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(to.said, "\n"); h.Requests[0].Runs != c.is ||
			(said == "") != (c.is != "") ||
			c.is == "" &&
				!strings.Contains(said, "not among its Commands: the host would refuse it") {
			t.Errorf("%s, declared %q: it is %q; %s", c.runs, c.declares, h.Requests[0].Runs, said)
		}
	}
}

func TestServePanicsOnASecondCall(t *testing.T) {
	serve()
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "can be called at most once") {
			t.Errorf("the second call of Serve: %s, want a panic", said)
		}
	}()
	sdk.Serve("again", "1")
}

type documented struct {
	Tagged string `json:"tagged" doc:"by its tag"`
	Plain  string `json:"plain"`
}

func (documented) Docs() map[string]string { return docs }

var docs map[string]string

func TestDocsDescribesTheFieldsOfATool(t *testing.T) {
	tool := func() sdk.Tool {
		return sdk.NewTool("d", "Doc.", sdk.Hints{},
			func(*sdk.Call, documented) (string, error) { return "", nil })
	}
	for want, d := range map[string]map[string]string{
		"": {"plain": "by Docs"}, "no field has": {"absent": "x"},
		"a doc tag and a text in Docs": {"tagged": "x"}} {
		docs = d
		func() {
			defer func() {
				said := recover()
				if want == "" && said != nil || !strings.Contains(fmt.Sprint(said), want) {
					t.Errorf("Docs %v: %v, want %q", d, said, want)
				}
			}()
			tool()
		}()
	}
	docs = map[string]string{"plain": "by Docs"}
	imports.Reset()
	sdk.Serve("test", "1", tool())
	described, err := imports.Describe()
	if err != nil || !strings.Contains(string(described), `"description":"by Docs"`) {
		t.Errorf("described: %s, %v", described, err)
	}
}

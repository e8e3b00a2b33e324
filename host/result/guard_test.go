package result_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/result"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/test/needs"
)

// rules answer with one action for everything.
type rules struct {
	action string
	always bool
	err    error
	deny   []terms.Reason
	asked  int
	last   result.Returned
}

func (r *rules) Detectors(context.Context) (*result.Set, bool, error) {
	set, err := result.New()
	return set, r.always, err
}

func (r *rules) Returns(_ context.Context, asked result.Returned) (result.Answer, error) {
	r.asked++
	r.last = asked
	actions := map[string]string{}
	for name := range asked.Hits {
		actions[name] = r.action
	}
	return result.Answer{Actions: actions, Denied: r.deny}, r.err
}

// node returns one result, or hands a file over.
type node struct {
	res   terms.Result
	err   error
	saves string
	kept  bool
	ran   bool
}

func (n *node) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{}, nil
}
func (n *node) End(context.Context, *terms.Call) {}

func (n *node) Execute(
	_ context.Context,
	q terms.Question,
	_ terms.Decision,
) (terms.Result, error) {
	n.ran = true
	if n.saves != "" {
		q.Screen.Write([]byte(n.saves[:len(n.saves)/2]))
		q.Screen.Write([]byte(n.saves[len(n.saves)/2:]))
		if err := q.Screen.Close(); err != nil {
			return terms.Result{}, err
		}
		n.kept = true
	}
	return n.res, n.err
}

func execute(r *rules, n *node, op abi.Op) (terms.Result, error) {
	g := &result.Guard{Policy: r}
	e := g.Executors(map[string]terms.Executor{op.Import(): n})[op.Import()]
	return e.Execute(context.Background(), terms.Question{Op: op}, terms.Decision{Allow: true})
}

// made returns private keys of each form that the tools of a node write.
func made(t *testing.T) map[string]string {
	t.Helper()
	dir, keys := t.TempDir(), map[string]string{}
	for name, args := range map[string]string{
		"openssh":           "ssh-keygen -q -t ed25519 -N  -f FILE",
		"pem":               "ssh-keygen -q -t rsa -m PEM -N  -f FILE",
		"openssh encrypted": "ssh-keygen -q -t ed25519 -N secret -f FILE",
		"pkcs8":             "openssl genpkey -algorithm ED25519 -out FILE",
		"pkcs8 encrypted": "openssl genpkey -algorithm ED25519 -aes256 -pass pass:secret " +
			"-out FILE",
		"ec": "openssl ecparam -genkey -name prime256v1 -noout -out FILE",
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		words := strings.Split(strings.ReplaceAll(args, "FILE", file), " ")
		needs.Program(t, words[0])
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = string(b)
	}
	return keys
}

// inner returns a line from within a key.
func inner(key string) string { lines := strings.Split(key, "\n"); return lines[len(lines)/2-1] }

// Each key is hidden in each form in which a result can hold it.
func TestKeysAreMaskedInEveryEncoding(t *testing.T) {
	for name, key := range made(t) {
		wrapped := base64.StdEncoding.EncodeToString([]byte("x" + key))
		lines := ""
		for i := 0; i < len(wrapped); i += 76 {
			lines += wrapped[i:min(i+76, len(wrapped))] + "\n"
		}
		quoted, _ := json.Marshal(map[string]string{"key": key})
		for form, text := range map[string]string{"text": key, "json": string(quoted),
			"base64": base64.StdEncoding.EncodeToString([]byte(key)), "base64 lines": lines} {
			r := &rules{action: "mask"}
			res, err := execute(r, &node{res: terms.Result{Value: abi.ExecResponse{
				Stdout: "before\n" + text + "\nafter"}}}, abi.SSHExec{})
			if err != nil {
				t.Fatalf("%s in %s: %v", name, form, err)
			}
			out := res.Value.(abi.ExecResponse).Stdout
			secret := inner(key)
			if strings.HasPrefix(form, "base64") {
				secret = strings.Fields(text[len(text)/2:])[0][:4]
			}
			if strings.Contains(out, secret) || !strings.HasPrefix(out, "before\n") ||
				len(res.Hits) != 1 || res.Hits[0].Detector != "private_key" {
				t.Errorf("%s in %s: %q, %v", name, form, out, res.Hits)
			}
		}
		binary := abi.ReadResponse{}
		binary.B64 = base64.StdEncoding.EncodeToString([]byte("\xff" + key))
		res, err := execute(&rules{action: "mask"}, &node{res: terms.Result{Value: binary}},
			abi.SFTPRead{})
		b, _ := base64.StdEncoding.DecodeString(res.Value.(abi.ReadResponse).B64)
		if err != nil || strings.Contains(string(b), inner(key)) || b[0] != 0xff {
			t.Errorf("%s in bytes: %q, %v", name, b, err)
		}
	}
}

const hash = "$6$salt$" + "0123456789abcdefghijABCDEFGHIJ./zyxwvutsrqponmlkjihgfedcba98765432" +
	"10ZYXWVUTSRQPONMLKJI"

func TestRefusedResultsAreNotReturned(t *testing.T) {
	with := func() terms.Result {
		return terms.Result{Value: abi.ExecResponse{Stdout: "root:" + hash}}
	}
	for name, row := range map[string]struct {
		r    *rules
		want string
	}{
		"refuse":         {&rules{action: "refuse"}, "password_hash (1)"},
		"no action":      {&rules{}, "password_hash (1)"},
		"unknown action": {&rules{action: "maskk"}, "password_hash (1)"},
		"an error":       {&rules{action: "allow", err: errors.New("no answer")}, "no answer"},
		"a rule": {&rules{action: "allow", deny: []terms.Reason{{ID: "site.x", Msg: "no"}}},
			"no (site.x)"},
	} {
		res, err := execute(row.r, &node{res: with()}, abi.SSHExec{})
		op := (*terms.OpError)(nil)
		if !errors.As(err, &op) || op.Code != "result_refused" ||
			!strings.Contains(op.Message, row.want) || res.Value != nil ||
			strings.Contains(err.Error(), hash) || res.Hits[0].Action == "mask" {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
	res, err := execute(&rules{action: "allow"}, &node{res: with()}, abi.SSHExec{})
	if err != nil || res.Value != with().Value || res.Hits[0] != (terms.Hit{
		Detector: "password_hash", Count: 1, Action: "allow"}) {
		t.Errorf("allowed: %v, %v", res, err)
	}
	r := &rules{}
	if execute(r, &node{res: terms.Result{Value: abi.ExecResponse{Stdout: "up"}}},
		abi.SSHExec{}); r.asked != 0 {
		t.Error("policy is asked about nothing")
	}
	n := &node{err: terms.Fail("failed", "it said root:%s", hash)}
	if _, err := execute(&rules{action: "mask"}, n, abi.SSHExec{}); err == nil ||
		strings.Contains(err.Error(), hash) || !strings.Contains(err.Error(), "it said root:[") {
		t.Errorf("an error tells: %v", err)
	}
}

func TestFilesAreReturnedUnchangedOrNotAtAll(t *testing.T) {
	for action, kept := range map[string]bool{"allow": true, "mask": false, "refuse": false} {
		r, n := &rules{action: action}, &node{saves: "root:" + hash}
		res, err := execute(r, n, abi.SFTPGet{})
		if n.kept != kept || (err == nil) != kept || !r.last.Saved || len(res.Hits) != 1 {
			t.Errorf("%s: kept %t, %v, %v", action, n.kept, res.Hits, err)
		}
	}
}

// Each field of a request that can hold what goes out is looked at: the fields are found in the
// types of all requests, so that a new one is refused by this test until it is looked at or listed.
func TestMasksAreNeverWritten(t *testing.T) {
	const mask = "root:[caponier:masked:password_hash]:1"
	in64 := base64.StdEncoding.EncodeToString([]byte(mask))
	names := []string{"Node", "Path", "Local", "Mode", "SHA256", "Method", "Credential", "Name",
		"MIME", "Blob", "Word", "Call", "Key", "Message", "Schema", "Hops"} // hold no contents
	for _, op := range []any{&abi.SSHExec{}, &abi.SSHScript{}, &abi.Stage{}, &abi.SFTPStat{},
		&abi.SFTPList{}, &abi.SFTPRead{}, &abi.SFTPWrite{}, &abi.SFTPGet{}, &abi.SFTPPut{},
		&abi.SFTPRemove{}, &abi.Discard{}, &abi.HTTPRequest{}, &abi.BlobWrite{}, &abi.BlobRead{},
		&abi.ListCommands{}, &abi.Ask{}, &abi.UndoSteps{}, &abi.Snapshots{}} {
		all := reflect.ValueOf(op).Elem()
		for _, f := range reflect.VisibleFields(all.Type()) {
			field := all.FieldByIndex(f.Index)
			switch {
			case f.Anonymous || slices.Contains(names, f.Name) || field.CanInt() ||
				field.Kind() == reflect.Bool:
				continue
			case strings.HasSuffix(f.Name, "B64"):
				field.SetString(in64)
			case field.Kind() == reflect.String:
				field.SetString(mask)
			case f.Name == "Argv":
				field.Set(reflect.ValueOf([]string{"tee", mask}))
			case f.Name == "Headers":
				field.Set(reflect.ValueOf([][2]string{{"X-Key", mask}}))
			default:
				t.Fatalf("%T.%s: what does it hold?", op, f.Name)
			}
			n := &node{}
			_, err := execute(&rules{}, n, all.Interface().(abi.Op))
			if err == nil || n.ran || !strings.Contains(err.Error(), "kept back") {
				t.Errorf("%T.%s: a mask is written: %v", op, f.Name, err)
			}
			field.SetZero()
		}
	}
}

// A file of the workspace may hold a mask that a model copied from a result: uploaded, it would
// replace the secret. The mask is found wherever the file is read in two.
func TestAFileWithAMaskIsNotUploaded(t *testing.T) {
	const mask = "root:[caponier:masked:password_hash]:1"
	for i := range len(mask) {
		file := strings.Repeat("x", 40) + mask + strings.Repeat("y", 40+2*i-len(mask))
		n := &node{saves: file}
		_, err := execute(&rules{}, n, abi.SFTPPut{Local: "shadow", Path: "/etc/shadow"})
		if err == nil || n.kept || !strings.Contains(err.Error(), "nothing was changed") {
			t.Fatalf("read in two at %d: %v, sent: %t", len(file)/2, err, n.kept)
		}
	}
	// what is no mask goes, and so does a secret: the node is no client
	for _, file := range []string{"[caponier:mask", "plain", made(t)["openssh"]} {
		n := &node{saves: file}
		if _, err := execute(&rules{action: "refuse"}, n, abi.SFTPPut{Local: "a"}); err != nil {
			t.Errorf("%.20q: %v", file, err)
		}
	}
}

// A plugin that read a key in parts could put it together in a question to the client's user.
func TestQuestionsAreAskedUnchangedOrNotAtAll(t *testing.T) {
	for name, key := range made(t) {
		for _, op := range []abi.Ask{{Key: "k", Message: key},
			{Key: "k", Schema: map[string]any{"properties": map[string]any{"a": key}}}} {
			for action, asked := range map[string]bool{"allow": true, "mask": false,
				"refuse": false, "": false} {
				n := &node{}
				res, err := execute(&rules{action: action}, n, op)
				if n.ran != asked || (err == nil) != asked || !asked && (len(res.Hits) == 0 ||
					!strings.Contains(err.Error(), "the user is not asked")) {
					t.Errorf("%s, %s: asked %t, hits %v, %v", name, action, n.ran, res.Hits, err)
				}
			}
		}
	}
	n := &node{}
	if _, err := execute(&rules{}, n, abi.Ask{Key: "k", Message: "Which node?"}); err != nil ||
		!n.ran {
		t.Errorf("an ordinary question: %v", err)
	}
}

// Progress and log lines show no key, whatever policy says of results.
func TestLogAndProgressOfAPluginAreMasked(t *testing.T) {
	for name, key := range made(t) {
		said := (&result.Guard{Policy: &rules{action: "allow"}}).Said(t.Context(), "key: "+key)
		if !strings.Contains(said, "[caponier:masked:") ||
			strings.Contains(said, key[len(key)/2:]) {
			t.Errorf("%s: %s", name, said)
		}
	}
	if said := (&result.Guard{Policy: &rules{}}).Said(t.Context(), "3 of 5"); said != "3 of 5" {
		t.Errorf("ordinary progress: %s", said)
	}
	lost := (&result.Guard{Policy: unloaded{}}).Said(t.Context(), "3 of 5")
	if strings.Contains(lost, "3 of 5") || !strings.Contains(lost, "no policy") {
		t.Errorf("without detectors: %s", lost)
	}
}

type unloaded struct{ result.Policy }

func (unloaded) Detectors(context.Context) (*result.Set, bool, error) {
	return nil, false, errors.New("no policy is loaded")
}

// plugin returns one output.
type plugin struct {
	gate.Runner
	out string
}

func (p plugin) Run(context.Context, *gate.Running) (terms.Output, error) {
	return terms.Output{JSON: json.RawMessage(p.out)}, nil
}

// A secret that comes together in the output is found there, however JSON writes it.
func TestTheWholeOutputIsExamined(t *testing.T) {
	escaped := ""
	for _, c := range hash {
		escaped += `\u00` + string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15])
	}
	key := "-----BEGIN PRIVATE KEY-----\nSECRETSECRET\n-----END PRIVATE KEY-----"
	lines, _ := json.Marshal(strings.Split(key, "\n"))
	in64 := base64.StdEncoding.EncodeToString([]byte(hash))
	for name, out := range map[string]string{
		"text":       `{"content":[{"type":"text","text":"a ` + hash + ` b"}]}`,
		"escapes":    `{"structured":{"a":["` + escaped + `", 1.50]}}`,
		"lines":      `{"structured":{"lines":` + string(lines) + `,"n":12345678901234567890}}`,
		"base64":     `{"content":[{"type":"image","data":"` + in64 + `"}]}`,
		"a name":     `{"structured":{"` + hash + `":1}}`,
		"no json":    `{"structured":"` + hash,
		"two values": `{} "` + hash + `"`,
	} {
		g := &result.Guard{Policy: &rules{action: "mask"}}
		got, err := g.Runner(plugin{out: out}).Run(context.Background(),
			&gate.Running{Call: &terms.Call{}})
		text := string(got.JSON)
		for _, secret := range []string{hash, escaped, "SECRETSECRET", in64} {
			if err != nil || strings.Contains(text, secret) || len(got.Hits) != 1 {
				t.Fatalf("%s: %s, %v, %v", name, text, got.Hits, err)
			}
		}
		if json.Valid([]byte(out)) && !json.Valid(got.JSON) ||
			strings.Contains(out, "1.50") && !strings.Contains(text, "1.50") ||
			strings.Contains(out, "890}") && !strings.Contains(text, "12345678901234567890") {
			t.Errorf("%s: %s", name, text)
		}
	}
	plain := `{"structured": {"a":"x\u00e9<b>", "n": 1.0}}`
	got, err := (&result.Guard{Policy: &rules{}}).Runner(plugin{out: plain}).Run(
		context.Background(), &gate.Running{Call: &terms.Call{}})
	if err != nil || string(got.JSON) != `{"structured":{"a":"xé<b>","n":1.0}}` {
		t.Errorf("what holds no secret is changed: %s, %v", got.JSON, err)
	}
}

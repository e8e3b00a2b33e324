package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// The input documents, field by field as Rego sees them; docs/policy.md explains each. Nil pointers
// become null, nil slices [].
type (
	head struct {
		Schema    string         `json:"schema"`
		ID        string         `json:"id"`
		Kind      string         `json:"kind"` // tool | resource | prompt
		Time      clock          `json:"time"`
		Source    string         `json:"source"`
		Principal gate.Principal `json:"principal"`
		Plugin    gate.Plugin    `json:"plugin"`
		Tool      tool           `json:"tool"`
		Mode      gate.Mode      `json:"mode"`
	}
	clock struct {
		UnixMS  int64 `json:"unix_ms"`
		HourUTC int   `json:"hour_utc"`
		Weekday int   `json:"weekday"` // 0 is Sunday
	}
	tool struct {
		Name        string     `json:"name"`
		Imports     []string   `json:"imports"`
		Commands    []string   `json:"commands"` // that it declares
		TargetKinds []string   `json:"target_kinds"`
		Hints       gate.Hints `json:"hints"`
	}
	args struct {
		Digest  string         `json:"digest"`
		Bytes   int            `json:"bytes"`
		Scalars map[string]any `json:"scalars"`
		// names of arguments that are no scalars, or longer than 256 bytes
		Omitted []string `json:"omitted"`
	}
	visibleInput struct {
		head
		Targets gate.Targets `json:"targets"` // may it be seen to act on these?
	}
	callInput struct {
		head
		Args         args              `json:"args"`
		Targets      gate.Targets      `json:"targets"`
		Nodes        []nodeFacts       `json:"nodes"` // the inventory
		Commands     []command         `json:"commands"`
		Confirmation gate.Confirmation `json:"confirmation"`
		Facts        gate.Counts       `json:"facts"`
	}
	operationInput struct {
		head
		Args    args        `json:"args"`
		Op      string      `json:"op"`
		Phase   string      `json:"phase"`
		Parent  parent      `json:"parent"`
		Target  *target     `json:"target"`
		Nodes   []nodeFacts `json:"nodes"` // the inventory
		Command *command    `json:"command"`
		File    *file       `json:"file"`
		HTTP    *request    `json:"http"`
		Blob    *blob       `json:"blob"`
		Ask     *ask        `json:"ask"`
	}
	nodeFacts struct {
		Name    string `json:"name"`
		Cluster string `json:"cluster"`
		Host    string `json:"host"`
	}
	parent struct {
		ID           string            `json:"id"`
		Tool         string            `json:"tool"`
		Tier         string            `json:"tier"`
		Targets      gate.Targets      `json:"targets"`
		Clusters     []string          `json:"clusters"`
		Commands     []command         `json:"commands"`
		Stages       []gate.StageDir   `json:"stages"`
		Confirmation gate.Confirmation `json:"confirmation"`
		Revision     string            `json:"revision"`
	}
	target struct {
		Node    string      `json:"node"`
		Cluster string      `json:"cluster"`
		Host    string      `json:"host"`
		Port    int         `json:"port"`
		User    string      `json:"user"`
		Addrs   []gate.Addr `json:"addrs"`
	}
	command struct {
		Form     string        `json:"form"`
		Arg      string        `json:"arg"`
		Guest    bool          `json:"guest"`
		Text     string        `json:"text"`
		Rendered string        `json:"rendered"` // what is sent when parsed; "" in an operation
		Parsed   bool          `json:"parsed"`
		Error    string        `json:"error"`
		Features []string      `json:"features"`
		Calls    []gate.Simple `json:"calls"`
		Nested   []nested      `json:"nested"`
		Stdin    stdin         `json:"stdin"`
	}
	nested struct {
		Depth    int           `json:"depth"`
		Position []int         `json:"position"`
		Parsed   bool          `json:"parsed"`
		Error    string        `json:"error"`
		Features []string      `json:"features"`
		Calls    []gate.Simple `json:"calls"`
	}
	stdin struct {
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	file struct {
		Action string `json:"action"` // stage stat list read write get put remove
		Path   string `json:"path"`
		// null in the lookup phase, as are type, exists, bytes
		RealPath   *string `json:"real_path"`
		Local      *string `json:"local"`  // of get and put
		Bytes      *int64  `json:"bytes"`  // that would move
		SHA256     *string `json:"sha256"` // of the bytes of a write
		Mode       string  `json:"mode"`   // asked for, octal, "" for the default
		Type       *string `json:"type"`
		Exists     *bool   `json:"exists"`
		Overwrite  bool    `json:"overwrite"`
		CurrentMod *int64  `json:"current_mode"` // permission bits of what is there
	}
	request struct {
		Method string `json:"method"`
		Scheme string `json:"scheme"`
		Host   string `json:"host"`
		Port   int    `json:"port"`
		Path   string `json:"path"`
		Query  string `json:"query"` // as it is sent, without "?"
		// their names in lower case, sorted, each once
		Headers    []string    `json:"headers"`
		Addrs      []gate.Addr `json:"addrs"              policy:"nullable"` // null in the lookup phase
		Hop        int         `json:"hop"`
		BodyBytes  int         `json:"body_bytes"`
		BodySHA256 string      `json:"body_sha256"` // of no bytes too
		Credential string      `json:"credential"`
		Reserve    int64       `json:"reserve_usd_micros"`
	}
	blob struct {
		Action string `json:"action"` // write | read | get: a copy in the workspace
		Name   string `json:"name"`
		MIME   string `json:"mime"`
		Bytes  int64  `json:"bytes"`
		TTLS   int64  `json:"ttl_s"`
		Local  string `json:"local"` // of get
	}
	ask struct {
		Key    string `json:"key"`
		Bytes  int    `json:"bytes"` // of the message
		Fields int    `json:"fields"`
	}
)

const (
	callSchema      = "caponier.call/1"
	operationSchema = "caponier.operation/1"
	visibleSchema   = "caponier.visible/1"
)

// document makes the input of a question: *callInput, *operationInput or *visibleInput.
func document(q *gate.Question) any {
	c := q.Call
	t := q.Time.UTC()
	h := head{
		ID:        q.ID,
		Kind:      c.Tool.Kind,
		Time:      clock{t.UnixMilli(), t.Hour(), int(t.Weekday())},
		Source:    c.Source,
		Principal: c.Principal,
		Plugin:    c.Tool.Plugin,
		Tool: tool{
			c.Tool.Name,
			c.Tool.Imports,
			c.Tool.Commands,
			c.Tool.TargetKinds,
			c.Tool.Hints,
		},
		Mode: q.Mode,
	}
	switch q.Kind {
	case gate.KindCall:
		h.Schema = callSchema
		return &callInput{
			head:         h,
			Args:         argsOf(c),
			Targets:      c.Targets,
			Nodes:        nodesOf(c),
			Commands:     commandsOf(c.Commands),
			Confirmation: c.Confirmation,
			Facts:        q.Facts.Counts,
		}
	case gate.KindOperation:
		h.Schema = operationSchema
		return operation(q, h)
	}
	h.Schema = visibleSchema
	return &visibleInput{h, c.Targets}
}

func argsOf(c *gate.Call) args {
	return args{
		c.Args.Digest,
		len(c.Args.JSON),
		c.Args.Scalars,
		append([]string{}, c.Args.Omitted...),
	}
}

func nodesOf(c *gate.Call) (nodes []nodeFacts) {
	for _, n := range c.Nodes {
		nodes = append(nodes, nodeFacts{n.Name, n.Cluster, inventoryForm(n.Host)})
	}
	return nodes
}

// inventoryForm gives the host of a node the form that protected entries have, so that none is
// missed for how it is written.
func inventoryForm(host string) string {
	return hostForm(strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), ".")))
}

// hostForm gives an address the form that protected entries have.
func hostForm(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return host
}

func commandsOf(cmds []gate.Command) (out []command) {
	for _, c := range cmds {
		cmd := commandOf(c)
		cmd.Rendered = c.Rendered
		out = append(out, cmd)
	}
	return out
}

func commandOf(c gate.Command) command {
	out := command{
		Form:     c.Form,
		Arg:      c.Arg,
		Guest:    c.Guest,
		Text:     c.Text,
		Parsed:   c.Parsed,
		Error:    c.Error,
		Features: c.Features,
		Calls:    c.Calls,
	}
	for _, n := range c.Nested {
		out.Nested = append(
			out.Nested,
			nested{n.Depth, n.Position, n.Parsed, n.Error, n.Features, n.Calls},
		)
	}
	return out
}

// operation leaves every part null that the operation does not have; one that is not known has
// none, which policy refuses.
func operation(q *gate.Question, h head) *operationInput {
	c := q.Call
	in := &operationInput{
		head:  h,
		Args:  argsOf(c),
		Phase: q.Phase.String(),
		Nodes: nodesOf(c),
		Parent: parent{c.ID, c.Tool.Name, c.Decided.Tier.String(), c.Targets, c.Clusters,
			commandsOf(c.Commands), c.Stages, c.Confirmation, c.Decided.Revision},
	}
	if q.Op == nil {
		return in
	}
	in.Op = q.Op.Import()
	if n := q.Node; n != nil {
		in.Target = &target{
			Node:    n.Name,
			Cluster: n.Cluster,
			Host:    inventoryForm(n.Host),
			Port:    n.Port,
			User:    n.User,
		}
		if in.HTTP == nil {
			in.Target.Addrs = q.Facts.Addrs
		}
	}
	if q.Cmd != nil {
		cmd := commandOf(*q.Cmd)
		in.Command = &cmd
	}
	switch op := q.Op.(type) {
	case abi.SSHExec:
		if in.Command != nil {
			in.Command.Stdin = stdinOf(op)
		}
	case abi.SSHScript:
		if in.Command != nil {
			in.Command.Text = op.Script
		}
	case abi.Stage:
		in.File = &file{Action: "stage"}
	case abi.SFTPStat:
		in.File = fileOf(q, file{Action: "stat", Path: op.Path}, moves(0))
	case abi.SFTPList:
		in.File = fileOf(q, file{Action: "list", Path: op.Path}, moves(0))
	case abi.SFTPRead:
		in.File = fileOf(q, file{Action: "read", Path: op.Path}, func(f *gate.FileFacts) int64 { return readable(f.Bytes, op.MaxBytes) })
	case abi.SFTPWrite:
		data, err := op.Bytes()
		size, sum := int64(len(data)), digest(data)
		if err != nil {
			size = -1 // which policy refuses
		}
		in.File = fileOf(q, file{Action: "write", Path: op.Path, Mode: op.Mode, Overwrite: op.Overwrite, SHA256: &sum}, moves(size))
	case abi.SFTPGet:
		in.File = fileOf(q, file{Action: "get", Path: op.Path, Local: &op.Local, Overwrite: op.Overwrite}, func(f *gate.FileFacts) int64 { return f.Bytes })
	case abi.SFTPPut:
		in.File = fileOf(q, file{Action: "put", Path: op.Path, Local: &op.Local, Mode: op.Mode, Overwrite: op.Overwrite}, func(f *gate.FileFacts) int64 { return f.LocalBytes })
	case abi.SFTPRemove:
		in.File = fileOf(q, file{Action: "remove", Path: op.Path}, moves(0))
	case abi.HTTPRequest:
		in.HTTP = requestOf(q, op)
	case abi.BlobWrite:
		data, err := op.Bytes()
		in.Blob = &blob{Action: "write", Name: op.Name, MIME: op.MIME, Bytes: int64(len(data)), TTLS: op.TTLS}
		if err != nil {
			in.Blob = nil
		}
	case abi.BlobRead:
		in.Blob = &blob{Action: "read", Name: op.Blob, Bytes: op.MaxBytes, Local: op.Local}
		if op.Local != "" {
			in.Blob.Action = "get"
		}
	case abi.Ask:
		fields, _ := op.Schema["properties"].(map[string]any)
		in.Ask = &ask{op.Key, len(op.Message), len(fields)}
	}
	return in
}

func stdinOf(op abi.SSHExec) stdin {
	if op.Stdin == "" && op.StdinB64 == "" {
		return stdin{}
	}
	data, err := (abi.Data{Text: op.Stdin, B64: op.StdinB64}).Bytes()
	if err != nil {
		return stdin{Bytes: -1}
	}
	return stdin{int64(len(data)), digest(data)}
}

func moves(n int64) func(*gate.FileFacts) int64 { return func(*gate.FileFacts) int64 { return n } }

// readable is how much of a file a read moves. Pseudo files say that they are empty, so the asked
// limit counts too.
func readable(size, limit int64) int64 {
	if limit > 0 && (size == 0 || limit < size) {
		return limit
	}
	return size
}

func fileOf(q *gate.Question, f file, bytes func(*gate.FileFacts) int64) *file {
	if facts := q.Facts.File; facts != nil && q.Phase == gate.PhaseEffect {
		n, mode := bytes(facts), int64(facts.Mode)
		f.RealPath, f.Type, f.Exists, f.Bytes, f.CurrentMod = &facts.RealPath, &facts.Type, &facts.Exists, &n, &mode
	}
	return &f
}

// requestOf is nil for a URL that has no one meaning, which policy refuses as it refuses an
// operation without a part.
func requestOf(q *gate.Question, op abi.HTTPRequest) *request {
	u, err := url.Parse(op.URL)
	body, errBody := op.Bytes()
	if err != nil || errBody != nil || u.Opaque != "" || u.User != nil || u.Hostname() == "" {
		return nil
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return nil
		}
	}
	r := &request{
		Method:     op.Method,
		Scheme:     u.Scheme,
		Host:       hostForm(u.Hostname()),
		Port:       port,
		Path:       u.EscapedPath(),
		Query:      u.RawQuery,
		Headers:    []string{},
		Hop:        op.Hop,
		BodyBytes:  len(body),
		BodySHA256: digest(body),
		Credential: op.Credential,
		Reserve:    op.ReserveUSDMicros,
	}
	for _, h := range op.Headers {
		r.Headers = append(r.Headers, strings.ToLower(h[0]))
	}
	slices.Sort(r.Headers)
	r.Headers = slices.Compact(r.Headers)
	if q.Phase == gate.PhaseEffect {
		r.Addrs = append([]gate.Addr{}, q.Facts.Addrs...)
	}
	return r
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Package input turns questions into the documents that policy decides on. It also reads such
// documents again from the journal.
package input

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// The input documents, field by field as Rego sees them; docs/policy.md explains each. A nil
// pointer becomes null, a nil slice [].
type (
	Head struct {
		Schema    string       `json:"schema"`
		ID        string       `json:"id"`
		Kind      string       `json:"kind"` // tool | resource | prompt | host
		Time      Clock        `json:"time"`
		Source    string       `json:"source"`
		Principal Principal    `json:"principal"`
		Plugin    terms.Plugin `json:"plugin"`
		Tool      Tool         `json:"tool"`
		Mode      terms.Mode   `json:"mode"`
		Planning  bool         `json:"planning"` // effects above green are recorded, not done
		// what the cluster says of guests that are named, by VMID; null: it was not asked
		Guests *map[string]terms.Guest `json:"guests"`
	}
	Clock struct {
		UnixMS    int64 `json:"unix_ms"`
		HourUTC   int   `json:"hour_utc"`
		MinuteUTC int   `json:"minute_utc"` // of the hour
		Weekday   int   `json:"weekday"`    // 0 is Sunday
	}
	Principal struct {
		ID              string   `json:"id"`
		Auth            string   `json:"auth"`
		Roles           []string `json:"roles"` // that site and credential give together
		CredentialRoles []string `json:"credential_roles"`
		Narrowed        bool     `json:"narrowed"` // the credential leaves only these
	}
	Tool struct {
		Name        string      `json:"name"`
		Imports     []string    `json:"imports"`
		Commands    []string    `json:"commands"` // that it declares
		TargetKinds []string    `json:"target_kinds"`
		Hints       terms.Hints `json:"hints"`
	}
	Args struct {
		Digest  string         `json:"digest"`
		Bytes   int            `json:"bytes"`
		Scalars map[string]any `json:"scalars"`
		Omitted []string       `json:"omitted"` // no scalars, or longer than 256 bytes
	}
	visible struct {
		Head
		Targets terms.Targets `json:"targets"` // may it be seen to act on these?
	}
	Call struct {
		Head
		Args         Args               `json:"args"`
		Targets      terms.Targets      `json:"targets"`
		Nodes        []Node             `json:"nodes"` // the inventory
		Commands     []Command          `json:"commands"`
		Confirmation terms.Confirmation `json:"confirmation"`
		Facts        terms.Counts       `json:"facts"`
	}
	Operation struct {
		Head
		Args    Args     `json:"args"`
		Op      string   `json:"op"`
		Phase   string   `json:"phase"`
		Parent  Parent   `json:"parent"`
		Target  *Target  `json:"target"`
		Nodes   []Node   `json:"nodes"` // the inventory
		Command *Command `json:"command"`
		File    *File    `json:"file"`
		HTTP    *Request `json:"http"`
		Blob    *Blob    `json:"blob"`
		Ask     *Ask     `json:"ask"`
		Record  *Record  `json:"record"`
		Listing *Listing `json:"listing"`
		// how it compares with the plan that its call is held to; null: it is held to none
		Plan *terms.PlanFacts `json:"plan"`
		// the guests, nodes, storages and units that it touches and, when the call is planned, that
		// it touched before; null: they were not looked up
		Touches *[]terms.Touched `json:"touches"`
	}
	Node struct {
		Name    string `json:"name"`
		Cluster string `json:"cluster"`
		Host    string `json:"host"`
		// other names in the inventory of the same machine
		Aliases []string `json:"aliases"`
	}
	Parent struct {
		ID           string             `json:"id"`
		Tool         string             `json:"tool"`
		Tier         string             `json:"tier"`
		Targets      terms.Targets      `json:"targets"`
		Clusters     []string           `json:"clusters"`
		Commands     []Command          `json:"commands"`
		Stages       []terms.StageDir   `json:"stages"`
		Confirmation terms.Confirmation `json:"confirmation"`
		Revision     string             `json:"revision"`
	}
	Target struct {
		Node    string       `json:"node"`
		Cluster string       `json:"cluster"`
		Host    string       `json:"host"`
		Port    int          `json:"port"`
		User    string       `json:"user"`
		Addrs   []terms.Addr `json:"addrs"`
		// every name of the command's units, as the node says; null: the node was not asked
		Services *[]string `json:"services"`
	}
	Command struct {
		terms.Command
		Rendered string `json:"rendered"` // what is sent when parsed; "" in an operation
		Stdin    Stdin  `json:"stdin"`
	}
	Stdin struct {
		Bytes  int64  `json:"bytes"` // -1 when it cannot be decoded
		SHA256 string `json:"sha256"`
	}
	File struct {
		Action string `json:"action"` // stage stat list read write get put remove discard
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
		Parents    bool    `json:"parents"`      // of put: missing directories are made
		CurrentMod *int64  `json:"current_mode"` // permission bits of what is there
	}
	Request struct {
		Method     string        `json:"method"`
		Scheme     string        `json:"scheme"`
		Host       string        `json:"host"`
		Port       int           `json:"port"`
		Path       string        `json:"path"`
		Query      string        `json:"query"`   // as it is sent, without "?"
		Headers    []string      `json:"headers"` // names in lower case, sorted, each once
		Addrs      *[]terms.Addr `json:"addrs"`   // null in the lookup phase
		Hop        int           `json:"hop"`
		BodyBytes  int           `json:"body_bytes"`
		BodySHA256 string        `json:"body_sha256"` // of an empty body too
		Credential string        `json:"credential"`
		Reserve    int64         `json:"reserve_usd_micros"`
	}
	Blob struct {
		Action string `json:"action"` // write | read | get: a copy in the workspace
		Name   string `json:"name"`
		MIME   string `json:"mime"`
		Bytes  int64  `json:"bytes"`
		TTLS   int64  `json:"ttl_s"`
		Local  string `json:"local"` // of get
	}
	Ask struct {
		Key    string `json:"key"`
		Bytes  int    `json:"bytes"` // of the message
		Fields int    `json:"fields"`
	}
	// List is what a list of commands is made from; see package caponier.core.listing.
	List struct {
		Questions []Call `json:"questions"` // of each tool, on each node, without a text
		Word      string `json:"word"`
		MoreNodes int    `json:"more_nodes"` // that are left out
	}
	Listing struct { // of commands
		Node string `json:"node"`
		Word string `json:"word"`
	}
)

const (
	callSchema      = "caponier.call/1"
	operationSchema = "caponier.operation/1"
	visibleSchema   = "caponier.visible/1"
)

func nodesOf(c *terms.Call) (nodes []Node) {
	for _, n := range c.Nodes {
		nodes = append(nodes, Node{n.Name, n.Cluster, inventoryForm(n.Host), n.Aliases})
	}
	return nodes
}

// inventoryForm gives the host of a node the form that protected entries have, so that an entry
// matches however the host is written.
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

func commandsOf(cmds []terms.Command) (out []Command) {
	for _, c := range cmds {
		out = append(out, Command{Command: c, Rendered: c.Rendered})
	}
	return out
}

// operation fills in what the operation is. Every part that the operation does not have stays null;
// an operation that is not known here has no part, which policy refuses.
func (in *Operation) operation(q *terms.Question) {
	in.Op = q.Op.Import()
	if n := q.Node; n != nil {
		in.Target = &Target{n.Name, n.Cluster, inventoryForm(n.Host), n.Port, n.User, q.Facts.Addrs,
			nil}
		if q.Facts.Units != nil {
			in.Target.Services = &q.Facts.Units
		}
	}
	in.Plan = q.Facts.Plan
	if q.Facts.Touches != nil {
		in.Touches = &q.Facts.Touches
	}
	if q.Cmd != nil {
		in.Command = &Command{Command: *q.Cmd}
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
	case abi.HTTPRequest:
		in.HTTP = requestOf(q, op)
	case abi.BlobWrite:
		if data, err := op.Bytes(); err == nil {
			in.Blob = &Blob{Action: "write", Name: op.Name, MIME: op.MIME, Bytes: int64(len(data)),
				TTLS: op.TTLS}
		}
	case abi.BlobRead:
		in.Blob = &Blob{Action: "read", Name: op.Blob, Bytes: op.MaxBytes, Local: op.Local}
		if op.Local != "" {
			in.Blob.Action = "get"
		}
	case abi.Ask:
		fields, _ := op.Schema["properties"].(map[string]any)
		in.Ask = &Ask{op.Key, len(op.Message), len(fields)}
	case abi.UndoSteps:
		in.Record = recordOf(op, q.Facts.Undo)
	case abi.Snapshots:
		in.Record = &Record{Action: "snapshots", All: op.All}
	case abi.ListCommands:
		in.Listing = &Listing{op.Node, op.Word}
	case abi.FileOp:
		in.File = fileOf(q, op.File())
	}
}

func stdinOf(op abi.SSHExec) Stdin {
	if op.Stdin == "" && op.StdinB64 == "" {
		return Stdin{}
	}
	data, err := (abi.Data{Text: op.Stdin, B64: op.StdinB64}).Bytes()
	if err != nil {
		return Stdin{Bytes: -1}
	}
	return Stdin{int64(len(data)), digest(data)}
}

// fileOf returns what an operation does with a file. The facts belong to its second phase.
func fileOf(q *terms.Question, of abi.File) *File {
	f := &File{Action: of.Action, Path: of.Path, Local: of.Local, Mode: of.Mode,
		Overwrite: of.Overwrite, Parents: of.Parents}
	n := int64(0)
	if of.Data != nil {
		data, err := of.Data.Bytes()
		sum := digest(data)
		if f.SHA256, n = &sum, int64(len(data)); err != nil {
			n = -1 // which policy refuses
		}
	}
	if facts := q.Facts.File; facts != nil && q.Phase == terms.PhaseEffect {
		switch of.Moves {
		case abi.MovesFile:
			n = readable(facts.Bytes, of.Limit)
		case abi.MovesLocal:
			n = facts.LocalBytes
		}
		mode := int64(facts.Mode)
		f.RealPath, f.Type, f.Exists = &facts.RealPath, &facts.Type, &facts.Exists
		f.Bytes, f.CurrentMod = &n, &mode
	}
	return f
}

// readable returns how many bytes a read moves. Pseudo files say that they are empty, so the limit
// that was asked for counts too.
func readable(size, limit int64) int64 {
	if limit > 0 && (size == 0 || limit < size) {
		return limit
	}
	return size
}

// requestOf returns nil for a URL that is malformed or ambiguous. Policy refuses an operation
// without its part.
func requestOf(q *terms.Question, op abi.HTTPRequest) *Request {
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
	r := &Request{Method: op.Method, Scheme: u.Scheme, Host: hostForm(u.Hostname()), Port: port,
		Path: u.EscapedPath(), Query: u.RawQuery, Hop: op.Hop, BodyBytes: len(body),
		BodySHA256: digest(body), Credential: op.Credential, Reserve: op.ReserveUSDMicros}
	for _, h := range op.Headers {
		r.Headers = append(r.Headers, strings.ToLower(h[0]))
	}
	slices.Sort(r.Headers)
	r.Headers = slices.Compact(r.Headers)
	if q.Phase == terms.PhaseEffect {
		r.Addrs = &q.Facts.Addrs
	}
	return r
}

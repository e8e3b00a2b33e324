package abi

import "encoding/json"

// Responses of operations with status OK, one type for each kind.
type (
	// ExecResponse is the result of a command. Stdout and Stderr are text; bytes that are not UTF-8
	// stand in the base64 fields instead.
	ExecResponse struct {
		Exit      int    `json:"exit"`
		Signal    string `json:"signal,omitempty"` // without SIG; "" if the command exited
		Stdout    string `json:"stdout"`
		StdoutB64 string `json:"stdout_b64,omitempty"`
		Stderr    string `json:"stderr"`
		StderrB64 string `json:"stderr_b64,omitempty"`
		Truncated bool   `json:"truncated"`
		Rendered  string `json:"rendered,omitempty"` // ssh_script: the text that ran
	}
	StageResponse struct {
		Dir string `json:"dir"`
	}
	FileInfo struct {
		Name     string `json:"name,omitempty"`
		NameB64  string `json:"name_b64,omitempty"` // a name that is not UTF-8
		Type     string `json:"type"`
		Size     int64  `json:"size"`
		Mode     Mode   `json:"mode"`
		MTime    int64  `json:"mtime"` // seconds since 1970
		RealPath string `json:"real_path,omitempty"`
	}
	ListResponse struct {
		Entries   []FileInfo `json:"entries"`
		Truncated bool       `json:"truncated"`
	}
	ReadResponse struct {
		Data
		Bytes int64 `json:"bytes"`
		EOF   bool  `json:"eof"`
	}
	WriteResponse struct {
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
		Local  string `json:"local,omitempty"`
	}
	HTTPResponse struct {
		Data
		Status  int         `json:"status"`
		Headers [][2]string `json:"headers"`
		Blob    string      `json:"blob,omitempty"`
		Bytes   int64       `json:"bytes"`
		Hops    []Hop       `json:"hops"`
	}
	// Hop is a redirect that was followed: the status and the URL that answered with it.
	Hop struct {
		Status int    `json:"status"`
		URL    string `json:"url"`
	}
	BlobWriteResponse struct {
		Blob   string `json:"blob"`
		URI    string `json:"uri"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	// AskResponse is the user's answer. Action is accept, decline or cancel.
	AskResponse struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}
	// UndoStepsResponse is what takes a call back: Steps in the order in which they are done.
	UndoStepsResponse struct {
		Call  string     `json:"call"`
		Tool  string     `json:"tool"`
		Steps []UndoStep `json:"steps"`
		// The host sets Owner, who made the call, "" if the host kept nothing of it, and Bars, why
		// it cannot be undone now, "" if it can.
		Owner string `json:"-"`
		Bars  string `json:"-"`
	}
	// UndoStep takes one step of a call back: by Argv on the node, by removing the file at Remove,
	// or by writing the data to Write. None says why nothing does.
	UndoStep struct {
		Data
		Node   string   `json:"node"`
		Did    string   `json:"did"` // the step, for people
		Argv   []string `json:"argv,omitempty"`
		Remove string   `json:"remove,omitempty"`
		Write  string   `json:"write,omitempty"`
		Mode   string   `json:"mode,omitempty"` // of the file that is written
		None   string   `json:"none,omitempty"`
	}
	SnapshotsResponse struct {
		Snapshots []Snapshot `json:"snapshots"`
	}
	// Snapshot is one that the host took of a guest before a call changed the guest. Times are
	// seconds since 1970.
	Snapshot struct {
		VMID      string `json:"vmid"`
		Cluster   string `json:"cluster"`
		Node      string `json:"node"`
		Name      string `json:"name"`
		Call      string `json:"call"`
		Principal string `json:"principal"`
		Tool      string `json:"tool"`
		Made      int64  `json:"made"`
		Expires   int64  `json:"expires"`
		Taken     bool   `json:"taken"` // else it may not be there
	}
	// Failure is the response of every status but OK; which fields are set depends on it.
	Failure struct {
		Code       string   `json:"code,omitempty"`
		Field      string   `json:"field,omitempty"`
		Message    string   `json:"message,omitempty"`
		DecisionID string   `json:"decision_id,omitempty"`
		Failed     []string `json:"failed,omitempty"`
		Deny       []Reason `json:"deny,omitempty"`
	}
	Reason struct {
		ID  string `json:"id"`
		Msg string `json:"msg"`
	}
	// Progress is the note of the import progress. Total 0 is unknown.
	Progress struct {
		Done    float64 `json:"done"`
		Total   float64 `json:"total,omitempty"`
		Message string  `json:"message,omitempty"`
	}
)

// CommandsResponse is which commands the caller may run. Without a word there are Programs, with
// one Commands.
type (
	CommandsResponse struct {
		Tools    []CommandTool `json:"tools"`
		Programs []Program     `json:"programs"`
		Commands []Command     `json:"commands"`
		// What there is besides, and is not listed.
		MoreCommands int `json:"more_commands"`
		MoreNodes    int `json:"more_nodes"`
	}
	// CommandTool is a tool that takes command text, and where the caller may use it.
	CommandTool struct {
		Tool  string   `json:"tool"`
		Nodes []string `json:"nodes"`
	}
	// Program counts the commands of a program by the tier that they have for the caller.
	Program struct {
		Program string `json:"program"`
		Green   int    `json:"green"`
		Yellow  int    `json:"yellow"`
		Red     int    `json:"red"`
	}
	Command struct {
		Command  string   `json:"command"`
		Takes    string   `json:"takes"`    // operands by kind, and options
		Tier     string   `json:"tier"`     // of a call, at least: some operands raise it
		Approval bool     `json:"approval"` // a person is asked
		Tools    []string `json:"tools"`
		Nodes    []string `json:"nodes"`
		Piped    bool     `json:"piped"` // only without a path: it reads what is piped into it
	}
)

// The input and the output of a call.
type (
	Input struct {
		ABI   int             `json:"abi"`
		Kind  string          `json:"kind"` // tool, resource or prompt
		Name  string          `json:"name"`
		Args  json.RawMessage `json:"args"`
		URI   string          `json:"uri,omitempty"`
		Call  CallInfo        `json:"call"`
		Nodes []Node          `json:"nodes"` // the nodes that the caller may see
		// Rendered holds, by argument, the host's rendering of command text for a guest. Where
		// there is one, policy lets a plugin run only that text, since it is what was decided.
		// Since ABI 1.1.
		Rendered map[string]string `json:"rendered,omitempty"`
		// LocalFiles are the files below the local_dir arguments of a tool that uploads, sorted by
		// path. Since ABI 1.4.
		LocalFiles []LocalFile `json:"local_files,omitempty"`
	}
	// LocalFile is a file of the principal's workspace as it was when the call was decided.
	LocalFile struct {
		Path   string `json:"path"`             // relative to the workspace
		SHA256 string `json:"sha256,omitempty"` // hexadecimal; "": it cannot be uploaded
	}
	CallInfo struct {
		ID         string `json:"id"`
		DeadlineMS int64  `json:"deadline_ms"` // since 1970
		Round      int    `json:"round"`       // 1, and 1 more after each answer to an ask
	}
	Node struct {
		Name    string `json:"name"`
		Cluster string `json:"cluster"`
		Default bool   `json:"default"`
	}
	// Error is the error of an output. Code is one word for programs.
	Error struct {
		Code       string `json:"code"`
		Message    string `json:"message"`
		Suggestion string `json:"suggestion,omitempty"`
	}
)

// PlannedStages is the parent of the directories that a planned stage returns. None of them exists.
const PlannedStages = "/planned/"

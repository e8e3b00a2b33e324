package sdk

import (
	"fmt"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

// MaxFetch is how many files [SFTPGetAll] takes.
const MaxFetch = abi.MaxMany

// Fetch is a file that is to be copied to the caller's workspace.
type Fetch struct {
	Path, Local string
	FileOptions
}

// Fetched is what became of a file. Err is that of [SFTPGet].
type Fetched struct {
	Written
	Err error
}

// fetches is a list of requests.
type fetches []abi.SFTPGet

// WriteJSON implements [codec.Value].
func (all fetches) WriteJSON(w *codec.Writer) {
	w.Open('[')
	for _, one := range all {
		w.Elem()
		one.WriteJSON(w)
	}
	w.Close(']')
}

// SFTPGetAll copies 1 to [MaxFetch] files from a node to the caller's workspace, several at the
// same time. Each is decided and journaled by itself: one may be refused or fail, and the others
// are copied. The results have the order of the files. The error says that none was tried.
func SFTPGetAll(c *Call, node string, files []Fetch) ([]Fetched, error) {
	ops := make(fetches, len(files))
	for i, f := range files {
		ops[i] = abi.SFTPGet{OnNode: onNode(node, f.Timeout), Path: f.Path, Local: f.Local,
			Overwrite: f.Overwrite, MaxBytes: f.MaxBytes, SHA256: f.SHA256}
	}
	var r abi.ManyResponse
	if _, err := do(c, imports.SFTPGet, ops, &r); err != nil {
		return nil, err
	}
	if len(r.Answers) != len(files) {
		return nil, &OpError{Code: "bad_response", Unknown: true,
			Message: fmt.Sprintf("the host answered %d of %d requests", len(r.Answers), len(files))}
	}
	out := make([]Fetched, len(files))
	for i, a := range r.Answers {
		one := func([]byte) (abi.Status, []byte) { return abi.Status(a.Status), a.Response }
		out[i].Written, out[i].Err = write(c, one, ops[i])
	}
	return out, nil
}

package sdk

import (
	"errors"
	"fmt"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/codec"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
)

// MaxFetch is how many files [SFTPGetAll] and [SFTPPutAll] take.
const MaxFetch = abi.MaxMany

// Fetch is a file of a node, and one of the caller's workspace, that is to be copied to the other.
type Fetch struct {
	Path, Local string
	FileOptions
}

// Fetched is what became of a file. Err is that of [SFTPGet] or [SFTPPut].
type Fetched struct {
	Written
	Err error
}

// NotBegun reports that the copy was not begun, since another one of its list did not succeed.
func (f Fetched) NotBegun() bool {
	op := (*OpError)(nil)
	return errors.As(f.Err, &op) && op.Code == abi.NotBegun
}

// requests is a list of requests. Its JSON is one array.
type requests []codec.Value

// WriteJSON implements [codec.Value].
func (all requests) WriteJSON(w *codec.Writer) {
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
	ops := make(requests, len(files))
	for i, f := range files {
		ops[i] = getOf(node, f.Path, f.Local, f.FileOptions)
	}
	return copyAll(c, imports.SFTPGet, ops)
}

// SFTPPutAll copies 1 to [MaxFetch] files from the caller's workspace to a node, several at the
// same time. In a call that is planned, has a plan or names a guest, they are copied one by one, in
// their order. Each is decided and journaled by itself. After one was refused, has failed or has an
// unknown outcome, no other begins: see [Fetched.NotBegun]. The results have the order of the
// files. The error says that none was tried.
func SFTPPutAll(c *Call, node string, files []Fetch) ([]Fetched, error) {
	ops := make(requests, len(files))
	for i, f := range files {
		ops[i] = putOf(node, f.Local, f.Path, f.FileOptions)
	}
	return copyAll(c, imports.SFTPPut, ops)
}

func copyAll(c *Call, imported imported, ops requests) ([]Fetched, error) {
	var r abi.ManyResponse
	if _, err := do(c, imported, ops, &r); err != nil {
		return nil, err
	}
	if len(r.Answers) != len(ops) {
		return nil, &OpError{Code: "bad_response", Unknown: true,
			Message: fmt.Sprintf("the host answered %d of %d requests", len(r.Answers), len(ops))}
	}
	out := make([]Fetched, len(ops))
	for i, a := range r.Answers {
		one := func([]byte) (abi.Status, []byte) { return abi.Status(a.Status), a.Response }
		out[i].Written, out[i].Err = write(c, one, ops[i])
	}
	return out, nil
}

// Package success knows what operations that are only planned return. It is for hosts: the SHA-256
// that it needs would make each plugin 160 KB larger.
package success

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Of returns the response of an operation that is only planned, as if it had succeeded: exit
// code 0 and no output, the bytes and the digest that a write would have. N numbers its stage, or
// the blob of a response that is saved.
func Of(op abi.Op, n int) any {
	switch op := op.(type) {
	case abi.Stage:
		return abi.StageResponse{Dir: fmt.Sprint(abi.PlannedStages, n)}
	case abi.SFTPWrite:
		data, _ := op.Bytes()
		sum := sha256.Sum256(data)
		return abi.WriteResponse{Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	case abi.SFTPGet:
		return abi.WriteResponse{Local: op.Local}
	case abi.BlobRead:
		return abi.WriteResponse{Local: op.Local}
	case abi.HTTPRequest:
		r := abi.HTTPResponse{Status: 200, Headers: [][2]string{}, Hops: []abi.Hop{}}
		if Saves(op) {
			r.Blob = fmt.Sprint("planned-blob-", n)
		}
		return r
	}
	entry, _ := abi.Lookup(op.Import())
	if entry.Response == nil {
		return struct{}{}
	}
	return entry.Response
}

// Saves reports whether an operation is a request whose response is saved whatever its size.
func Saves(op abi.Op) bool {
	h, is := op.(abi.HTTPRequest)
	return is && h.Save && h.MaxBytes == 0
}

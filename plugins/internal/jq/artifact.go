package jq

import (
	"slices"

	"github.com/caponier-mcp/caponier/sdk"
)

const (
	MaxDocument = 10 << 20 // bytes of an artifact
	piece       = 512 << 10
)

// Artifact returns a whole blob of the caller.
func Artifact(c *sdk.Call, blob string) ([]byte, error) {
	var all []byte
	for {
		if len(all)+piece > cap(all) { // to grow as append does would take half as much again
			all = slices.Grow(all, min(max(4*len(all), piece), MaxDocument+piece-len(all)))
		}
		r, err := sdk.BlobRead(c, blob, int64(len(all)), piece)
		if err != nil {
			return nil, err
		}
		if all = append(all, r.Data...); len(all) > MaxDocument {
			return nil, fail("too_large", "the artifact has more than %d bytes", MaxDocument)
		}
		if r.EOF {
			return all, nil
		}
		if len(r.Data) == 0 {
			return nil, fail("failed", "the artifact ended early")
		}
	}
}

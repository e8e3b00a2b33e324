package gen

import (
	"fmt"
	"reflect"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// ABI returns the files of the codec of package abi, by name: plugins write requests and notes, and
// read everything else.
func ABI() (map[string][]byte, error) {
	var write, read, listings []reflect.Type
	for _, v := range abi.Wire() {
		t := reflect.TypeOf(v).Elem()
		switch v.(type) {
		case *abi.Ask: // its schema may be any JSON: package sdk writes it
		case abi.Op, *abi.Progress:
			write = append(write, t)
		case *abi.CommandsResponse, *abi.UndoStepsResponse, *abi.SnapshotsResponse:
			listings = append(listings, t)
		default:
			read = append(read, t)
		}
	}
	files := map[string][]byte{}
	for name, f := range map[string]struct {
		kind  Kind
		types []reflect.Type
	}{
		"write_gen.go":    {Write, write},
		"read_gen.go":     {Read, read},
		"listings_gen.go": {Read, listings},
		"input_gen.go":    {Read, []reflect.Type{reflect.TypeFor[abi.Input]()}},
	} {
		src, err := File("abi", f.kind, f.types...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = src
	}
	return files, nil
}

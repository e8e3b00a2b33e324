package gen

import (
	"fmt"
	"go/format"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Wire returns every type that crosses between an operation and its plugin, each once.
func Wire() (all []reflect.Type) {
	add := func(v any) {
		if t := reflect.TypeOf(v); v != nil && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	for _, name := range abi.Operations() {
		op, _ := abi.Lookup(name)
		add(op.Example)
		add(op.Response)
	}
	for _, v := range []any{abi.Failure{}, abi.Progress{}, abi.ManyResponse{}} {
		add(v)
	}
	return all
}

// ABI returns the files that follow from package abi, by their names below its folder: the codec
// of its types (plugins write requests and notes, and read everything else), and the imports in
// each language.
func ABI() (map[string][]byte, error) {
	var write, read, listings []reflect.Type
	for _, t := range Wire() {
		switch reflect.Zero(t).Interface().(type) {
		case abi.Ask: // its schema may be any JSON: package sdk writes it
		case abi.Op, abi.Progress:
			write = append(write, t)
		case abi.CommandsResponse, abi.UndoStepsResponse, abi.SnapshotsResponse:
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
	return files, imports(files)
}

// An operation has two names in each language: that of its import, and that of its request.
type operation struct{ name, request string }

func (o operation) camel() string {
	words := strings.Split(o.name, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// imports adds the files that import the operations. Those of other languages are written by hand
// but for the lines between two marks.
func imports(files map[string][]byte) error {
	var all []operation
	for _, name := range abi.Operations() {
		op, _ := abi.Lookup(name)
		all = append(all, operation{name, reflect.TypeOf(op.Example).Name()})
	}
	each := func(line func(operation) string) (text string) {
		for _, o := range all {
			text += line(o) + "\n"
		}
		return text
	}
	goFile := func(name, constraint, body string) (err error) {
		files["../internal/imports/"+name], err = format.Source([]byte(Header + constraint +
			"\n\npackage imports\n\nimport (\n" + body))
		return err
	}
	const abiImport = "\"github.com/caponier-mcp/caponier/sdk/abi\"\n)\n\n"
	err := goFile("native_gen.go", "//go:build !wasip1", abiImport+each(func(o operation) string {
		return fmt.Sprintf("func %s(b []byte) (abi.Status, []byte) { return request(%q, b) }",
			o.request, o.name)
	}))
	if err == nil {
		err = goFile("wasip1_gen.go", "//go:build wasip1", "\"unsafe\"\n\n"+abiImport+
			"// Each import is called by one function, so that the linker keeps those that "+
			"are used.\n\n"+
			each(func(o operation) string {
				return fmt.Sprintf("//go:wasmimport caponier_v1 %s\n"+
					"func %[1]s(p unsafe.Pointer, n uint32) abi.Status\n", o.name)
			})+each(func(o operation) string {
			return fmt.Sprintf("func %s(b []byte) (abi.Status, []byte) { "+
				"return answer(%s(ptr(b), size(b))) }", o.request, o.name)
		}))
	}
	for name, line := range map[string]func(operation) string{
		"../c/caponier.h": func(o operation) string {
			return fmt.Sprintf("CAP_OPERATION(%s);", o.name)
		},
		"../rust/caponier.rs": func(o operation) string {
			return fmt.Sprintf("    pub fn %s(p: *const u8, n: u32) -> u32;", o.name)
		},
		"../assemblyscript/caponier.ts": func(o operation) string {
			return fmt.Sprintf("@external(\"caponier_v1\", %q) declare function "+
				"import_%[1]s(ptr: usize, len: u32): u32;\n"+
				"export function %[2]s(request: string): Response { const b = bytes(request); "+
				"return answer(import_%[1]s(changetype<usize>(b), b.byteLength)); }", o.name,
				o.camel())
		},
	} {
		if err == nil {
			files[name], err = between(name, each(line))
		}
	}
	return err
}

// between replaces what stands between the marks of a file.
func between(name, text string) ([]byte, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	const begin, end = "go generate ./abi writes the next lines.\n", "// Written by hand again.\n"
	head, rest, begins := strings.Cut(string(src), begin)
	old, tail, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return nil, fmt.Errorf("%s has no marks around what is generated", name)
	}
	indent := old[len(strings.TrimRight(old, " ")):]
	return []byte(head + begin + text + indent + end + tail), nil
}

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

var (
	timestamp = regexp.MustCompile(`"timestamp": "[^"]*"`)
	local     = regexp.MustCompile(`"name": "\./sdk",(\s*)"version": "\(devel\)"`)
	// of the tool itself, as it was compiled here
	hashes = regexp.MustCompile(`(?s),\s*"hashes": \[\s*\{\s*"alg": "MD5".*?\]`)
)

// sbom lists the modules that a program was built from, as the program itself says, in CycloneDX.
func (r *release) sbom(program string) []byte {
	bom := run(tool("cyclonedx-gomod", "bin", "-json", "-noserial", "-std", "-version",
		"v"+r.version, program))
	made := when.Format("2006-01-02T15:04:05Z")
	bom = timestamp.ReplaceAll(bom, []byte(`"timestamp": "`+made+`"`))
	bom = hashes.ReplaceAll(bom, nil)
	// the SDK is a module of its own in this repository, which the program is built with as it is
	const sdk = "github.com/caponier-mcp/caponier/sdk"
	bom = bytes.ReplaceAll(bom, []byte("golang/./sdk@(devel)"),
		[]byte("golang/"+sdk+"@v"+r.version))
	return local.ReplaceAll(bom, []byte(`"name": "`+sdk+`",$1"version": "v`+r.version+`"`))
}

// provenance is an in-toto statement with SLSA's predicate: what these files were made from, and
// how. It is as true as the signature of SHA256SUMS, which covers it.
func (r *release) provenance(arches string) []byte {
	encode := func(v any) string {
		data, err := json.Marshal(v)
		check(err)
		return string(data)
	}
	// a line for each subject, which can be read without a JSON parser: VERIFY.md
	slices.Sort(r.names)
	var subjects []string
	for _, f := range r.names {
		subjects = append(subjects, fmt.Sprintf(`    {"name": %q, "digest": {"sha256": "%x"}}`, f,
			sha256.Sum256(read(filepath.Join(r.out, f)))))
	}
	type digest map[string]string
	dependencies := []any{map[string]any{
		"uri":    "git+https://github.com/caponier-mcp/caponier",
		"digest": digest{"gitCommit": r.commit},
	}}
	for _, f := range []string{"go.sum", "keyless/go.sum", "packaging/tools/go.sum",
		"plugins.lock"} {
		dependencies = append(dependencies, map[string]any{"uri": "file:" + f,
			"digest": digest{"sha256": fmt.Sprintf("%x", sha256.Sum256(read(f)))}})
	}
	predicate := map[string]any{
		"buildDefinition": map[string]any{
			"buildType":            "https://github.com/caponier-mcp/caponier/packaging/dist@v1",
			"externalParameters":   map[string]string{"version": r.version, "arch": arches},
			"internalParameters":   map[string]string{"go": runtime.Version()},
			"resolvedDependencies": dependencies,
		},
		"runDetails": map[string]any{"builder": map[string]string{
			"id": "https://github.com/caponier-mcp/caponier/packaging/dist"}},
	}
	return fmt.Appendf(nil, `{
  "_type": "https://in-toto.io/Statement/v1",
  "subject": [
%s
  ],
  "predicateType": "https://slsa.dev/provenance/v1",
  "predicate": %s
}
`, strings.Join(subjects, ",\n"), encode(predicate))
}

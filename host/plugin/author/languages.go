package author

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/caponier-mcp/caponier/sdk/assemblyscript"
	"github.com/caponier-mcp/caponier/sdk/c"
	"github.com/caponier-mcp/caponier/sdk/rust"
)

//go:embed templates
var templates embed.FS

// Go is the language of New that needs a go.mod.
const Go = "go"

// language is what plugins in it begin with. The file plugin.SUFFIX is named after the plugin.
type language struct {
	folders     []string // of templates
	sdk         fs.FS    // files that are copied beside the plugin
	name, needs string
}

var languages = map[string]language{
	Go: {folders: []string{"plugin"}, sdk: fstest.MapFS{}},
	"c": {[]string{"common", "c"}, one("caponier.h", c.Header), "C",
		"It needs make, clang and lld."},
	"rust": {[]string{"common", "rust"}, one("caponier.rs", rust.Module), "Rust",
		"It needs make, lld and rustc with the target wasm32-unknown-unknown."},
	"assemblyscript": {[]string{"common", "assemblyscript"}, assemblyscript.Files,
		"AssemblyScript", "It needs make and npm."},
}

// Languages returns the names of the languages, sorted.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }

func languageOf(name string) (language, error) {
	l, known := languages[name]
	if !known {
		return l, fmt.Errorf("--lang %s: want %s", name, strings.Join(Languages(), ", "))
	}
	return l, nil
}

func one(name string, text []byte) fs.FS { return fstest.MapFS{name: {Data: text}} }

// sdkName is the file of the SDK that a README names.
func (l language) sdkName() string {
	names, _ := fs.Glob(l.sdk, "caponier.*")
	return strings.Join(names, "")
}

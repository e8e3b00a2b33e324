// Command jq is the plugin that filters JSON. It runs in the sandbox, so a filter that does not
// end, or that fills the memory, fails alone.
package main

import (
	"encoding/json"
	"runtime/debug"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/jq"
	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	// of the 64 MiB that a plugin has: near it, the collector works rather than let a call fail
	debug.SetMemoryLimit(48 << 20)
	sdk.Serve("jq", "1.0.0",
		sdk.NewTool(
			"jq_query",
			"Take what is wanted out of JSON with a jq filter, of an artifact "+
				"that another tool saved, or of JSON text. Short paths work too: "+
				".results.0 is .results[0], and "+
				".name,.email (at most 20) gives a list. Of a large document begin with a path, "+
				"map, select or a slice: sort_by needs all of it. Example: "+
				"{\"json\":\"{\\\"a\\\":[1,2]}\",\"jq_filter\":\".a.0\"}",
			sdk.Hints{
				Title:      "Query JSON",
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"blob_read"},
				Budget:     20 * time.Second,
				Runs:       "nothing on a node: the filter runs in the sandbox",
			},
			query,
		))
}

type queryIn struct {
	Filter   string `json:"jq_filter" minlen:"1" maxlen:"4096"`
	Artifact string `json:"artifact,omitempty" maxlen:"64"`
	JSON     string `json:"json,omitempty" doc:"JSON text; give this or artifact" maxlen:"1000000"`
	Max      int    `json:"max_result_size,omitempty" default:"500000" min:"1000" max:"1000000"`
}

// Docs describes what does not fit into a tag.
func (queryIn) Docs() map[string]string {
	return map[string]string{
		"jq_filter":       "A jq filter, or short paths separated by commas",
		"artifact":        "The id or URI of the artifact; give this or json",
		"max_result_size": "Bytes of the largest result",
	}
}

type queryOut struct {
	Result json.RawMessage `json:"result"`
}

// Text is the result alone.
func (o queryOut) Text() string { return string(o.Result) }

func query(c *sdk.Call, in queryIn) (queryOut, error) {
	if (in.Artifact == "") == (in.JSON == "") {
		return queryOut{}, &sdk.Error{Code: "bad_input", Message: "give either artifact or json"}
	}
	document := []byte(in.JSON)
	if in.Artifact != "" {
		var err error
		if document, err = jq.Artifact(c, in.Artifact); err != nil {
			return queryOut{}, err
		}
	}
	out, err := jq.Run(in.Filter, document, in.Max)
	return queryOut{out}, err
}

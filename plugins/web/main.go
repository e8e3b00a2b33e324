// Command web is the plugin that makes HTTP requests where the site lets them go.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	sdk.Serve(
		"web",
		"1.0.0",
		sdk.NewTool(
			"curl_execute",
			"Make one HTTP request, as curl would, to a host that this site lists; everything "+
				"else is refused. A long or binary answer is saved as an artifact, which jq_query "+
				"reads; "+
				"jq_filter takes what is wanted out of a JSON answer at once. A status such as "+
				"404 is an answer, not an error. Example: "+
				"{\"url\":\"https://api.example.com/v1/items\",\"jq_filter\":\".items.0.name\"}",
			sdk.Hints{
				Title:       "HTTP request",
				Destructive: true,
				OpenWorld:   true,
				Imports:     []string{"http_request", "blob_write", "blob_read"},
				Budget:      60 * time.Second,
				Runs: "nothing on a node: one HTTP request from this host, and one for " +
					"each redirect",
			},
			execute,
		),
		sdk.NewResource(
			"curl://docs/api",
			"curl-docs",
			"How curl_execute and jq_query are used: arguments, limits, filters and what is "+
				"refused.",
			"text/markdown",
			sdk.Hints{
				Title:  "curl_execute and jq_query",
				Budget: 5 * time.Second,
				Runs:   "nothing: a text",
			},
			docs,
		),
		sdk.NewPrompt(
			"api-test",
			"Test one endpoint of an HTTP API: ask it, look at status, headers and body, and say "+
				"whether it does what is expected.",
			sdk.Hints{
				Title:  "Test an API endpoint",
				Budget: 5 * time.Second,
				Runs:   "nothing: a text",
			},
			apiTest,
		),
		sdk.NewPrompt(
			"api-discovery",
			"Find out what an HTTP API offers, with reading requests only: its description, its "+
				"endpoints and what their answers look like.",
			sdk.Hints{
				Title:  "Discover an API",
				Budget: 5 * time.Second,
				Runs:   "nothing: a text",
			},
			apiDiscovery,
		),
	)
}

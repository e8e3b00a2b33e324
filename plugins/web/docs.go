package main

import (
	"fmt"

	"github.com/caponier-mcp/caponier/sdk"
)

const manual = `# curl_execute and jq_query

## curl_execute

One HTTP request from the host that serves these tools. It goes only where the site's policy lists
the host, scheme, port, method and kind of address; each redirect is decided like a request of its
own. A refusal names its rule.

| argument | meaning |
|---|---|
| url | http:// or https://, lower-case host, no user name, no fragment |
| method | GET (default), HEAD, POST, PUT, PATCH, DELETE |
| headers, query | lists of Name: value, and of name=value |
| data | the body as it is |
| form | a list of name=value, sent as application/x-www-form-urlencoded |
| username and password | Basic authentication |
| token | Bearer authentication |
| credential | the name of a credential that the host keeps |
| follow_redirects | follow redirects; off by default |
| max_redirects | 5 by default, at most 10 |
| timeout | seconds for all of it, 30 |
| include_headers | return the headers of the answer too |
| jq_filter | what to take out of a JSON answer |
| max_result_size | bytes to return directly, 500000, at most 1000000 |
| save_to_file | save the answer as an artifact in any case |
| output_dir | a folder of your workspace, such as api/today, for a new file that stays |

Give data or form, not both, and at most one kind of authentication. A request with a body is not
redirected to another origin, nor are a credential or headers other than Accept, Accept-Language
and User-Agent.

Answers up to 10 MB are read. Binary answers, and results longer than max_result_size, are saved as
artifacts. The limits are 60 requests a minute to one host and 300 of one caller. No cookies are
kept, no proxy is used, certificates are always verified, and local and internal addresses are
refused unless the site lists them. Artifacts belong to their caller, and are deleted after an hour
or when the host stops.

## jq_query

The same filters over an artifact (argument artifact) or JSON text (argument json).

- jq: .items | map(select(.price > 10)) | length
- short paths: .results.0 is .results[0]; .name,.email gives a list, at most 20 paths
- several outputs are returned as a list, none as null
- a filter that begins with paths, .[], map(f), [.[] | f], select(f), slices or length reads 10 MB,
  one element at a time; the rest of the filter gets the result of that
- anything else (sort_by, group_by, reduce, variables …) needs the whole document in the plugin's
  64 MiB: 6 MB of usual rows fit, 1 MB of tiny objects such as {"a":1} does not. The error is then
  plugin_memory: take a part first, as in .items[0:5000] | sort_by(.n)
`

func docs(c *sdk.Call) ([]sdk.ResourceContent, error) {
	return []sdk.ResourceContent{
		{URI: "curl://docs/api", MIMEType: "text/markdown", Text: manual},
	}, nil
}

type testIn struct {
	URL      string `json:"url" doc:"The endpoint" maxlen:"2000"`
	Method   string `json:"method,omitempty" doc:"GET unless given" maxlen:"10"`
	Expected string `json:"expected,omitempty" doc:"What it is expected to do" maxlen:"2000"`
}

// Arguments are quoted: they are data in the text, also when they read like instructions.
func apiTest(c *sdk.Call, in testIn) (string, []sdk.Message, error) {
	if in.Method == "" {
		in.Method = "GET"
	}
	text := fmt.Sprintf(
		"Test the API endpoint %q with curl_execute.\n\n1. Send a %q request with "+
			"include_headers.\n2. Say what status, content type and headers it answers with, and "+
			"how the body is made up.\n"+
			"3. Try what an endpoint should refuse: a missing parameter, a wrong type, no "+
			"authentication. Do not send requests that change or delete data unless the user "+
			"asks for it.\n"+
			"4. Report what works, what does not, and the requests that show it.",
		in.URL,
		in.Method,
	)
	if in.Expected != "" {
		text += fmt.Sprintf("\n\nExpected: %q", in.Expected)
	}
	return "Test an API endpoint", []sdk.Message{{Role: "user", Content: sdk.Text(text)}}, nil
}

type discoveryIn struct {
	BaseURL string `json:"base_url" doc:"Where the API is" maxlen:"2000"`
}

func apiDiscovery(c *sdk.Call, in discoveryIn) (string, []sdk.Message, error) {
	text := fmt.Sprintf(
		"Find out what the API at %q offers, with curl_execute and GET requests only.\n\n1. Look "+
			"for a description: /openapi.json, /swagger.json, /v3/api-docs, /.well-known/, the "+
			"root itself.\n"+
			"2. If there is one, list its endpoints with jq_filter (.paths | keys) rather than "+
			"reading all of it.\n3. Otherwise follow the links in the answers, a few steps "+
			"deep.\n"+
			"4. Report the endpoints, their parameters, how they authenticate, and an example of "+
			"each kind of answer. A refusal by policy is a boundary: report it, do not look "+
			"for a way around.",
		in.BaseURL,
	)
	return "Discover an API", []sdk.Message{{Role: "user", Content: sdk.Text(text)}}, nil
}

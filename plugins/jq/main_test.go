package main

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

func TestQuery(t *testing.T) {
	big := `{"rows":[` + strings.Repeat(`{"name":"a row of it"},`, 60_000) + `{"name":"the last"}]}`
	for name, tt := range map[string]struct{ args, want, code string }{
		"inline JSON": {args: `{"json":"{\"a\":[1,2]}","jq_filter":".a.1"}`, want: "2"},
		"a list of paths": {args: `{"json":"{\"a\":1,\"b\":2}","jq_filter":".a,.b,.c"}`,
			want: "[1,2,null]"},
		"an artifact in " +
			"pieces": {args: `{"artifact":"blob://big","jq_filter":".rows[-1].name"}`,
			want: `"the last"`},
		"neither document": {args: `{"jq_filter":"."}`, code: "bad_input"},
		"both documents": {args: `{"jq_filter":".","json":"1","artifact":"big"}`,
			code: "bad_input"},
		"an artifact of somebody else": {args: `{"jq_filter":".","artifact":"other"}`,
			code: "not_found"},
		"a filter that is none": {args: `{"json":"{}","jq_filter":".a["}`,
			code: "bad_filter"},
		"an artifact that is no JSON": {args: `{"artifact":"html","jq_filter":".a"}`,
			code: "not_json"},
		"a result over the limit of the " +
			"arguments": {args: `{"artifact":"big","jq_filter":".rows","max_result_size":1000}`,
			code: "too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			h := sdktest.New(t)
			h.BlobRead = func(blob string, offset, max int64) (sdk.ReadResult, error) {
				body, ok := map[string]string{"big": big, "blob://big": big, "html": "<html>"}[blob]
				if !ok {
					return sdk.ReadResult{}, &sdk.OpError{
						Code:    "not_found",
						Message: "there is no such blob",
					}
				}
				end := min(int64(len(body)), offset+max)
				return sdk.ReadResult{
					Data: []byte(body[offset:end]),
					EOF:  end == int64(len(body)),
				}, nil
			}
			out, err := h.Call("jq_query", tt.args)
			switch {
			case err != nil:
				t.Fatal(err)
			case tt.code != "" && (out.Error == nil || out.Error.Code != tt.code):
				t.Errorf("error %+v, want code %s", out.Error, tt.code)
			case tt.code == "" && (out.Error != nil || out.Text != tt.want ||
				string(out.Structured) != `{"result":`+tt.want+`}`):
				t.Errorf("got %s %s %+v, want %s", out.Text, out.Structured, out.Error, tt.want)
			}
		})
	}
}

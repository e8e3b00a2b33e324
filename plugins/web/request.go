package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/plugins/internal/jq"
	"github.com/caponier-mcp/caponier/sdk"
)

type curlIn struct {
	URL        string   `json:"url" target:"url" maxlen:"8192"`
	Method     string   `json:"method" enum:"GET,HEAD,POST,PUT,PATCH,DELETE" default:"GET"`
	Headers    []string `json:"headers,omitempty" maxlen:"8192" maxitems:"64"`
	Query      []string `json:"query,omitempty" maxlen:"4096" maxitems:"64"`
	Data       string   `json:"data,omitempty" maxlen:"1000000"`
	Form       []string `json:"form,omitempty" maxlen:"65536" maxitems:"256"`
	Username   string   `json:"username,omitempty" maxlen:"256"`
	Password   string   `json:"password,omitempty" doc:"For HTTP Basic authentication" maxlen:"256"`
	Token      string   `json:"token,omitempty" doc:"A bearer token" maxlen:"4096"`
	Credential string   `json:"credential,omitempty" maxlen:"64"`
	UserAgent  string   `json:"user_agent,omitempty" doc:"The User-Agent header" maxlen:"256"`
	Follow     bool     `json:"follow_redirects,omitempty" default:"false"`
	MaxHops    int      `json:"max_redirects,omitempty" default:"5" min:"1" max:"10"`
	Timeout    int      `json:"timeout,omitempty" default:"30" min:"1" max:"50"`
	ShowHead   bool     `json:"include_headers,omitempty" default:"false"`
	Filter     string   `json:"jq_filter,omitempty" maxlen:"4096"`
	Max        int      `json:"max_result_size,omitempty" default:"500000" min:"1000" max:"1000000"`
	Save       bool     `json:"save_to_file,omitempty" default:"false"`

	Dir string `json:"output_dir,omitempty" target:"local_path" pattern:"^\\w(/?\\w|[.-]){0,199}$"`
}

// Docs describes what does not fit into a tag.
func (curlIn) Docs() map[string]string {
	return map[string]string{
		"url":     "http:// or https://, without user name or fragment",
		"method":  "What to do there",
		"headers": "Headers to send, each as Name: value",
		"query":   "Parameters to add to the URL, each as name=value, not encoded",
		"data":    "The body, as it is; give this or form",
		"form": "The body as application/x-www-form-urlencoded, each field as name=value, not " +
			"encoded",
		"username": "For HTTP Basic authentication, with password",
		"credential": "The name of a credential that the host keeps and adds: nobody else " +
			"sees it",
		"follow_redirects": "Follow redirects, each decided like a request of its own",
		"max_redirects":    "Redirects to follow at most",
		"timeout":          "Seconds for all of it",
		"include_headers":  "Give the headers of the answer too",
		"jq_filter": "What to take out of a JSON answer: a jq filter, or short paths such as " +
			".items.0.name,.total",
		"max_result_size": "Bytes of a result to give directly; a longer one is saved as an " +
			"artifact",
		"save_to_file": "Save the answer as an artifact in any case",
		"output_dir": "A folder of your workspace, relative to it: the answer is saved in any " +
			"case, and as a new file in there too",
	}
}

type hop struct {
	Status int    `json:"status"`
	URL    string `json:"url"`
}

type header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type curlOut struct {
	Status   int      `json:"status" doc:"HTTP status of the last answer"`
	Type     string   `json:"content_type" doc:"Media type of the answer"`
	Bytes    int64    `json:"bytes" doc:"Length of the answer's body"`
	Headers  []header `json:"headers,omitempty" doc:"Headers of the answer"`
	Hops     []hop    `json:"redirects" doc:"Redirects that were followed"`
	Body     string   `json:"body,omitempty" doc:"The body, or what the filter took out of it"`
	Artifact string   `json:"artifact,omitempty"`
	File     string   `json:"file,omitempty" doc:"Where it was saved in your workspace"`
	Planned  bool     `json:"planned,omitempty" doc:"It was not sent, and has no answer"`
}

// Docs describes what does not fit into a tag.
func (curlOut) Docs() map[string]string {
	return map[string]string{
		"artifact": "Where the result was saved; jq_query reads it",
	}
}

func (o curlOut) Text() string {
	var b strings.Builder
	if o.Planned {
		return "The request would be sent. What the server answers is not known before."
	}
	fmt.Fprintf(&b, "HTTP %d %s, %d bytes\n", o.Status, o.Type, o.Bytes)
	for _, h := range o.Hops {
		fmt.Fprintf(&b, "redirected with %d from %s\n", h.Status, h.URL)
	}
	for _, h := range o.Headers {
		fmt.Fprintf(&b, "%s: %s\n", h.Name, h.Value)
	}
	if o.Artifact != "" {
		fmt.Fprintf(&b, "saved as artifact %s\n", o.Artifact)
	}
	if o.File != "" {
		fmt.Fprintf(&b, "saved in your workspace as %s\n", o.File)
	}
	if o.Body != "" {
		b.WriteString("\n" + o.Body)
	}
	return b.String()
}

func bad(format string, args ...any) error {
	return &sdk.Error{Code: "bad_input", Message: fmt.Sprintf(format, args...)}
}

// build returns the request for the arguments. The host checks the headers when it sends them.
func build(in curlIn) (sdk.Request, error) {
	q := sdk.Request{
		Method:     in.Method,
		URL:        in.URL,
		Credential: in.Credential,
		Timeout:    time.Duration(in.Timeout) * time.Second,
		Body:       []byte(in.Data),
		Save:       true,
		MaxBytes:   int64(in.Max),
	}
	if in.Follow {
		q.MaxHops = in.MaxHops
	}
	if in.Save && in.Filter == "" {
		q.MaxBytes = 0
	}
	if len(in.Query) > 0 {
		params, err := encoded("query", in.Query)
		if err != nil {
			return q, err
		}
		sep := "?"
		if strings.Contains(in.URL, "?") {
			sep = "&"
		}
		q.URL += sep + params
	}
	if len(in.Form) > 0 {
		if in.Data != "" {
			return q, bad("give either data or form")
		}
		body, err := encoded("form", in.Form)
		if err != nil {
			return q, err
		}
		q.Body = []byte(body)
	}
	if len(q.Body) > 0 && (in.Method == "GET" || in.Method == "HEAD") {
		return q, bad("a %s request has no body: say method POST, PUT or PATCH", in.Method)
	}
	var err error
	q.Headers, err = headersOf(in)
	return q, err
}

// headersOf returns the headers sorted by name. A header that is given twice is an error.
func headersOf(in curlIn) ([][2]string, error) {
	var headers [][2]string
	for _, h := range in.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, bad("headers: %.40q is not Name: value", h)
		}
		headers = append(headers, [2]string{name, strings.Trim(value, " ")})
	}
	if in.UserAgent != "" {
		headers = append(headers, [2]string{"User-Agent", in.UserAgent})
	}
	if len(in.Form) > 0 {
		headers = append(headers, [2]string{"Content-Type", "application/x-www-form-urlencoded"})
	}
	auth, err := authorization(in)
	if err != nil {
		return nil, err
	}
	if auth != "" {
		headers = append(headers, [2]string{"Authorization", auth})
	}
	seen := map[string]bool{}
	for _, h := range headers {
		key := strings.ToLower(h[0])
		if seen[key] {
			return nil, bad("the header %s is given twice", h[0])
		}
		seen[key] = true
	}
	slices.SortFunc(headers, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return headers, nil
}

// authorization returns the Authorization header, or "" without user name, password and token. At
// most one way to authenticate may be given.
func authorization(in curlIn) (string, error) {
	basic, ways := in.Username != "" || in.Password != "", 0
	for _, given := range []bool{basic, in.Token != "", in.Credential != ""} {
		if given {
			ways++
		}
	}
	switch {
	case basic && (in.Username == "" || strings.Contains(in.Username, ":")):
		return "", bad("username is missing, or has a colon")
	case ways > 1:
		return "", bad("give one of username and password, token, credential")
	case basic:
		pair := in.Username + ":" + in.Password
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)), nil
	case in.Token != "":
		return "Bearer " + in.Token, nil
	}
	return "", nil
}

// encoded returns the fields in their order, percent-encoded; names may repeat.
func encoded(what string, fields []string) (string, error) {
	var out []string
	for _, f := range fields {
		name, value, ok := strings.Cut(f, "=")
		if !ok || name == "" {
			return "", bad("%s: %.40q is not name=value", what, f)
		}
		out = append(out, url.QueryEscape(name)+"="+url.QueryEscape(value))
	}
	return strings.Join(out, "&"), nil
}

func execute(c *sdk.Call, in curlIn) (curlOut, error) {
	in.Save = in.Save || in.Dir != ""
	q, err := build(in)
	if err != nil {
		return curlOut{}, err
	}
	r, err := sdk.HTTPRequest(c, q)
	if err != nil {
		return curlOut{}, err
	}
	if r.Planned {
		return planned(c, in, r)
	}
	out, body := describe(in, r), r.Body
	if in.Filter != "" {
		if body, err = filter(c, in.Filter, r, out); err != nil {
			return curlOut{}, err
		}
		out.Artifact, out.Type = "", "application/json"
	}
	if out.Artifact != "" {
		return out, out.copy(c, in)
	}
	if len(body) == 0 {
		return out, nil
	}
	if in.Save && in.Filter != "" || len(body) > in.Max || !utf8.Valid(body) ||
		slices.Contains(body, 0) {
		b, err := sdk.BlobWrite(c, "response", out.Type, body, 0)
		if err != nil {
			return curlOut{}, err
		}
		out.Artifact = b.Blob
		return out, out.copy(c, in)
	}
	out.Body = string(body)
	return out, nil
}

// planned returns the result of a request that was not sent. What a filter makes of its answer is
// another artifact, for which an empty one stands.
func planned(c *sdk.Call, in curlIn, r sdk.Response) (curlOut, error) {
	out := curlOut{Hops: []hop{}, Planned: true}
	if in.Dir == "" {
		return out, nil
	}
	artifact := r.Blob
	if in.Filter != "" {
		b, err := sdk.BlobWrite(c, "response", "application/json", nil, time.Second)
		if err != nil {
			return curlOut{}, err
		}
		artifact = b.Blob
	}
	_, err := sdk.BlobCopy(c, artifact, in.file(artifact, ""))
	return out, err
}

// describe returns the result without the body.
func describe(in curlIn, r sdk.Response) curlOut {
	out := curlOut{Status: r.Status, Type: "application/octet-stream", Bytes: r.Bytes,
		Hops: []hop{}, Artifact: r.Blob}
	for _, h := range r.Hops {
		out.Hops = append(out.Hops, hop(h))
	}
	for _, h := range r.Headers {
		if strings.EqualFold(h[0], "Content-Type") {
			if t, _, err := mime.ParseMediaType(h[1]); err == nil {
				out.Type = t
			}
		}
		if in.ShowHead {
			out.Headers = append(out.Headers, header{h[0], h[1]})
		}
	}
	return out
}

// filter runs the jq filter over the body, which is in the artifact if there is one.
func filter(c *sdk.Call, text string, r sdk.Response, out curlOut) ([]byte, error) {
	body := r.Body
	if r.Blob != "" {
		var err error
		if body, err = jq.Artifact(c, r.Blob); err != nil {
			return nil, err
		}
	}
	filtered, err := jq.Run(text, body, 1<<20)
	if e := (*sdk.Error)(nil); errors.As(err, &e) && e.Code == "not_json" {
		e.Message = fmt.Sprintf("the answer with status %d is %s: %s", r.Status, out.Type,
			e.Message)
	}
	return filtered, err
}

// endings are those of files, by what is in them.
var endings = map[string]string{"application/json": ".json", "text/html": ".html",
	"text/plain": ".txt", "text/csv": ".csv", "application/xml": ".xml", "text/xml": ".xml"}

// file is where an answer is saved: in the folder that the caller named, under the artifact's own
// name, so that it is unique. What a request that changes something is answered with is not known
// when it is planned, so that its address says how the name ends.
func (in curlIn) file(artifact, kind string) string {
	end := endings[kind]
	if in.Filter != "" {
		end = ".json"
	} else if in.Method != "GET" && in.Method != "HEAD" {
		end = ""
		if u, err := url.Parse(in.URL); err == nil {
			for _, known := range endings {
				if path.Ext(u.Path) == known {
					end = known
				}
			}
		}
	}
	return in.Dir + "/response-" + artifact + cmp.Or(end, ".bin")
}

// copy copies the artifact to a new file in the folder of the workspace, if the caller named one.
func (o *curlOut) copy(c *sdk.Call, in curlIn) error {
	if in.Dir == "" {
		return nil
	}
	name := in.file(o.Artifact, o.Type)
	if _, err := sdk.BlobCopy(c, o.Artifact, name); err != nil {
		return &sdk.Error{
			Code: "not_saved",
			Message: fmt.Sprintf(
				"the request was answered with status %d, and the answer saved as artifact %s, "+
					"but not as %s in the workspace: %v",
				o.Status,
				o.Artifact,
				name,
				err,
			),
			Suggestion: "Do not send the request again for this: read the artifact with " +
				"jq_query, " +
				"or tell your user.",
		}
	}
	o.File = name
	return nil
}

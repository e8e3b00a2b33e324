package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"mime"
	"net/url"
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

	Dir string `json:"output_dir,omitempty" target:"local_path" maxlen:"200" pattern:"^\\w([\\w.-]|/\\w)*$"`
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
}

// Docs describes what does not fit into a tag.
func (curlOut) Docs() map[string]string {
	return map[string]string{
		"artifact": "Where the result was saved; jq_query reads it",
	}
}

func (o curlOut) Text() string {
	var b strings.Builder
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

// build makes the request of the arguments. What a header may hold is for the host to say, which
// sends it.
func build(in curlIn) (q sdk.Request, err error) {
	q = sdk.Request{
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
	headers := map[string]string{}
	set := func(name, value string) {
		for have := range headers {
			if strings.EqualFold(have, name) {
				err = bad("the header %s is given twice", name)
			}
		}
		headers[name] = value
	}
	for _, h := range in.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return q, bad("headers: %.40q is not Name: value", h)
		}
		set(name, strings.Trim(value, " "))
	}
	if in.UserAgent != "" {
		set("User-Agent", in.UserAgent)
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
		set("Content-Type", "application/x-www-form-urlencoded")
	}
	ways := 0
	if in.Username != "" || in.Password != "" {
		ways++
		if in.Username == "" || strings.Contains(in.Username, ":") {
			return q, bad("username is missing, or has a colon")
		}
		set("Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(in.Username+":"+in.Password)))
	}
	if in.Token != "" {
		ways++
		set("Authorization", "Bearer "+in.Token)
	}
	if in.Credential != "" {
		ways++
	}
	if ways > 1 {
		return q, bad("give one of username and password, token, credential")
	}
	if err == nil && len(q.Body) > 0 && (in.Method == "GET" || in.Method == "HEAD") {
		err = bad("a %s request has no body: say method POST, PUT or PATCH", in.Method)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		q.Headers = append(q.Headers, [2]string{name, headers[name]})
	}
	return q, err
}

// encoded keeps the order, and what is there twice.
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
	out := curlOut{
		Status:   r.Status,
		Type:     "application/octet-stream",
		Bytes:    r.Bytes,
		Hops:     []hop{},
		Artifact: r.Blob,
	}
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
	body := r.Body
	if in.Filter != "" {
		out.Artifact = ""
		if r.Blob != "" {
			if body, err = jq.Artifact(c, r.Blob); err != nil {
				return curlOut{}, err
			}
		}
		filtered, err := jq.Run(in.Filter, body, 1<<20)
		if err != nil {
			if e, ok := err.(*sdk.Error); ok && e.Code == "not_json" {
				e.Message = fmt.Sprintf("the answer with status %d is %s: %s", r.Status, out.Type,
					e.Message)
			}
			return curlOut{}, err
		}
		body, out.Type = filtered, "application/json"
	}
	if out.Artifact != "" {
		return out, out.copy(c, in.Dir)
	}
	if len(body) == 0 {
		return out, nil
	}
	if (in.Save && in.Filter != "") || len(body) > in.Max || !utf8.Valid(body) ||
		strings.ContainsRune(string(body), 0) {
		b, err := sdk.BlobWrite(c, "response", out.Type, body, 0)
		if err != nil {
			return curlOut{}, err
		}
		out.Artifact = b.Blob
		return out, out.copy(c, in.Dir)
	}
	out.Body = string(body)
	return out, nil
}

// copy puts what was saved into a folder of the workspace as well, when one was asked for, under a
// name that no other call gives.
func (o *curlOut) copy(c *sdk.Call, dir string) error {
	if dir == "" {
		return nil
	}
	end := map[string]string{"application/json": ".json", "text/html": ".html",
		"text/plain": ".txt", "text/csv": ".csv", "application/xml": ".xml",
		"text/xml": ".xml"}[o.Type]
	name := dir + "/response-" + strings.ToLower(c.ID) + cmp.Or(end, ".bin")
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

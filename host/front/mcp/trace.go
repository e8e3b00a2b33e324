package mcp

import (
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// parentForm is version 00 of a traceparent. Later versions begin alike.
var parentForm = regexp.MustCompile(
	`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// traceparent returns the span of the client that a request names, in version 00: in its _meta, as
// MCP has it, or else in the header of that name. It returns "" for none and for one that is not
// valid, which W3C Trace Context, section 3.2.2, says to ignore. Nothing is decided on it.
func traceparent(req mcp.Request) string {
	text := ""
	if p := req.GetParams(); p != nil {
		text, _ = p.GetMeta()["traceparent"].(string)
	}
	if extra := req.GetExtra(); text == "" && extra != nil {
		text = extra.Header.Get("traceparent")
	}
	return parent(text)
}

func parent(text string) string {
	m := parentForm.FindStringSubmatch(text)
	if len(text) > 512 || m == nil || m[1] == "ff" || m[1] == "00" && m[5] != "" ||
		strings.Trim(m[2], "0") == "" || strings.Trim(m[3], "0") == "" {
		return ""
	}
	return "00-" + m[2] + "-" + m[3] + "-" + m[4]
}

package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/caponier-mcp/caponier/sdk"
)

const (
	maxInput  = 100 << 10 // bytes of system and prompt together
	maxFiles  = 5         // headers of pasted files
	maxCode   = 400       // lines that read like code
	codeShare = 0.6       // of all lines that are not empty
	maxLine   = 8000      // bytes of a line without a space: an encoded file
)

var (
	fileHeader = regexp.MustCompile(
		`^(diff --git a/|\+\+\+ [ab]/|Index: \S+\.\w+$|(#|//|--|=+|-+|\*+) ` +
			`*(File|Path|file|path): *\S+\.\w+|={3,} *\S+\.\w+ *={3,}$|-{3,} *\S+/\S+\.\w+ ` +
			`*-*$|<file( path| name)?=?.*>$|\x60{3}\w* *\S+\.\w+$)`,
	)
	codeLine = regexp.MustCompile(
		`([{};]|\) *[{:]|:=|=>|->)\s*$|` +
			`^\s*(import|package|func|def|class|return|if|for|while|const|let|var|` +
			`public|private|static|#include|use|from)\b.*[({;:="']`,
	)
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`)
)

// guard returns an error for text that should not leave in a prompt: too much of it, whole
// repositories, keys. It is a heuristic against accidents. What a call may reach is decided by the
// site's policy.
func guard(texts ...string) error {
	text := strings.Join(texts, "\n")
	if len(text) > maxInput {
		return refuse("input_too_large", "send the part that the question is about",
			"the text has %d bytes, the limit is %d", len(text), maxInput)
	}
	if privateKey.MatchString(text) {
		return refuse("input_secret", "take the key out", "the text holds a private key")
	}
	return pasted(text)
}

func refuse(code, suggestion, format string, args ...any) error {
	return &sdk.Error{Code: code, Message: "nothing was sent: " + fmt.Sprintf(format, args...),
		Suggestion: suggestion}
}

// pasted returns an error for text that looks like an encoded file, a repository or a code base.
func pasted(text string) error {
	files, code, lines := 0, 0, 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		lines++
		if len(line) > maxLine && !strings.ContainsAny(line, " \t") {
			return refuse("input_paste", "describe the file, or send the part that matters",
				"line %d has %d bytes without a space, as an encoded file has", lines, len(line))
		}
		if fileHeader.MatchString(line) {
			files++
		}
		if codeLine.MatchString(line) {
			code++
		}
	}
	part := "send the part that the question is about"
	if files > maxFiles {
		return refuse("input_paste", part,
			"it looks like a pasted repository: %d headers of files, at most %d pass", files,
			maxFiles)
	}
	if code > maxCode && float64(code) > codeShare*float64(lines) {
		return refuse("input_paste", part,
			"it looks like a pasted code base: %d of %d lines are code, at most %d pass", code,
			lines, maxCode)
	}
	return nil
}

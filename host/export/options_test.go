package export

import (
	"strings"
	"testing"
	"time"
)

func TestOptionsThatCannotWorkAreRefusedByTheirKey(t *testing.T) {
	one := func(s SinkOptions) Options { s.Name = "x"; return Options{Sinks: []SinkOptions{s}} }
	for want, o := range map[string]Options{
		"":                     one(SinkOptions{Kind: "opa", URL: "https://x.example/logs", Token: "t"}),
		" ":                    one(SinkOptions{Kind: "otlp", URL: "http://127.0.0.1:4318/v1/logs", Token: "t"}),
		"  ":                   one(SinkOptions{Kind: "syslog", URL: "tls://x.example:6514", CAFile: "ca"}),
		"   ":                  one(SinkOptions{Kind: "syslog", URL: "unix:///dev/log"}),
		"    ":                 one(SinkOptions{Kind: "journald"}),
		"export.every":         {Every: time.Millisecond},
		"export.sinks[0].name": {Sinks: []SinkOptions{{Name: "../x", Kind: "journald"}}},
		"is there twice": {Sinks: []SinkOptions{{Name: "x", Kind: "journald"},
			{Name: "x", Kind: "journald"}}},
		"are more than 8":         {Sinks: make([]SinkOptions, 9)},
		`kind: "" is not`:         one(SinkOptions{}),
		"needs a file, and no":    one(SinkOptions{Kind: "jsonl", URL: "https://x"}),
		"file: a sink of kind":    one(SinkOptions{Kind: "opa", URL: "https://x", File: "y"}),
		"max_bytes: 5 is not":     one(SinkOptions{Kind: "opa", URL: "https://x", MaxBytes: 5}),
		"holds a user":            one(SinkOptions{Kind: "opa", URL: "https://u:p@x"}),
		"syslog sends none":       one(SinkOptions{Kind: "syslog", URL: "unix:///dev/log", Token: "t"}),
		"are set together":        one(SinkOptions{Kind: "opa", URL: "https://x", CertFile: "c"}),
		"certificates are for":    one(SinkOptions{Kind: "opa", URL: "http://x", CAFile: "c"}),
		"such as https://logs":    one(SinkOptions{Kind: "opa", URL: "ftp://x"}),
		"such as https://coll":    one(SinkOptions{Kind: "otlp"}),
		"over https://, or to":    one(SinkOptions{Kind: "otlp", URL: "http://x.example", Token: "t"}),
		"unix:///PATH, or noth":   one(SinkOptions{Kind: "journald", URL: "unix://x"}),
		"unix:///PATH, tcp://":    one(SinkOptions{Kind: "syslog", URL: "udp://x:1"}),
		"HOST:PORT and nothing":   one(SinkOptions{Kind: "syslog", URL: "tcp://x"}),
		"export.sinks[0].url: is": one(SinkOptions{Kind: "opa", URL: "https://\x00hunter2"}),
	} {
		err := o.Validate()
		if strings.TrimSpace(want) == "" && err != nil || want == "" && err != nil {
			t.Errorf("%+v: %v", o, err)
		} else if strings.TrimSpace(want) != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		} else if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("tells the URL: %v", err)
		}
	}
}

package observe

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestALogHasLevelsAndTimesWithAZone(t *testing.T) {
	for _, c := range []struct {
		o    LogOptions
		want int // records of four
	}{{LogOptions{}, 3}, {LogOptions{Level: "debug"}, 4}, {LogOptions{Format: "json"}, 3},
		{LogOptions{Format: "json", Level: "warn"}, 2},
		{LogOptions{Format: "text", Level: "error"}, 1}} {
		if err := c.o.Validate(); err != nil {
			t.Fatalf("%+v: %v", c.o, err)
		}
		var out bytes.Buffer
		l := c.o.Logger(&out)
		l.Debug("one")
		l.Info("two")
		l.Warn("three")
		l.Error("four", "node", "a b\nc")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != c.want {
			t.Errorf("%+v: %q", c.o, lines)
		}
		last := lines[len(lines)-1]
		at := strings.TrimPrefix(strings.Fields(last)[0], "time=")
		if c.o.Format == "json" {
			var r struct{ Time, Level, Msg, Node string }
			if err := json.Unmarshal([]byte(last), &r); err != nil || r.Level != "ERROR" ||
				r.Msg != "four" || r.Node != "a b\nc" {
				t.Errorf("%s: %v", last, err)
			}
			at = r.Time
		} else if !strings.Contains(last, ` level=ERROR msg=four node="a b\nc"`) {
			t.Errorf("%s", last)
		}
		if when, err := time.Parse(time.RFC3339Nano, at); err != nil ||
			time.Since(when) > time.Hour {
			t.Errorf("the time of %s: %v", last, err)
		}
	}
}

func TestInvalidLogOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]LogOptions{
		`log.format: "xml" is neither text nor json`:                     {Format: "xml"},
		`log.level: "loud" is not debug, info, warn or error`:            {Level: "loud"},
		`log.level: "INFO" is not debug, info, warn or error`:            {Level: "INFO"},
		`log.level: "` + slog.LevelInfo.String() + `+1" is not debug, i`: {Level: "INFO+1"},
	} {
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

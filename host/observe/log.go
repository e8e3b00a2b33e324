package observe

import (
	"fmt"
	"io"
	"log/slog"
)

// LogOptions set the format and level of the log on standard error.
type LogOptions struct {
	// "text" is a line of key=value for each record, "json" an object; "" is text
	Format string `koanf:"format"`
	// "debug", "info", "warn" or "error": records below are left out; "" is info
	Level string `koanf:"level"`
}

// Validate reports a field that cannot be used, and what to write instead.
func (o LogOptions) Validate() error {
	if o.Format != "" && o.Format != "text" && o.Format != "json" {
		return fmt.Errorf("log.format: %q is neither text nor json", o.Format)
	}
	if _, ok := levels[o.Level]; !ok {
		return fmt.Errorf("log.level: %q is not debug, info, warn or error", o.Level)
	}
	return nil
}

var levels = map[string]slog.Level{"": slog.LevelInfo, "debug": slog.LevelDebug,
	"info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// Logger returns the log. Each record is one write, and has its time with the zone.
func (o LogOptions) Logger(to io.Writer) *slog.Logger {
	level := &slog.HandlerOptions{Level: levels[o.Level]}
	if o.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, level))
	}
	return slog.New(slog.NewTextHandler(to, level))
}

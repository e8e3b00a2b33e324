package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/export"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/spf13/cobra"
)

// lastExport is how long the end of a server waits for the sinks. What they do not take then, the
// next server sends.
const lastExport = 3 * time.Second

func exporter(c *config.Config) (*export.Exporter, error) {
	c.Export.Version = version
	x, err := export.New(c.Export, c.Audit.Dir)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", c.File, err))
	}
	return x, nil
}

// openExport makes the exporter. Once the journal is closed, it sends the last records.
func (h *host) openExport() (err error) {
	if h.export, err = exporter(h.cfg); h.export == nil {
		return err
	}
	h.closers = append(h.closers, func() {
		if !h.exports {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), lastExport)
		defer cancel()
		if err := h.export.Once(ctx); err != nil {
			slog.Warn("the last records were not exported; the next server sends them", "error",
				err)
		}
	})
	return nil
}

// exporting sends the journal while a server runs.
func (h *host) exporting(ctx context.Context) {
	if h.export != nil {
		h.exports = true
		h.background(ctx, h.export.Run)
	}
}

func (h *host) exportHealth() (all []observe.SinkHealth, failing int) {
	for _, s := range h.export.States() {
		all = append(all, observe.SinkHealth{Sink: s.Sink, Error: s.Error, Since: s.Since,
			Delivered: s.Delivered, BehindBytes: s.Behind})
		if s.Error != "" {
			failing++
		}
	}
	return all, failing
}

func (h *host) exportGauges() {
	for _, g := range []struct {
		name, help string
		of         func(export.State) float64
	}{
		{"caponier_export_events_total", "Records of the journal that a sink took.",
			func(s export.State) float64 { return float64(s.Events) }},
		{"caponier_export_failures_total", "Attempts that a sink failed.",
			func(s export.State) float64 { return float64(s.Failures) }},
		{"caponier_export_gaps_total", "Parts of the journal that were gone before they were " +
			"exported.", func(s export.State) float64 { return float64(s.Gaps) }},
		{"caponier_export_omitted_total", "Records sent without their input, which was too large.",
			func(s export.State) float64 { return float64(s.Omitted) }},
		{"caponier_export_dropped_total", "Records that the receiver said it dropped.",
			func(s export.State) float64 { return float64(s.Dropped) }},
		{"caponier_export_failing", "1 while a sink does not take the journal.",
			func(s export.State) float64 { return map[bool]float64{true: 1}[s.Error != ""] }},
		{"caponier_export_behind_bytes", "Bytes of the journal that a sink has not got.",
			func(s export.State) float64 { return float64(s.Behind) }},
	} {
		h.meter.Gauge(g.name, g.help, "sink", func(add func(float64, string)) {
			for _, s := range h.export.States() {
				if !s.Elsewhere {
					add(g.of(s), s.Sink)
				}
			}
		})
	}
}

func auditExport(g *global) *cobra.Command {
	var form string
	var since time.Duration
	cmd := &cobra.Command{
		Use: "export",
		Short: "Send to each [[export.sinks]] what it has not got of the journal, once (exit 1 " +
			"if one does not take it)",
		Long: "Send to each sink of [export] what it has not got of the journal, and end. A " +
			"server does the same all the time. With --print, write the whole journal to the " +
			"standard output instead, and leave the cursors of the sinks alone.",
		Args: cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			c.Export.Version = version
			if form != "" {
				return export.Print(v.out, form, c.Export, c.Audit.Dir, ago(since))
			}
			x, err := exporter(c)
			if err == nil && x == nil {
				err = usage(fmt.Errorf("%s has no [[export.sinks]]; --print jsonl writes the "+
					"journal to the standard output", c.File))
			}
			if err != nil {
				return err
			}
			failed := x.Once(v.ctx)
			all := x.States()
			return v.verdict(failed != nil, exitFailed, all, func(w io.Writer) {
				for _, s := range all {
					fmt.Fprintf(w, "%s: %d records taken, %d bytes of the journal left", s.Sink,
						s.Events, s.Behind)
					if s.Elsewhere {
						fmt.Fprint(w, "; a server that runs sends to it")
					}
					if s.Error != "" {
						fmt.Fprintf(w, "; %s", s.Error)
					}
					fmt.Fprintln(w)
				}
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&form, "print", "", "write the journal in this `FORM`: jsonl, opa or otlp, a line "+
		"for each record")
	f.DurationVar(&since, "since", 0, "with --print: only records of this time, such as 24h")
	return cmd
}

// emit adds a value to a gauge.
type emit = func(value float64, label string)

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/recording"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

func callCommand(g *global) *cobra.Command {
	verbose, record := 0, ""
	cmd := &cobra.Command{
		Use:   "call TOOL [JSON]",
		Short: "Call a tool from the terminal, as [cli] principal; policy decides as for clients",
		Args:  cobra.RangeArgs(1, 2),
		Example: `  caponier call proxmox_container_exec_command '{"vmid":101,"command":"uname -a"}'
  caponier call --json proxmox_list_containers`,
		RunE: g.does(func(v *verb) error {
			if level := slog.LevelInfo; verbose > 0 {
				if verbose > 1 {
					level = slog.LevelDebug
				}
				g.pluginLog = plaintext.NewLog(logOutput{g}, level)
			}
			if record != "" {
				return v.recorded(record)
			}
			return v.call(false)
		}),
	}
	cmd.Flags().StringVar(&record, "record", "", "write what the tool got for its operations to "+
		"`FILE`, as answers for plugin run; the file must not exist")
	cmd.Flags().CountVarP(&verbose, "verbose", "v", "show what the plugin logs and writes, and "+
		"the trace of a panic, line by line; twice: lines of level debug too")
	return cmd
}

func planCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "plan TOOL [JSON]",
		Short: "Show what a call would do above green, without doing it",
		Long: "plan runs a tool as [cli] principal. Its reads happen. Everything above green is " +
			"decided and listed, with its tier and with what undoes it, and is not done.",
		Args:    cobra.RangeArgs(1, 2),
		Example: `  caponier plan proxmox_stop_container '{"vmid":101}'`,
		RunE:    g.does(func(v *verb) error { return v.call(true) }),
	}
}

// call calls or plans the tool of a command line.
func (v *verb) call(plan bool) error {
	name, raw := v.args[0], []byte("{}")
	if len(v.args) == 2 {
		raw = []byte(v.args[1])
	}
	if string(raw) == "-" {
		var err error
		if raw, err = io.ReadAll(io.LimitReader(v.in, 2<<20)); err != nil {
			return err
		}
	}
	h, err := openHost(v.ctx, v.global, name)
	if err != nil {
		return err
	}
	defer h.Close()
	tool, err := h.lock().Tool(h.cfg.Plugin, name)
	if err != nil {
		return usage(err)
	}
	principal, err := h.cfg.Caller()
	if err != nil {
		return usage(err)
	}
	h.background(v.ctx, func(ctx context.Context) { // what is taken away ends a call here too
		h.engine.Follow(ctx, func(error) { _ = h.engine.Reload(ctx) })
	})
	a := h.door.Call(v.ctx, terms.Request{Source: "cli", Principal: principal, Tool: tool,
		Arguments: raw, Plan: plan, Progress: progressTo(os.Stderr), Current: h.current(tool)})
	// the call may be refused for another reason too, but this one remains
	if err := h.unusable(tool.Plugin.Digest); err != nil &&
		!errors.As(a.Err, new(*terms.PluginError)) {
		fmt.Fprintf(v.say, "caponier: plugin_unavailable: %v\n", err)
	}
	return report(v.out, v.say, a, v.json)
}

// recorded calls the tool, and writes what it got to a file, whatever came of the call.
func (v *verb) recorded(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usage(fmt.Errorf("--record: %w", err))
	}
	v.recorder = &recording.Recorder{}
	called := v.call(false)
	answers, left := v.recorder.Answers()
	_, err = f.Write(answers)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(called, fmt.Errorf("--record: %w", err))
	}
	for _, line := range left {
		fmt.Fprintf(v.say, "caponier: not recorded: %s\n", plaintext.Clean(line))
	}
	fmt.Fprintf(v.say, "caponier: recorded in %s, which holds what the nodes said\n", file)
	return called
}

// current returns the check that the gate makes before each decision of a call: its tool
// is still in the lock. What cannot be read has nothing in it.
func (h *host) current(t *terms.Tool) func(context.Context) error {
	return func(context.Context) error {
		file := h.cfg.Plugin.Lock
		if h.lock().Unchanged(file) {
			return nil
		}
		now, err := plugin.Load(file)
		if err != nil {
			return err
		}
		is, err := now.Tool(h.cfg.Plugin, t.Name)
		if err == nil && is.Plugin.Name != t.Plugin.Name {
			err = fmt.Errorf("%s is a tool of plugin %s now", t.Name, is.Plugin.Name)
		}
		return err
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/offline"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

// trial runs a tool of a module that is in no lock, without a host.
type trial struct {
	answers, site string // files
	plan          bool
	claims        bool // are checked by the rules of the lock, too
	verbose       int
}

// trialResult is what plugin run --json prints.
type trialResult struct {
	callResult
	Asked []offline.Asked `json:"asked"`
}

func pluginRun(g *global) *cobra.Command {
	var t trial
	cmd := &cobra.Command{
		Use:   "run FILE.wasm TOOL [JSON]",
		Short: "Run one tool of a module without configuration, lock, node or policy",
		Args:  cobra.RangeArgs(2, 3),
		Long: "Runs the tool in the sandbox. What it asks for is answered from --answers, a YAML " +
			"or JSON\nfile (docs/plugins.md), and reaches nothing else. An operation without an " +
			"answer fails,\nand is shown as what to add to the file; with --plan, commands above " +
			"green, writes and\nrequests without an answer are listed as a plan instead. Log " +
			"lines, output and the trace\nof a panic go to stderr.",
		Example: `  caponier plugin run build/hello.wasm hello_kernel --answers answers.yaml
  caponier plugin run --plan build/hello.wasm hello_reboot '{"vmid":101}'`,
		RunE: g.does(t.run),
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&t.plan, "plan", false,
		"list what the tool would do beyond what the answers give")
	return cmd
}

func (t *trial) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.answers, "answers", "", "the `FILE` that answers what the tool asks for")
	f.CountVarP(&t.verbose, "verbose", "v", "log lines of level debug, too")
	siteFlag(cmd, &t.site)
}

func (t *trial) run(v *verb) error {
	door, req, end, err := t.open(v)
	if err != nil {
		return err
	}
	defer end()
	req.Plan = t.plan
	a := door.Call(v.ctx, req)
	asked := append([]offline.Asked{}, door.Asked()...)
	if v.json {
		if err := plaintext.JSON(v.out, trialResult{resultOf(a), asked}); err != nil {
			return err
		}
		return codeFor(a)
	}
	describeAnswer(v.out, v.say, a)
	fmt.Fprint(v.say, plaintext.Clean(missing(asked)))
	return codeFor(a)
}

// missing shows the answers that a file lacks, as lines to add to it.
func missing(asked []offline.Asked) string {
	lacks := offline.Skeleton(asked)
	if lacks == "" {
		return ""
	}
	return "caponier: the answers have none for these operations; fill in and add:\n" + lacks
}

// open makes a door for the tool that the arguments name, and the request of its call.
func (t *trial) open(v *verb) (*offline.Door, terms.Request, func(), error) {
	fail := func(err error) (*offline.Door, terms.Request, func(), error) {
		return nil, terms.Request{}, nil, err
	}
	answers := &offline.Answers{}
	if t.answers != "" {
		text, err := readUpTo(t.answers, offline.MaxAnswers)
		if err != nil {
			return fail(usage(err))
		}
		if answers, err = offline.Parse(t.answers, text); err != nil {
			return fail(usage(err))
		}
	}
	tiers, err := load.Tiers(t.site)
	if err != nil {
		return fail(usage(err))
	}
	req := terms.Request{Source: "cli", Principal: terms.Principal{ID: "author", Auth: "config"},
		Arguments: []byte("{}"), Progress: progressTo(os.Stderr)}
	if len(v.args) == 3 {
		req.Arguments = []byte(v.args[2])
	}
	box, tool, err := t.load(v)
	if err != nil {
		return fail(err)
	}
	req.Tool = tool
	door := offline.New(offline.Options{Answers: answers, Runner: box, Tiers: tiers})
	return door, req, func() { _ = box.Close(context.WithoutCancel(v.ctx)) }, nil
}

func readUpTo(file string, max int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max+1))
}

// load describes the module in a process of its own, and puts it into a sandbox.
func (t *trial) load(v *verb) (*sandbox.Sandbox, *terms.Tool, error) {
	file, name := v.args[0], v.args[1]
	e, err := describe(v.ctx, file)
	if err == nil && t.claims {
		err = checkClaims(t.site, e)
	}
	if err != nil {
		return nil, nil, err
	}
	tools, err := e.Tools()
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(tools, func(t *terms.Tool) bool { return t.Name == name })
	if i < 0 {
		var names []string
		for _, t := range tools {
			names = append(names, t.Name)
		}
		return nil, nil, usage(fmt.Errorf("%s has no tool %q; it has %s", file, name,
			strings.Join(names, ", ")))
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	level := slog.LevelInfo
	if t.verbose > 0 {
		level = slog.LevelDebug
	}
	box, err := sandbox.New(v.ctx, sandbox.Options{CacheDir: moduleCache(), Warm: -1,
		Log: plaintext.NewLog(v.say, level)})
	if err != nil {
		return nil, nil, err
	}
	// the digest is of the file as it was described: another one is refused here
	if err := box.Add(e.Plugin, wasm, e.Imports); err != nil {
		_ = box.Close(context.WithoutCancel(v.ctx))
		return nil, nil, err
	}
	return box, tools[i], nil
}

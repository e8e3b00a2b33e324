package pvelab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// RunOnce runs one command against a lab's state directory, in this process, and answers its exit
// code. Several processes may do so at once, beside a serving lab too.
func RunOnce(
	ctx context.Context,
	o Options,
	node string,
	argv, env []string,
	in io.Reader,
	out, errw io.Writer,
) (int, error) {
	l, err := open(ctx, o)
	if err != nil {
		return 255, err
	}
	defer l.Close()
	// The plain reader keeps Close from waiting for a terminal that never ends.
	return l.run(ctx, node, argv, env, 0, struct{ io.Reader }{in}, out, errw), nil
}

// Install makes the state directory and writes pct, qm, pvesh, pvesm, pvecm and pvenode into dir:
// small scripts that run this program against that state, to stand behind a real sshd. o.NodeRoot
// is "/" there as a rule: push and pull then meet the files that the real SFTP server stores.
func Install(ctx context.Context, o Options, node, dir string) error {
	l, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer l.Close()
	self, err := ownProgram()
	if err != nil {
		return fmt.Errorf("pvelab: finding this program: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("pvelab: making %s: %w", dir, err)
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	flags := "--state " + quote(l.dir) + " --node " + quote(node)
	if o.Effects != "" {
		abs, err := filepath.Abs(o.Effects)
		if err != nil {
			return fmt.Errorf("pvelab: naming the effects file: %w", err)
		}
		flags += " --effects " + quote(abs)
	}
	if o.NodeRoot != "" {
		flags += " --root " + quote(o.NodeRoot)
	}
	if o.Latency > 0 {
		flags += " --latency " + o.Latency.String()
	}
	for _, name := range []string{"pct", "qm", "pvesh", "pvesm", "pvecm", "pvenode"} {
		text := fmt.Sprintf("#!/bin/sh\nexec %s run %s -- %s \"$@\"\n", quote(self), flags, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return fmt.Errorf("pvelab: writing the wrapper %s: %w", name, err)
		}
	}
	return nil
}

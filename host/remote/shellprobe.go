package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/caponier-mcp/caponier/host/gate"
)

// probeWords are words that shells which are not POSIX read differently inside single quotes: fish
// takes \\ and \' as escapes, csh expands ! and ends a word at a newline.
var probeWords = []string{
	`a\\b\'`,
	"c!d!!",
	"e\nf",
	`"$HOME"`,
	"`g`",
	"*",
	"~",
	"",
	"-n",
	"%s",
	"é",
}

const (
	probeCommand = `printf '<%s>' 'a\\b\'\''' 'c!d!!' 'e` + "\n" + `f' '"$HOME"' '` + "`g`" + `' '*' '~' '' '-n' '%s' 'é'`
	probeLimit   = 64 << 10
)

// posix makes sure, once for each connection, that the login shell reads quoted words exactly as
// they are. What it is called does not matter.
func (c *conn) posix(ctx context.Context) error {
	c.shellMu.Lock() // whoever holds it is under the watchdogs below
	defer c.shellMu.Unlock()
	if c.shellOK {
		return nil
	}
	n := c.n
	ctx, cancel := context.WithTimeout(ctx, n.r.opts.StepTimeout)
	defer cancel()
	ch, exits, err := c.open()
	if err != nil {
		return err
	}
	defer c.shut(ch, exits)
	e, err := c.start(ctx, ch, exits, command{text: probeCommand, max: probeLimit}, &pledge{})
	if op := (*gate.OpError)(nil); errors.As(err, &op) && op.Code == "lost" {
		// harmless, so that it may be tried again
		return fmt.Errorf("probing the login shell: %s", op.Message)
	} else if op != nil {
		return failed(op.Code, "probing the login shell on %s (the command itself was not sent): %s", n.opts.Name, op.Message)
	}
	var want bytes.Buffer
	for _, w := range probeWords {
		fmt.Fprintf(&want, "<%s>", w)
	}
	switch {
	case e.exit == 0 && bytes.Equal(e.stdout, want.Bytes()):
		c.shellOK = true
		return nil
	case bytes.HasSuffix(e.stdout, want.Bytes()):
		return failed(
			"shell_output",
			"the login shell of %s on %s prints %q before every command, so that no output could be believed; make its start-up file (~/.bashrc, ~/.zshenv) silent for commands",
			n.opts.User,
			n.opts.Name,
			clip(e.stdout[:len(e.stdout)-want.Len()]),
		)
	}
	return failed(
		"shell",
		"the login shell of %s on %s does not read quoted words as a POSIX shell does (exit %d, it printed %q, then %q): a command could become another one. Give the user /bin/sh, bash, dash, ksh "+
			"or zsh (chsh -s /bin/bash %s), or name another user in remote.nodes",
		n.opts.User,
		n.opts.Name,
		e.exit,
		clip(e.stdout),
		clip(e.stderr),
		n.opts.User,
	)
}

func clip(b []byte) []byte { return b[:min(len(b), 120)] }

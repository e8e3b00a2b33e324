package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
)

// probeWords are words that shells which are not POSIX read differently inside single quotes: fish
// takes \\ and \' as escapes, csh expands ! and ends a word at a newline.
var probeWords = []string{`a\\b\'`, "c!d!!", "e\nf", `"$HOME"`, "`g`", "*", "~", "", "-n", "%s",
	"é"}

const (
	probeCommand = `printf '<%s>' 'a\\b\'\''' 'c!d!!' 'e` + "\n" + `f' '"$HOME"' '` + "`g`" +
		`' '*' '~' '' '-n' '%s' 'é'`
	localeCommand = `'locale' 'charmap'` // as caponier-gate lists it
	probeLimit    = 64 << 10
)

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= 0x80 })
}

// ready makes sure, once for each connection, that its login shell does what a command needs.
func ready(ctx context.Context, c *conn.Conn, text string) error {
	c.Probed.Lock() // its holder is under the watchdogs of Open and start
	defer c.Probed.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.Node.Limits().StepTimeout)
	defer cancel()
	if !c.Probed.Shell {
		if err := probeShell(ctx, c); err != nil {
			return err
		}
		c.Probed.Shell = true
	}
	if !ascii(text) && !c.Probed.UTF8 {
		if err := probeLocale(ctx, c); err != nil {
			return err
		}
		c.Probed.UTF8 = true
	}
	return nil
}

// probe runs a harmless command, whose failure can be tried again.
func probe(ctx context.Context, c *conn.Conn, what, text string) (Ended, error) {
	s, err := c.Open()
	if err != nil {
		return Ended{}, err
	}
	defer s.Close()
	e, err := start(ctx, s, Command{Text: text, Max: probeLimit}, &effect.Pledge{})
	if op := (*terms.OpError)(nil); errors.As(err, &op) && op.Code == "lost" {
		return e, fmt.Errorf("probing %s: %s", what, op.Message)
	} else if op != nil {
		return e, effect.Failed(op.Code,
			"probing %s on %s (the command itself was not sent): %s", what,
			c.Node.Name, op.Message)
	}
	return e, err
}

// probeShell makes sure that the login shell reads quoted words exactly as they are, whatever it is
// called.
func probeShell(ctx context.Context, c *conn.Conn) error {
	e, err := probe(ctx, c, "the login shell", probeCommand)
	if err != nil {
		return err
	}
	var want bytes.Buffer
	for _, w := range probeWords {
		fmt.Fprintf(&want, "<%s>", w)
	}
	o := c.Node
	if e.Exit == 0 && bytes.Equal(e.Stdout, want.Bytes()) {
		return nil
	}
	if guard := GuardOf(e); guard != "" {
		return effect.Failed(NotPermitted, "no command runs on %s as %s: %s", o.Name, o.User, guard)
	}
	if printed, is := bytes.CutSuffix(e.Stdout, want.Bytes()); is {
		return effect.Failed("shell_output", "the login shell of %s on %s prints %q before every "+
			"command, so that no output could be believed; make its start-up file (~/.bashrc, "+
			"~/.zshenv) silent for commands", o.User, o.Name, Clip(printed))
	}
	return effect.Failed("shell",
		"the login shell of %s on %s does not read quoted words as a POSIX shell does (exit %d, "+
			"it printed %q, then %q): a command could become another one. Give the user /bin/sh, "+
			"bash, dash, ksh or zsh (usermod -s /bin/bash %s), or name another user in "+
			"remote.nodes", o.User, o.Name, e.Exit, Clip(e.Stdout), Clip(e.Stderr), o.User)
}

// probeLocale makes sure that programs which decode their arguments by the locale, as those in Perl
// do, find UTF-8. In another locale they replace every byte beyond ASCII, and a command would act
// on other names than those that were decided.
func probeLocale(ctx context.Context, c *conn.Conn) error {
	e, err := probe(ctx, c, "the locale", localeCommand)
	if err != nil {
		return err
	}
	charmap := strings.TrimSpace(string(Clip(e.Stdout)))
	if e.Exit == 0 && (charmap == "UTF-8" || charmap == "utf8") {
		return nil
	}
	o := c.Node
	remedy := "Add `AcceptEnv LANG LC_*` to /etc/ssh/sshd_config on the node and reload ssh, or " +
		"write LANG=C.UTF-8 to /etc/default/locale; then connect again"
	if guard := GuardOf(e); guard != "" {
		charmap, remedy = "not known", "Install the caponier-gate (and caponier.sudoers) of this "+
			"version on the node: it sets the locale and answers `locale charmap`"
	}
	return effect.Failed("locale",
		"the command holds characters beyond ASCII, and programs on %s would "+
			"read them as something else: the character set there is %q (exit %d), not UTF-8. "+
			"Nothing was sent. %s", o.Name, charmap, e.Exit, remedy)
}

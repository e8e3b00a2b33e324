package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
)

// needs is what a connection must be known to do before a session on it is used.
type needs struct {
	shell bool // read quoted words as they are
	utf8  bool // let programs read arguments beyond ASCII as they are
}

// probed is what is known of a connection. mu lets one probe run at a time.
type probed struct {
	mu    sync.Mutex
	knows needs
}

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

// ready makes sure, once for each connection, that it does what a command needs.
func (c *conn) ready(ctx context.Context, want needs) error {
	c.probed.mu.Lock() // its holder is under the watchdogs of open and start
	defer c.probed.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.n.r.opts.StepTimeout)
	defer cancel()
	if want.shell && !c.probed.knows.shell {
		if err := c.probeShell(ctx); err != nil {
			return err
		}
		c.probed.knows.shell = true
	}
	if want.utf8 && !c.probed.knows.utf8 {
		if err := c.probeLocale(ctx); err != nil {
			return err
		}
		c.probed.knows.utf8 = true
	}
	return nil
}

// probe runs a harmless command, whose failure can be tried again.
func (c *conn) probe(ctx context.Context, what, text string) (ended, error) {
	s, err := c.open()
	if err != nil {
		return ended{}, err
	}
	defer s.close()
	e, err := s.start(ctx, command{text: text, max: probeLimit}, &pledge{})
	if op := (*gate.OpError)(nil); errors.As(err, &op) && op.Code == "lost" {
		return e, fmt.Errorf("probing %s: %s", what, op.Message)
	} else if op != nil {
		return e, failed(op.Code, "probing %s on %s (the command itself was not sent): %s", what,
			c.n.opts.Name, op.Message)
	}
	return e, err
}

// probeShell makes sure that the login shell reads quoted words exactly as they are, whatever it is
// called.
func (c *conn) probeShell(ctx context.Context) error {
	e, err := c.probe(ctx, "the login shell", probeCommand)
	if err != nil {
		return err
	}
	var want bytes.Buffer
	for _, w := range probeWords {
		fmt.Fprintf(&want, "<%s>", w)
	}
	o := c.n.opts
	if e.exit == 0 && bytes.Equal(e.stdout, want.Bytes()) {
		return nil
	}
	if guard := guardOf(e); guard != "" {
		return failed(notPermitted, "no command runs on %s as %s: %s", o.Name, o.User, guard)
	}
	if printed, is := bytes.CutSuffix(e.stdout, want.Bytes()); is {
		return failed("shell_output", "the login shell of %s on %s prints %q before every "+
			"command, so that no output could be believed; make its start-up file (~/.bashrc, "+
			"~/.zshenv) silent for commands", o.User, o.Name, clip(printed))
	}
	return failed("shell", "the login shell of %s on %s does not read quoted words as a POSIX "+
		"shell does (exit %d, it printed %q, then %q): a command could become another one. Give "+
		"the user /bin/sh, bash, dash, ksh or zsh (usermod -s /bin/bash %s), or name another user "+
		"in remote.nodes", o.User, o.Name, e.exit, clip(e.stdout), clip(e.stderr), o.User)
}

// probeLocale makes sure that programs which decode their arguments by the locale, as those in Perl
// do, find UTF-8. In another locale they replace every byte beyond ASCII, and a command would act
// on other names than those that were decided.
func (c *conn) probeLocale(ctx context.Context) error {
	e, err := c.probe(ctx, "the locale", localeCommand)
	if err != nil {
		return err
	}
	charmap := strings.TrimSpace(string(clip(e.stdout)))
	if e.exit == 0 && (charmap == "UTF-8" || charmap == "utf8") {
		return nil
	}
	o := c.n.opts
	remedy := "Add `AcceptEnv LANG LC_*` to /etc/ssh/sshd_config on the node and reload ssh, or " +
		"write LANG=C.UTF-8 to /etc/default/locale; then connect again"
	if guard := guardOf(e); guard != "" {
		charmap, remedy = "not known", "Install the caponier-gate (and caponier.sudoers) of this "+
			"version on the node: it sets the locale and answers `locale charmap`"
	}
	return failed("locale", "the command holds characters beyond ASCII, and programs on %s would "+
		"read them as something else: the character set there is %q (exit %d), not UTF-8. "+
		"Nothing was sent. %s", o.Name, charmap, e.exit, remedy)
}

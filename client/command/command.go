// Package command is `caponier connect`: its flags, for each program that has it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caponier-mcp/caponier/client/connect"
	"github.com/caponier-mcp/caponier/client/oauth"
)

var _ connect.SignIn = (*oauth.SignIn)(nil)

// Connect is the command: where it reads and writes, and what its flags say.
type Connect struct {
	In        io.Reader
	Out, Say  io.Writer
	UserAgent string

	tokenFile, ca, clientID  string
	secretFile               string
	port                     int
	noBrowser, login, logout bool
}

// Flag is a flag of the command. To is a *string, a *bool or an *int.
type Flag struct {
	Name, Usage string
	To          any
}

// Flags returns the flags of the command.
func (c *Connect) Flags() []Flag {
	return []Flag{
		{"token-file", "the `FILE` with the token (default: $CAPONIER_TOKEN)", &c.tokenFile},
		{"ca", "a `FILE` with certificates in PEM to trust beside the system's", &c.ca},
		{"client-id", "without a token: the `ID` of a public client that is registered at the " +
			"provider (default: register one)", &c.clientID},
		{"client-secret-file", "the `FILE` with its secret, if it is no public client",
			&c.secretFile},
		{"redirect-port", "the `PORT` of its redirect URI http://127.0.0.1:PORT/callback " +
			"(default: any)", &c.port},
		{"no-browser", "open no browser: the URL to sign in at is printed", &c.noBrowser},
		{"login", "sign in now, and end", &c.login},
		{"logout", "forget what was signed in for, and end", &c.logout},
	}
}

// Run does what the flags say, with the host at a URL.
func (c *Connect) Run(ctx context.Context, url string) error {
	if c.logout {
		was, err := oauth.Forget("", url)
		if err == nil && !was {
			err = errors.New("nobody is signed in to " + url)
		}
		if err == nil {
			_, err = fmt.Fprintln(c.Say, "forgotten here; the provider can still list the sign-in")
		}
		return err
	}
	token, err := connect.Token(c.tokenFile)
	if err != nil {
		return err
	}
	o := connect.Options{URL: url, Token: token, CAFile: c.ca, In: c.In, Out: c.Out, Say: c.Say,
		UserAgent: c.UserAgent}
	if token == "" {
		t, err := connect.Transport(url, c.ca)
		if err != nil {
			return err
		}
		in := oauth.Options{URL: url, ClientID: c.clientID, Port: c.port, Say: c.Say, Transport: t,
			Open: oauth.Browser}
		if c.noBrowser {
			in.Open = nil
		}
		if c.secretFile != "" {
			if in.Secret, err = connect.Token(c.secretFile); err != nil {
				return err
			}
		}
		s, err := oauth.New(in)
		if err != nil {
			return err
		}
		if o.SignIn = s; c.login {
			return s.Login(ctx)
		}
	} else if c.login {
		return errors.New("--login: there is a token already (--token-file, $CAPONIER_TOKEN)")
	}
	return connect.Run(ctx, o)
}

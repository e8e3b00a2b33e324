package notify

import (
	"errors"
	"fmt"
	"net/http"
	netmail "net/mail"
	"net/url"
	"slices"
	"strings"
)

// Options describe one service that receives messages.
type Options struct {
	// Kind is slack, teams, telegram, ntfy, matrix or mail.
	Kind string `koanf:"kind"`
	// URL is the webhook of slack and teams, a secret there; the server of ntfy, matrix and
	// telegram (https://api.telegram.org if empty); smtp:// or smtps://HOST[:PORT] of mail. It is
	// https, or http on the loopback.
	URL string `koanf:"url" secret:"true"`
	// Token is the token of a bot, for telegram and matrix, and for ntfy if it needs one.
	Token string `koanf:"token" secret:"true"`
	// Channel is the chat of telegram, the room of matrix (!id:server), the topic of ntfy.
	Channel string `koanf:"channel"`
	// From, To, User and Password are for mail.
	From     string   `koanf:"from"`
	To       []string `koanf:"to"`
	User     string   `koanf:"user"`
	Password string   `koanf:"password" secret:"true"`
}

// needs lists the keys of each kind, in addition to its URL.
var needs = map[string][]string{"slack": nil, "teams": nil, "telegram": {"token", "channel"},
	"ntfy": {"channel"}, "matrix": {"token", "channel"}, "mail": {"from", "to"}}

var mayHave = map[string][]string{"ntfy": {"token"}, "mail": {"user", "password"}}

// Validate returns an error that names the key that is wrong. It holds no secret.
func (o Options) Validate() error {
	want, known := needs[o.Kind]
	if !known {
		return fmt.Errorf("kind: %q is not slack, teams, telegram, ntfy, matrix or mail", o.Kind)
	}
	for key, set := range map[string]bool{"token": o.Token != "", "channel": o.Channel != "",
		"from": o.From != "", "to": len(o.To) > 0, "user": o.User != "",
		"password": o.Password != ""} {
		switch needed := slices.Contains(want, key); {
		case needed && !set:
			return fmt.Errorf("%s: is missing for %s", key, o.Kind)
		case set && !needed && !slices.Contains(mayHave[o.Kind], key):
			return fmt.Errorf("%s: %s has none", key, o.Kind)
		}
	}
	if (o.User == "") != (o.Password == "") {
		return errors.New("user: is set together with password")
	}
	for _, a := range append(slices.Clone(o.To), o.From) {
		if p, err := netmail.ParseAddress(a); o.Kind == "mail" && (err != nil || p.Address != a) {
			return fmt.Errorf("to: %q is not an address such as ann@example.org", a)
		}
	}
	return o.place()
}

// place checks the URL.
func (o Options) place() error {
	u, err := url.Parse(o.server())
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("url: is missing, or is not a URL; a secret of mail goes to password")
	}
	switch {
	case o.Kind == "mail" && (u.Scheme != "smtp" && u.Scheme != "smtps" ||
		strings.Trim(u.Path, "/") != ""):
		return errors.New("url: want smtp://HOST:PORT or smtps://HOST:PORT")
	case o.Kind != "mail" && u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return errors.New("url: want https://, or http:// on the loopback")
	case slices.Contains([]string{"telegram", "ntfy", "matrix"}, o.Kind) &&
		(strings.Trim(u.Path, "/") != "" || u.RawQuery != ""):
		return errors.New("url: want only the server, such as https://ntfy.example.org; the " +
			"rest is channel and token")
	}
	return nil
}

func (o Options) server() string {
	if o.Kind == "telegram" && o.URL == "" {
		return "https://api.telegram.org"
	}
	return strings.TrimSuffix(o.URL, "/")
}

// open returns the service of valid options.
func (o Options) open() service {
	at := o.server()
	switch o.Kind {
	case "teams":
		return chat{method: http.MethodPost, url: o.URL, body: teams}
	case "telegram":
		return chat{method: http.MethodPost, url: at + "/bot" + url.PathEscape(o.Token) +
			"/sendMessage", body: telegram(o.Channel)}
	case "ntfy":
		return chat{method: http.MethodPost, url: at, token: o.Token, body: ntfy(o.Channel)}
	case "matrix":
		return chat{method: http.MethodPut, url: at, token: o.Token, body: matrix,
			path: matrixPath(o.Channel)}
	case "mail":
		u, _ := url.Parse(at) // which was checked
		return mail{at: u, user: o.User, password: o.Password, from: o.From, to: o.To}
	}
	return chat{method: http.MethodPost, url: o.URL, body: slack}
}

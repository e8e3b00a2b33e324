package export

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Options say where the journal is sent. The zero value sends it nowhere.
type Options struct {
	// Dir holds how far each sink has come; it is made with mode 0700.
	Dir string `koanf:"dir" path:"true"`
	// Every is how long a record waits for others before it is sent; 0 is 1s.
	Every time.Duration `koanf:"every"`
	// Instance names this host in what is sent; "" is the name of the machine.
	Instance string        `koanf:"instance"`
	Sinks    []SinkOptions `koanf:"sinks"`

	Version string `koanf:"-"` // of the host
}

// SinkOptions are one place that gets the journal.
type SinkOptions struct {
	Name string `koanf:"name"` // of its cursor and its metrics
	// Kind is opa (OPA's decision logs), otlp or otlp-traces (OpenTelemetry logs, or spans, over
	// HTTP), jsonl (a file of JSON lines), syslog (RFC 5424) or journald.
	Kind string `koanf:"kind"`
	// URL is http:// or https:// for opa and both of otlp, unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT
	// for syslog, and unix:///PATH or "" for journald.
	URL   string `koanf:"url"`
	File  string `koanf:"file"  path:"true"`   // of jsonl
	Token string `koanf:"token" secret:"true"` // bearer token of the former
	// CAFile has the certificates, in PEM, that are trusted instead of the system's. CertFile and
	// KeyFile are the client's own.
	CAFile   string `koanf:"ca_file"   path:"true"`
	CertFile string `koanf:"cert_file" path:"true"`
	KeyFile  string `koanf:"key_file"  path:"true"`
	// MaxBytes bounds what is sent at once: a compressed body, or one message. 0 is the default of
	// the kind.
	MaxBytes int `koanf:"max_bytes"`
}

const (
	journalSocket = "/run/systemd/journal/socket"
	minBytes      = 1024
	most          = 8 // sinks
)

// maxBytes are the defaults of MaxBytes. 32 KiB is OPA's own default, 8 KiB what rsyslog takes,
// and 128 KiB fits a socket buffer.
var maxBytes = map[string]int{"opa": 32 << 10, "otlp": 1 << 20,
	"otlp-traces": 1 << 20, "jsonl": 8 << 20,
	"syslog": 8 << 10, "journald": 128 << 10}

var sinkName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Validate returns an error that names the key that is wrong.
func (o Options) Validate() error {
	if o.Every < 0 || o.Every > 0 && o.Every < 100*time.Millisecond {
		return fmt.Errorf("export.every: %s is under 100ms", o.Every)
	}
	if len(o.Sinks) > most {
		return fmt.Errorf("export.sinks: %d are more than %d", len(o.Sinks), most)
	}
	seen := map[string]bool{}
	for i, s := range o.Sinks {
		at := fmt.Sprintf("export.sinks[%d]", i)
		switch {
		case !sinkName.MatchString(s.Name):
			return fmt.Errorf("%s.name: %q: want 1 to 32 of a-z 0-9 _ -", at, s.Name)
		case seen[s.Name]:
			return fmt.Errorf("%s.name: %q is there twice", at, s.Name)
		}
		seen[s.Name] = true
		if err := s.validate(); err != nil {
			return fmt.Errorf("%s.%w", at, err)
		}
	}
	return nil
}

func (s SinkOptions) validate() error {
	u, err := url.Parse(s.URL)
	if err != nil { // its text may hold a secret
		return errors.New("url: is not a URL")
	}
	web := s.Kind == "opa" || strings.HasPrefix(s.Kind, "otlp")
	tls := u.Scheme == "https" || u.Scheme == "tls"
	switch {
	case maxBytes[s.Kind] == 0:
		return fmt.Errorf("kind: %q is not opa, otlp, otlp-traces, jsonl, syslog or journald",
			s.Kind)
	case s.Kind == "jsonl" && (s.File == "" || s.URL != ""):
		return errors.New("file: a sink of JSON lines needs a file, and no url")
	case s.Kind != "jsonl" && s.File != "":
		return fmt.Errorf("file: a sink of kind %s has none; it has a url", s.Kind)
	case s.MaxBytes != 0 && (s.MaxBytes < minBytes || s.MaxBytes > 64<<20):
		return fmt.Errorf("max_bytes: %d is not between %d and %d", s.MaxBytes, minBytes, 64<<20)
	case u.User != nil:
		return errors.New("url: holds a user: write a secret as token")
	case s.Token != "" && !web:
		return fmt.Errorf("token: a sink of kind %s sends none", s.Kind)
	case (s.CertFile == "") != (s.KeyFile == ""):
		return errors.New("cert_file: a certificate and key_file are set together")
	case s.CAFile+s.CertFile != "" && !tls:
		return errors.New("ca_file: certificates are for https:// and tls://")
	}
	return s.place(u, web)
}

// place checks the URL.
func (s SinkOptions) place(u *url.URL, web bool) error {
	local := u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path)
	switch {
	case web && (u.Scheme != "http" && u.Scheme != "https" || u.Host == ""):
		return errors.New("url: want http:// or https://, with the whole path, such as " +
			map[string]string{"opa": "https://logs.example/logs",
				"otlp":        "https://collector.example/v1/logs",
				"otlp-traces": "https://collector.example/v1/traces"}[s.Kind])
	case web && s.Token != "" && u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("url: a token is sent over https://, or to this machine")
	case s.Kind == "journald" && s.URL != "" && !local:
		return errors.New("url: want unix:///PATH, or nothing for " + journalSocket)
	case s.Kind == "syslog" && u.Scheme == "unix" && !local,
		s.Kind == "syslog" && u.Scheme != "unix" && u.Scheme != "tcp" && u.Scheme != "tls":
		return errors.New("url: want unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT")
	case s.Kind == "syslog" && !local && (u.Port() == "" || u.Path != ""):
		return errors.New("url: want HOST:PORT and nothing behind it, such as " +
			"tls://logs.example:6514")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s SinkOptions) limit() int { return cmp.Or(s.MaxBytes, maxBytes[s.Kind]) }

// name is that of this host.
func (o Options) name() string { return cmp.Or(o.Instance, hostname()) }

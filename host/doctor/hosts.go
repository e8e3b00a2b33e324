package doctor

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
)

// ScannedKey is a key that a host shows. Nobody has checked whose it is: a person must compare the
// fingerprint on the host's own console.
type ScannedKey struct {
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"` // what host_key takes
	Line        string `json:"line"`        // for known_hosts
}

// Scan asks a host for its keys, one connection for each kind of key. It logs in nowhere. The error
// is nil when the host showed at least one.
func Scan(ctx context.Context, host string, port int) ([]ScannedKey, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	var keys []ScannedKey
	var errs error
	for _, algorithms := range remote.KeyKinds() {
		key, err := scan(ctx, addr, algorithms)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		keys = append(keys, ScannedKey{Type: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
			Line: knownhosts.Line([]string{addr}, key)})
	}
	if len(keys) > 0 {
		return keys, nil
	}
	return nil, fmt.Errorf("scanning %s: %w", addr, errs)
}

func scan(ctx context.Context, addr string, algorithms []string) (key ssh.PublicKey, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	seen := errors.New("seen")
	c, _, _, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User:              "nobody",
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, k ssh.PublicKey) error {
			key = k
			return seen // the key is proven before this is called; there is no reason to go on
		},
	})
	if err == nil {
		c.Close()
	}
	if key != nil {
		return key, nil
	}
	return nil, err
}

// sshBlock is a Host block of an OpenSSH client configuration: its patterns and its settings, in
// order.
type sshBlock struct {
	patterns []string
	settings [][2]string
}

// Import reads an OpenSSH client configuration and returns a node for each plain name in it.
// Nothing is executed or included: what has no place in an inventory, such as ProxyCommand, Match
// and Include, is named in notes. Host keys are not in such a file; see [Scan].
func Import(r io.Reader) (nodes []remote.NodeOptions, notes []string, err error) {
	blocks, notes, err := sshBlocks(r)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, b := range blocks {
		for _, name := range b.patterns {
			if strings.ContainsAny(name, "*?!") || seen[name] {
				continue
			}
			seen[name] = true
			n, ok := sshNode(blocks, name)
			if !ok {
				notes = append(notes, fmt.Sprintf("%q is left out: its name, host, port, files "+
					"or jump hosts cannot be written as a node", name))
				continue
			}
			if n.User == "" {
				notes = append(notes, fmt.Sprintf("%s has no User: set user", name))
			}
			nodes = append(nodes, n)
		}
	}
	return nodes, notes, nil
}

// sshNode returns the node that a name of the configuration stands for, and whether an inventory
// can hold it.
func sshNode(blocks []sshBlock, name string) (n remote.NodeOptions, ok bool) {
	n = remote.NodeOptions{Name: name, Login: sshLogin(blocks, name)}
	if jump := sshValue(blocks, name, "proxyjump"); jump != "" && jump != "none" {
		for _, hop := range strings.Split(jump, ",") {
			n.Jump = append(n.Jump, remote.JumpOptions{Login: sshHop(blocks, hop)})
		}
	}
	return n, remote.ValidName(name) && len(n.Jump) <= remote.MaxJumps &&
		remote.ValidHost(n.Host) && n.Port >= 1 && n.Port <= 65535 &&
		!strings.ContainsAny(n.IdentityFile+n.CertificateFile, "%\n")
}

// sshBlocks reads the Host blocks; notes name what it leaves out.
func sshBlocks(r io.Reader) (blocks []sshBlock, notes []string, err error) {
	blocks = []sshBlock{{patterns: []string{"*"}}}
	lines := bufio.NewScanner(io.LimitReader(r, 1<<20))
	skipping := false
	for n := 1; lines.Scan(); n++ {
		key, value, ok := sshSetting(lines.Text())
		switch {
		case !ok:
			return nil, nil, fmt.Errorf("line %d: %q is not a keyword and a value", n, lines.Text())
		case key == "":
		case key == "match":
			skipping = true
			notes = append(notes, fmt.Sprintf(
				"line %d: Match and what follows it is left out; write those hosts by hand", n))
		case key == "host":
			skipping = false
			blocks = append(blocks,
				sshBlock{patterns: strings.Fields(strings.ReplaceAll(value, `"`, ""))})
		case skipping:
		case slices.Contains([]string{"proxycommand", "localcommand", "include", "remotecommand",
			"permitlocalcommand", "forwardagent", "knownhostscommand"}, key):
			notes = append(notes, fmt.Sprintf(
				"line %d: %s is left out: the host runs no local commands, includes no files and "+
					"forwards no agent",
				n, key))
		default:
			b := &blocks[len(blocks)-1]
			b.settings = append(b.settings, [2]string{key, value})
		}
	}
	return blocks, notes, lines.Err()
}

// sshSetting splits a line. An empty key is a blank or a comment.
func sshSetting(line string) (key, value string, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", "", true
	}
	i := strings.IndexAny(line, " \t=")
	if i <= 0 {
		return "", "", false
	}
	value = strings.TrimLeft(line[i:], " \t")
	value = strings.TrimSpace(strings.TrimPrefix(value, "="))
	if unquoted := strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`); len(unquoted) == len(
		value)-2 && !strings.Contains(unquoted, `"`) {
		value = unquoted
	}
	return strings.ToLower(
			line[:i],
		), value, value != "" && utf8.ValidString(value) &&
			!strings.ContainsFunc(value, unicode.IsControl)
}

// sshValue is the first value in the blocks that match, as OpenSSH takes it.
func sshValue(blocks []sshBlock, name, key string) string {
	for _, b := range blocks {
		matches := false
		for _, p := range b.patterns {
			if rest, negated := strings.CutPrefix(p, "!"); negated {
				if globbed(rest, name) {
					matches = false
					break
				}
			} else if globbed(p, name) {
				matches = true
			}
		}
		if !matches {
			continue
		}
		for _, s := range b.settings {
			if s[0] == key {
				return s[1]
			}
		}
	}
	return ""
}

// globbed knows * and ? only, as OpenSSH does.
func globbed(pattern, name string) bool {
	for _, c := range []string{`\`, "["} {
		pattern = strings.ReplaceAll(pattern, c, `\`+c)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

func sshLogin(blocks []sshBlock, name string) remote.Login {
	l := remote.Login{
		Host: strings.ReplaceAll(cmp.Or(sshValue(blocks, name, "hostname"), name), "%h", name),
		User: sshValue(blocks, name, "user"), Port: 22,
		IdentityFile:    sshValue(blocks, name, "identityfile"),
		CertificateFile: sshValue(blocks, name, "certificatefile")}
	if p := sshValue(blocks, name, "port"); p != "" {
		l.Port, _ = strconv.Atoi(p)
	}
	l.Agent = l.IdentityFile == ""
	return l
}

// sshHop reads [user@]host[:port] of ProxyJump.
func sshHop(blocks []sshBlock, hop string) remote.Login {
	hop = strings.TrimPrefix(strings.TrimSpace(hop), "ssh://")
	user, host, has := strings.Cut(hop, "@")
	if !has {
		user, host = "", hop
	}
	port := 0
	if h, p, err := net.SplitHostPort(host); err == nil {
		host = h
		port, _ = strconv.Atoi(p)
	}
	l := sshLogin(blocks, host)
	l.User, l.Port = cmp.Or(user, l.User), cmp.Or(port, l.Port)
	return l
}

package setup

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Node is a node of the inventory.
type Node struct {
	Name, Host, User string
	Port             int
	HostKey          string // its pin: "SHA256:…"
}

// Way is how a node limits Caponier's key.
type Way string

const (
	Gate Way = "gate" // root's login, held to the commands of caponier-gate
	Sudo Way = "sudo" // a login of its own behind caponier-gate, held to those of sudo too
)

var (
	nodeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}$`)
	hostName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.:-]{0,252}$`) // an IPv6 address too
)

// ParseNode reads NAME=HOST or NAME=HOST:PORT, with brackets around an IPv6 address and a port.
func ParseNode(text string, way Way) (Node, error) {
	name, host, ok := strings.Cut(text, "=")
	n := Node{Name: name, Host: host, Port: 22, User: "root"}
	if way == Sudo {
		n.User = "caponier"
	}
	if h, port, err := net.SplitHostPort(host); err == nil {
		n.Host = h
		if n.Port, err = strconv.Atoi(port); err != nil || n.Port < 1 || n.Port > 65535 {
			return Node{}, fmt.Errorf("%q: %q is not a port", text, port)
		}
	}
	if !ok || !nodeName.MatchString(name) || !hostName.MatchString(n.Host) {
		return Node{}, fmt.Errorf("%q: want NAME=HOST or NAME=HOST:PORT, such as "+
			"pve1=192.0.2.10, with the node's own name", text)
	}
	return n, nil
}

// stage unpacks into a directory that is gone at the end.
const stage = `d=$(mktemp -d) && trap "rm -r $d" EXIT && cd "$d" && tar -x`

// Line returns the command that lets Caponier's key in: one line for a shell on this machine, by
// somebody who can log in as root on the node. It keeps what the node has already, and changes
// nothing the second time.
func (p Plan) Line(n Node, way Way, public string) string {
	const gate = "/usr/local/sbin/caponier-gate"
	files, home, chown := "caponier-gate", "/root", ""
	script := stage + ` && { test -e ` + gate +
		` || install -o root -g root -m 0755 caponier-gate ` + gate + `; } && `
	keys := "authorized_keys2" // which the cluster does not share
	if way == Sudo {
		files, home, keys = "caponier-gate caponier.sudoers", "/home/caponier", "authorized_keys"
		chown = " && chown -R caponier: " + home + "/.ssh"
		const list = "/etc/sudoers.d/caponier"
		script += `visudo -qcf caponier.sudoers && { test -e ` + list +
			` || install -o root -g root -m 0440 caponier.sudoers ` + list + `; } && ` +
			`{ id caponier >/dev/null 2>&1 || useradd --system --create-home --home-dir ` + home +
			` --shell /bin/bash caponier; } && `
	}
	file := home + "/.ssh/" + keys
	script += fmt.Sprintf(`mkdir -p -m 0700 %s/.ssh && { grep -qsF "%s" %s || `+
		`(umask 077 && echo "command=\"%s\",restrict %s caponier" >> %s); }%s`,
		home, public, file, gate, public, file, chown)
	return fmt.Sprintf("tar -cC %s %s | ssh -p %d root@%s '%s'",
		quote(filepath.Join(p.Shipped, "packaging/node")), files, n.Port, n.Host, script)
}

// quote writes a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Unline returns the command that takes back what Line did, but for an account: the key, and the
// gate and the list of sudo if they are as they were delivered and no other key names them.
func (p Plan) Unline(n Node, public string) string {
	const script = stage + ` && for f in /root/.ssh/authorized_keys2 ` +
		`/home/caponier/.ssh/authorized_keys; do test ! -e $f || { test ! -L $f && ` +
		`sed -i "\,%s,d" $f; } || { echo "$f: remove the key by hand" >&2; exit 1; }; done; ` +
		`g=/usr/local/sbin/caponier-gate; l=/etc/sudoers.d/caponier; ` +
		`grep -qsF $g /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 ` +
		`/home/caponier/.ssh/authorized_keys || { ! cmp -s caponier-gate $g || rm $g; ` +
		`! cmp -s caponier.sudoers $l || rm $l; }`
	return fmt.Sprintf("tar -cC %s caponier-gate caponier.sudoers | ssh -p %d root@%s '%s'",
		quote(filepath.Join(p.Shipped, "packaging/node")), n.Port, n.Host,
		fmt.Sprintf(script, public))
}

package setup

import (
	"fmt"
	"net"
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

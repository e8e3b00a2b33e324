package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
)

const maxPath = 4096

// derive returns what a call acts on. A value that could be written in another way is an error and
// is not repaired: policy compares these texts.
func derive(params []terms.Param, args map[string]any) (t terms.Targets,
	commands []terms.CommandText, err error) {
	found := map[string][]string{}
	for _, p := range params {
		v, given := args[p.Name]
		if p.Target == "" || !given {
			continue
		}
		values, list := []any{v}, p.Type == "array"
		if list {
			values, _ = v.([]any)
		}
		if p.Target == "call" { // the host adds what that call acted on
			if id, _ := v.(string); !callForm.MatchString(id) {
				return t, nil, fmt.Errorf("%s: the id of a call is 26 digits and letters from A "+
					"to V", p.Name)
			}
			continue
		}
		for i, v := range values {
			arg := p.Name
			if list {
				arg = fmt.Sprintf("%s[%d]", p.Name, i)
			}
			kind := targetKinds[p.Target]
			if kind == "commands" {
				text, ok := v.(string)
				if !ok {
					return t, nil, fmt.Errorf("%s: must be a string", arg)
				}
				commands = append(commands,
					terms.CommandText{Arg: arg, Text: text, Guest: p.Target == "guest_command"})
				continue
			}
			form, err := canonical(p.Target, v)
			if err != nil {
				return t, nil, fmt.Errorf("%s: %w", arg, err)
			}
			found[kind] = append(found[kind], form)
		}
	}
	set := func(kind string) []string { return sorted(found[kind]) }
	return terms.Targets{Nodes: set("nodes"), VMIDs: set("vmids"), Services: set("services"),
		Hosts: set("hosts"), Paths: set("paths"), GuestPaths: set("guest_paths"),
		LocalPaths: set("local_paths")}, commands, nil
}

// canonical returns the one form of a target, or says why the value is not in it.
func canonical(kind string, v any) (string, error) {
	if kind == "vmid" {
		id, ok := v.(int64)
		if !ok || id < 100 || id > 999_999_999 {
			return "", errors.New("a VMID is an integer from 100 to 999999999")
		}
		return strconv.FormatInt(id, 10), nil
	}
	s, ok := v.(string)
	if !ok {
		return "", errors.New("must be a string")
	}
	switch kind {
	case "node":
		return s, nodeName(s)
	case "service":
		return unit(s)
	case "host":
		return s, host(s)
	case "url":
		return urlHost(s)
	case "remote_path", "remote_dir", "guest_path":
		return s, absolute(s)
	case "local_path", "local_dir":
		return s, local(s)
	}
	return "", fmt.Errorf("target kind %q is not known", kind)
}

var (
	nodeForm = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)
	callForm = regexp.MustCompile(`^[0-9A-V]{26}$`)
	unitForm = regexp.MustCompile(`^[a-z0-9][a-z0-9:_.@-]*$`)
	// The last label begins with a letter: 127.1, 0x7f000001 and 2130706433 are addresses to many
	// resolvers.
	hostForm = regexp.MustCompile(
		`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	unitEnds = strings.Fields(`.service .socket .target .timer .mount .automount .device .swap .path
		.slice .scope`)
)

func nodeName(s string) error {
	if len(s) > 63 || !nodeForm.MatchString(s) {
		return errors.New("a node name is 1 to 63 letters, digits and inner hyphens")
	}
	return nil
}

// unit adds .service as systemctl would: a name without a suffix and its full form are one service.
func unit(s string) (string, error) {
	if len(s) > 200 || !unitForm.MatchString(s) {
		return "", errors.New(
			"a service is a systemd unit name in lower case, such as nginx or nginx.service")
	}
	if !slices.ContainsFunc(unitEnds, func(end string) bool { return strings.HasSuffix(s, end) }) {
		s += ".service"
	}
	return s, nil
}

func host(s string) error {
	if ip, err := netip.ParseAddr(s); err == nil {
		if ip.Zone() != "" || ip.Is4In6() || ip.String() != s {
			return fmt.Errorf("write the address as %s", ip.WithZone("").Unmap())
		}
		return nil
	}
	if len(s) > 253 || !hostForm.MatchString(s) {
		return errors.New(
			"a host is a lower-case ASCII name (xn-- for others) without a final dot, or an IP " +
				"address in its shortest form")
	}
	return nil
}

func urlHost(s string) (string, error) {
	if len(s) > 8192 ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		return "", errors.New(
			"a URL is at most 8192 characters of ASCII without spaces or backslashes")
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("is not a URL")
	}
	if !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "https://") || u.User != nil {
		return "", errors.New(
			"a URL begins with http:// or https:// and holds no user name or password")
	}
	return u.Hostname(), host(u.Hostname())
}

func absolute(s string) error {
	if err := plainPath(s); err != nil {
		return err
	}
	if !path.IsAbs(s) || path.Clean(s) != s {
		return errors.New(
			"a path is absolute and in its shortest form: no .., no // and no / at its end")
	}
	return nil
}

func local(s string) error {
	if err := plainPath(s); err != nil {
		return err
	}
	if s == "." || !filepath.IsLocal(s) || path.Clean(s) != s {
		return errors.New(
			"a local path is relative to your workspace and in its shortest form: no .., no // " +
				"and no / at its end")
	}
	return nil
}

func plainPath(s string) error {
	if s == "" || len(s) > maxPath ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("a path is 1 to %d bytes without control characters", maxPath)
	}
	return nil
}

// targetKinds maps an x-caponier-target to the JSON name of its field in terms.Targets.
var targetKinds = map[string]string{
	"call": "calls",
	"node": "nodes", "vmid": "vmids", "service": "services", "host": "hosts", "url": "hosts",
	"command": "commands", "guest_command": "commands",
	"remote_path": "paths", "guest_path": "guest_paths", "local_path": "local_paths",
	"remote_dir": "paths", "local_dir": "local_paths"}

// trees is the kind of target of a tool whose remote_dir stands for all that is below it.
const trees = "trees"

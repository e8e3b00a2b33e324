package plugin

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestCanonical(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		claim, kind string
		v           any
		want, why   string // one of them
	}{
		{"a vmid is decimal", "vmid", int64(105), "105", ""},
		{"a vmid under 100", "vmid", int64(99), "", "from 100 to 999999999"},
		{"a vmid over nine digits", "vmid", int64(1000000000), "", "from 100 to 999999999"},
		{"a vmid as text", "vmid", "105", "", "an integer"},
		{"a node", "node", "pve-1", "pve-1", ""},
		{"a node that is an option", "node", "-pve", "", "node name"},
		{"a node with a dot", "node", "pve1.example", "", "node name"},
		{"a node that ends in a line break", "node", "pve1\n", "", "node name"},
		{"a node over 63 characters", "node", long, "", "node name"},
		{"a service gets its suffix", "service", "nginx", "nginx.service", ""},
		{"a full unit stays", "service", "getty@tty1.service", "getty@tty1.service", ""},
		{"a timer stays", "service", "apt-daily.timer", "apt-daily.timer", ""},
		{"an unknown suffix is part of the name", "service", "a.b", "a.b.service", ""},
		{"a service in upper case", "service", "SSH", "", "lower case"},
		{"a service that is an option", "service", "--now", "", "systemd unit"},
		{"a service with a glob", "service", "ssh*", "", "systemd unit"},
		{"a service with an escape", "service", `a\x2db`, "", "systemd unit"},
		{"a host name", "host", "db1.example.org", "db1.example.org", ""},
		{"a single label", "host", "pve1", "pve1", ""},
		{"an IPv4 address", "host", "192.0.2.1", "192.0.2.1", ""},
		{"an IPv6 address", "host", "2001:db8::1", "2001:db8::1", ""},
		{"a long IPv6 address", "host", "2001:db8:0:0::1", "", "write the address as 2001:db8::1"},
		{"an IPv4-mapped address", "host", "::ffff:192.0.2.1", "",
			"write the address as 192.0.2.1"},
		{"an address with a zone", "host", "fe80::1%eth0", "", "write the address as fe80::1"},
		{"an address in decimal", "host", "2130706433", "", "a host is"},
		{"a short address", "host", "127.1", "", "a host is"},
		{"a hexadecimal address", "host", "0x7f000001", "", "a host is"},
		{"an address with zeros in front", "host", "127.0.0.01", "", "a host is"},
		{"upper case", "host", "Example.org", "", "a host is"},
		{"a final dot", "host", "example.org.", "", "a host is"},
		{"letters that look alike", "host", "exаmple.org", "", "a host is"},
		{"an underscore", "host", "a_b", "", "a host is"},
		{"an empty host", "host", "", "", "a host is"},
		{"a URL gives its host", "url", "https://api.example.org:8443/a?b#c", "api.example.org", ""},
		{"a URL with an IPv6 host", "url", "http://[2001:db8::1]/", "2001:db8::1", ""},
		{"a URL with a user", "url", "https://trusted.org@evil.org/", "", "no user name"},
		{"another scheme", "url", "file:///etc/passwd", "", "begins with http://"},
		{"a scheme in upper case", "url", "HTTP://example.org", "", "begins with http://"},
		{"a URL without a host", "url", "http:///x", "", "a host is"},
		{"a backslash", "url", `http://a\@b/`, "", "without spaces or backslashes"},
		{"a line break", "url", "http://a/\r\nHost: b", "", "without spaces or backslashes"},
		{"a URL with an upper-case host", "url", "http://A.org/", "", "a host is"},
		{"an escaped host", "url", "http://%61.org/", "", "is not a URL"},
		{"an absolute path", "remote_path", "/var/lib/x", "/var/lib/x", ""},
		{"the root", "guest_path", "/", "/", ""},
		{"dot dot", "guest_path", "/a/../b", "", "no .."},
		{"a slash at the end", "remote_path", "/a/", "", "shortest form"},
		{"two slashes", "remote_path", "//a", "", "shortest form"},
		{"a relative path", "remote_path", "a", "", "absolute"},
		{"NUL", "remote_path", "/a\x00", "", "control characters"},
		{"a line break in a path", "guest_path", "/a\nb", "", "control characters"},
		{"a path over 4096 bytes", "guest_path", "/" + strings.Repeat("a", maxPath), "",
			"1 to 4096"},
		{"a local path", "local_path", "a/b.txt", "a/b.txt", ""},
		{"a local path with dots in a name", "local_path", "a..b", "a..b", ""},
		{"an absolute local path", "local_path", "/a", "", "relative"},
		{"a local path upwards", "local_path", "../a", "", "relative"},
		{"the workspace itself", "local_path", ".", "", "relative"},
		{"an empty local path", "local_path", "", "", "1 to 4096"},
		{"a dot in front", "local_path", "./a", "", "shortest form"},
		{"a kind that nobody knows", "planet", "x", "", "not known"},
		{"a number for a string", "node", int64(1), "", "must be a string"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			got, err := canonical(c.kind, c.v)
			if c.why == "" && (err != nil || got != c.want) ||
				c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("got %q, %v, want %q %q", got, err, c.want, c.why)
			}
		})
	}
}

func TestDerive(t *testing.T) {
	marks := []terms.Param{
		{Name: "ids", Target: "vmid", Type: "array"}, {Name: "node", Target: "node"},
		{Name: "cmd", Target: "command"}, {Name: "steps", Target: "guest_command", Type: "array"},
		{Name: "url", Target: "url"}, {Name: "host", Target: "host"}, {Name: "other"},
	}
	targets, texts, err := derive(marks, map[string]any{
		"ids": []any{int64(300), int64(105),
			int64(300)}, "cmd": "uptime", "steps": []any{"a", "b"}, "url": "https://b.org/", "host": "a.org", "other": "x"})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := abi.Encode(targets)
	if want := `{"nodes":[],"vmids":["105","300"],"services":[],"hosts":["a.org","b.org"],` +
		`"paths":[],"guest_paths":[],"local_paths":[]}`; string(
		got) != want {
		t.Errorf("targets %s, want %s", got, want)
	}
	if len(texts) != 3 || texts[0] != (terms.CommandText{Arg: "cmd", Text: "uptime"}) ||
		texts[2] != (terms.CommandText{Arg: "steps[1]", Text: "b", Guest: true}) {
		t.Errorf("commands %v", texts)
	}
	if _, _, err := derive(marks, map[string]any{"ids": []any{int64(105), int64(7)}}); err == nil ||
		!strings.Contains(err.Error(), "ids[1]: a VMID") {
		t.Errorf("one bad item: %v", err)
	}
}

// A canonical form is its own canonical form, and never holds what a shell, a resolver or a file
// system could read in two ways.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"pve1", "nginx", "http://[::1]:80/", "/a/b", "a/b", "1.2.3.4", "ssh.socket"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for kind := range targetKinds {
			got, err := canonical(kind, s)
			if err != nil {
				continue
			}
			if strings.ContainsAny(got, "\x00\n\r") ||
				strings.HasPrefix(got, "-") && targetKinds[kind] != "local_paths" {
				t.Errorf("%s %q gives %q", kind, s, got)
			}
			again := kind
			switch kind {
			case "url":
				again = "host"
				if ip, err := netip.ParseAddr(got); err == nil && ip.String() != got {
					t.Errorf("%q is not the one form of %s", got, ip)
				}
			case "remote_path", "guest_path", "local_path", "remote_dir", "local_dir":
				if path.Clean(got) != got || slices.Contains(strings.Split(got, "/"), "..") {
					t.Errorf("%s %q is not clean", kind, got)
				}
			}
			if twice, err := canonical(again, got); err != nil || twice != got {
				t.Errorf("%s %q gives %q, which gives %q, %v", kind, s, got, twice, err)
			}
		}
	})
}

func BenchmarkArguments(b *testing.B) {
	tool := tool(b)
	v, err := abi.Decode(
		[]byte(`{"vmid":103,"command":"id","format":"text","mode":"0644","paths":["/a"]}`), 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	args := v.(map[string]any)
	for b.Loop() {
		if err := tool.Validate(args); err != nil {
			b.Fatal(err)
		}
		if _, _, err := tool.Derive(terms.Principal{}, args); err != nil {
			b.Fatal(err)
		}
	}
}

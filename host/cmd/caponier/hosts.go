package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/spf13/cobra"
)

func hostsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "hosts", Short: "Find out the host keys of nodes"}
	cmd.AddCommand(hostsScan(g))
	return cmd
}

func hostsScan(g *global) *cobra.Command {
	var add string
	cmd := &cobra.Command{
		Use:   "scan HOST[:PORT]",
		Short: "Show the keys that a host proves, for you to compare with those on its console",
		Args:  cobra.ExactArgs(1),
		Example: "  caponier hosts scan pve1.example\n  caponier hosts scan pve1.example --add " +
			"~/.ssh/known_hosts   # after comparing the fingerprints",
		RunE: g.does(func(v *verb) error {
			host, port := v.args[0], 22
			if h, p, err := net.SplitHostPort(host); err == nil {
				n, err := strconv.Atoi(p)
				if err != nil || n < 1 || n > 65535 {
					return usage(fmt.Errorf("%q is not a port", p))
				}
				host, port = h, n
			}
			keys, err := doctor.Scan(v.ctx, host, port)
			if err != nil {
				return err
			}
			lines := ""
			for _, k := range keys {
				lines += k.Line + "\n"
			}
			err = v.print(keys, func(w io.Writer) { printKeys(w, host, keys, lines, add != "") })
			if err != nil || add == "" {
				return err
			}
			return v.addTo(add, lines)
		}),
	}
	cmd.Flags().StringVar(&add, "add", "", "add the keys to this known_hosts `FILE`")
	return cmd
}

func printKeys(w io.Writer, host string, keys []doctor.ScannedKey, lines string, adds bool) {
	for _, k := range keys {
		fmt.Fprintf(w, "%-20s host_key = %q\n", k.Type, k.Fingerprint)
	}
	fmt.Fprintf(w, "\nCompare one with what the console of %s itself says:\n  ssh-keygen -lf "+
		"/etc/ssh/ssh_host_ed25519_key.pub\nThen put it as host_key into [[remote.nodes]]", host)
	if adds {
		fmt.Fprintln(w, ".")
		return
	}
	fmt.Fprintf(w, ", or add these lines to a known_hosts file (--add FILE):\n%s", lines)
}

// addTo adds text at the end of a file, which it makes for this user alone when there is none.
func (v *verb) addTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Close()); err == nil {
		fmt.Fprintf(v.say, "added to %s\n", file)
	}
	return err
}

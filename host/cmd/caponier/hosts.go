package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/spf13/cobra"
)

func hostsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "hosts",
		Short: "Find out host keys, take nodes over from an OpenSSH configuration"}
	cmd.AddCommand(hostsScan(g), hostsImport(g))
	return cmd
}

func hostsScan(g *global) *cobra.Command {
	var add string
	cmd := &cobra.Command{
		Use:   "scan HOST[:PORT]",
		Short: "Show the keys that a host proves; nobody has checked yet whose they are",
		Args:  cobra.ExactArgs(1),
		Example: "  caponier hosts scan pve1.example\n  caponier hosts scan pve1.example --add " +
			"~/.ssh/known_hosts   # after comparing the fingerprints",
		RunE: func(cmd *cobra.Command, args []string) error {
			host, port := args[0], 22
			if h, p, err := net.SplitHostPort(args[0]); err == nil {
				n, err := strconv.Atoi(p)
				if err != nil || n < 1 || n > 65535 {
					return fmt.Errorf("%q is not a port", p)
				}
				host, port = h, n
			}
			keys, err := doctor.Scan(cmd.Context(), host, port)
			if err != nil {
				return failed(err)
			}
			lines := ""
			for _, k := range keys {
				lines += k.Line + "\n"
			}
			switch {
			case g.json:
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(keys)
			default:
				for _, k := range keys {
					fmt.Fprintf(cmd.OutOrStdout(), "%-20s host_key = %q\n", k.Type, k.Fingerprint)
				}
				fmt.Fprintf(cmd.OutOrStdout(),
					"\nCompare one with what the console of %s itself says:\n  ssh-keygen -lf "+
						"/etc/ssh/ssh_host_ed25519_key.pub\nThen put it as host_key into "+
						"[[remote.nodes]]",
					host)
				if add == "" {
					fmt.Fprintf(cmd.OutOrStdout(),
						", or add these lines to a known_hosts file (--add FILE):\n%s", lines)
				} else {
					fmt.Fprintln(cmd.OutOrStdout(), ".")
				}
			}
			if err != nil || add == "" {
				return failed(err)
			}
			return failed(appendTo(cmd.ErrOrStderr(), add, lines))
		},
	}
	cmd.Flags().StringVar(&add, "add", "", "add the keys to this known_hosts `FILE`")
	return cmd
}

func hostsImport(g *global) *cobra.Command {
	var add bool
	cmd := &cobra.Command{
		Use: "import [FILE]",
		Short: "Show the nodes of an OpenSSH client configuration (default ~/.ssh/config) as " +
			"[[remote.nodes]]",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) == 1 {
				file = args[0]
			} else if home, err := os.UserHomeDir(); err == nil {
				file = filepath.Join(home, ".ssh", "config")
			}
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			nodes, notes, err := doctor.Import(f)
			if err != nil {
				return failed(fmt.Errorf("%s: %w", file, err))
			}
			for _, n := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", n)
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(nodes)
			}
			var b strings.Builder
			for _, n := range nodes {
				writeNode(&b, n)
			}
			if !add {
				_, err = io.WriteString(cmd.OutOrStdout(), b.String())
				return err
			}
			c, err := g.load()
			if err != nil {
				return err
			}
			return failed(appendTo(cmd.ErrOrStderr(), c.File, "\n"+b.String()))
		},
	}
	cmd.Flags().
		BoolVar(&add, "add", false, "add them to the configuration, after you have read them")
	return cmd
}

func writeNode(b *strings.Builder, n remote.NodeOptions) {
	fmt.Fprintf(b, "[[remote.nodes]]\nname = %q\n", n.Name)
	writeLogin(b, n.Login)
	for _, j := range n.Jump {
		fmt.Fprint(b, "[[remote.nodes.jump]]\n")
		writeLogin(b, j.Login)
	}
	fmt.Fprintln(b)
}

func writeLogin(b *strings.Builder, l remote.Login) {
	for _, kv := range [][2]string{{"host", l.Host}, {"user", l.User}, {"identity_file",
		l.IdentityFile}, {"certificate_file", l.CertificateFile}, {"host_key", l.HostKey}} {
		if kv[1] != "" {
			fmt.Fprintf(b, "%s = %q\n", kv[0], kv[1])
		}
	}
	if l.Port != 0 {
		fmt.Fprintf(b, "port = %d\n", l.Port)
	}
	if l.Agent {
		fmt.Fprintln(b, "agent = true")
	}
	if l.HostKey == "" {
		fmt.Fprintf(b, "# host_key = …   caponier hosts scan %s\n",
			net.JoinHostPort(l.Host, strconv.Itoa(max(l.Port, 22))))
	}
}

// appendTo adds text at the end of a file, which it makes for this user alone when there is none.
func appendTo(say io.Writer, file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, text); err != nil {
		f.Close()
		return err
	}
	fmt.Fprintf(say, "added to %s\n", file)
	return f.Close()
}

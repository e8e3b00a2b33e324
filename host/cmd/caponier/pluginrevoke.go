package main

import (
	"fmt"
	"io"
	"regexp"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/spf13/cobra"
)

var moduleDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// pluginRevoke records that a module must not run. The record is in the state directory, with the
// freezes, and not in the lock: every process reads it at its next decision, it stays when the same
// module is locked again, and no reviewed file has to change while something is wrong.
func pluginRevoke(g *global) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "revoke DIGEST",
		Short: "Stop a module now, in all processes that share the state directory, whatever " +
			"the lock says",
		Long: "Refuses every call of the module with this digest (or of the plugin that the lock " +
			"has under\nthis name), and every further operation of its running calls, in all " +
			"processes that share\nthe state directory, from their next decision on. It holds " +
			"also for a lock that lists the\nmodule later. `caponier thaw --plugin DIGEST` ends " +
			"it.",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			lock, err := plugin.Load(c.Plugin.Lock)
			digest, locked := v.args[0], ""
			if err == nil {
				for _, e := range lock.Plugins() {
					if v.args[0] == e.Name || v.args[0] == e.Digest {
						digest, locked = e.Digest, e.Name
					}
				}
			}
			if !moduleDigest.MatchString(digest) {
				return usage(fmt.Errorf("%q is neither a digest (sha256: and 64 hexadecimal "+
					"digits; `caponier check` lists them) nor a plugin in %s", digest,
					c.Plugin.Lock))
			}
			z := freeze.Freeze{Kind: "plugin", Name: digest}
			err = withShared(c, func(s state) error {
				return addFreeze(s.freezes(c), z, account(), reason)
			})
			if err != nil {
				return err
			}
			return v.print(map[string]string{"digest": digest, "plugin": locked},
				func(w io.Writer) {
					fmt.Fprintf(w, "the module %s is revoked\n", digest)
					if locked != "" {
						fmt.Fprintf(w, "%s still lists it, as plugin %s\n", c.Plugin.Lock, locked)
					}
				})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that refused callers and operators see")
	return cmd
}

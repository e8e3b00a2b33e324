package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in released builds.
var version = "dev"

func versionCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the program and of what it is built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]string{"caponier": version, "go": runtime.Version(),
				"abi": "caponier_v1"}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, m := range info.Deps {
					switch m.Path {
					case "github.com/open-policy-agent/opa",
						"github.com/tetratelabs/wazero",
						"github.com/modelcontextprotocol/go-sdk":
						v[m.Path] = m.Version
					}
				}
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(),
				"caponier %s (plugin ABI 1, %s, opa %s, wazero %s, go-sdk %s)\n", v["caponier"],
				v["go"], v["github.com/open-policy-agent/opa"], v["github.com/tetratelabs/wazero"],
				v["github.com/modelcontextprotocol/go-sdk"])
			return err
		},
	}
}

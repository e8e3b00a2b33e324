package main

import (
	"fmt"
	"io"
	"path"
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
		RunE: g.does(func(v *verb) error {
			versions := map[string]string{"caponier": version, "go": runtime.Version(),
				"abi": "caponier_v1"}
			parts := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, m := range info.Deps {
					switch m.Path {
					case "github.com/open-policy-agent/opa", "github.com/tetratelabs/wazero",
						"github.com/modelcontextprotocol/go-sdk":
						versions[m.Path] = m.Version
						parts += fmt.Sprintf(", %s %s", path.Base(m.Path), m.Version)
					}
				}
			}
			return v.print(versions, func(w io.Writer) {
				fmt.Fprintf(w, "caponier %s (plugin ABI 1, %s%s)\n", version, runtime.Version(),
					parts)
			})
		}),
	}
}

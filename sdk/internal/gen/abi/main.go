// Command abi writes the codec of package abi, in whose folder it runs.
package main

import (
	"fmt"
	"os"

	"github.com/caponier-mcp/caponier/sdk/internal/gen"
)

func main() {
	files, err := gen.ABI()
	if err == nil {
		for name, src := range files {
			if err = os.WriteFile(name, src, 0o644); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

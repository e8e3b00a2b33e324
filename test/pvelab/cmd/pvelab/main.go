// Command pvelab runs a simulated Proxmox VE cluster: see the package pvelab.
package main

import (
	"os"

	"github.com/caponier-mcp/caponier/test/pvelab"
)

func main() { os.Exit(pvelab.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

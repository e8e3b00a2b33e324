// Command operationtable writes policies/core/operations.rego to its output, from sdk/abi.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/format"
)

const head = `# METADATA
# scope: package
# description: >-
#   The operations, as sdk/abi lists them. make docs writes this file.
package caponier.core.operations

# For each operation: its part of the input, its action on a file, whether it runs on a node,
# whether plugins can ask for it, and what its part always has.
table := {
`

func main() {
	var b bytes.Buffer
	b.WriteString(head)
	plugins := abi.Operations()
	for _, op := range abi.Table() {
		action, needs := `""`, "set()"
		if f, is := op.Example.(abi.FileOp); is {
			action = strconv.Quote(f.File().Action)
			if f.File().Local != nil {
				needs = `{"path", "local"}`
			} else if f.File().Path != "" {
				needs = `{"path"}`
			}
		}
		fmt.Fprintf(&b, "%q: {\n\"part\": %q, \"action\": %s, \"node\": %t, \"plugins\": %t, "+
			"\"needs\": %s,\n},\n", op.Import, op.View, action, op.OnNode,
			slices.Contains(plugins, op.Import), needs)
	}
	b.WriteString("}\n")
	src, err := format.Source("operations.rego", b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	_, _ = os.Stdout.Write(src)
}

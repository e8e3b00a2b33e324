package load_test

import (
	"context"
	"fmt"
	"log"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// A site is loaded from its folder, with everything that is checked before it decides. The answer
// to a question says which checks did not hold.
func Example() {
	ctx := context.Background()
	site, err := load.New(ctx, load.Options{Site: "../../../policies/examples/team"})
	if err != nil {
		log.Fatal(err) // names the file and the line to change
	}
	decision, err := site.Decide(ctx, terms.Question{
		Kind: terms.KindCall,
		Call: &terms.Call{
			Principal: terms.Principal{ID: "stranger", Auth: "token"},
			Tool:      &terms.Tool{Kind: "tool", Name: "list_nodes"},
		},
	})
	if err != nil {
		log.Fatal(err) // and the gate refuses
	}
	fmt.Println(decision.Allow, decision.Failed[0])
	// Output: false identity
}

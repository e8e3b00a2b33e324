// Command roots prints the certificates that Mozilla trusts, in PEM, as the module
// golang.org/x/crypto/x509roots of go.sum has them: the same on every machine. Those that hold
// only for certificates before some date are left out: a file in PEM cannot say so.
package main

import (
	"encoding/pem"
	"log"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		b := &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}
		if err := pem.Encode(os.Stdout, b); err != nil {
			log.Fatal(err)
		}
	}
}

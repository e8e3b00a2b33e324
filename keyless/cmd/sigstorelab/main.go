// Command sigstorelab signs files as an instance of Sigstore that exists for this run alone, for
// tests and for trying: sigstorelab DIR ISSUER SUBJECT [FILE…]
//
// It writes DIR/trusted_root.json, and FILE.sig beside each file.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/caponier-mcp/caponier/keyless/sigstoretest"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: sigstorelab DIR ISSUER SUBJECT [FILE…]")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		log.Fatal(err)
	}
}

func run(dir, issuer, subject string, files []string) error {
	i, err := sigstoretest.New()
	if err != nil {
		return err
	}
	root, err := i.TrustedRoot()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "trusted_root.json"), root, 0o644); err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		bundle, err := i.Sign(sigstoretest.Signing{Artifact: data, Issuer: issuer,
			Subject: subject})
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+".sig", bundle, 0o644); err != nil {
			return err
		}
	}
	return nil
}

//go:build ignore

// Command schema validates JSON against a JSON schema: go run test/packaging/schema.go SCHEMA FILE
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/google/jsonschema-go/jsonschema"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: schema SCHEMA FILE")
	}
	var schema jsonschema.Schema
	read(os.Args[1], &schema)
	var doc any
	read(os.Args[2], &doc)
	resolved, err := schema.Resolve(nil)
	if err == nil {
		err = resolved.Validate(doc)
	}
	if err != nil {
		log.Fatalf("%s does not fit %s: %v", os.Args[2], os.Args[1], err)
	}
}

func read(file string, to any) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		log.Fatalf("%s: %v", file, err)
	}
}

// Package policies holds the core policy, its command grammar and its schemas, as they are built
// into the host.
package policies

import "embed"

// Files are core (Rego and the command grammar) with its tests, the package that the tests of sites
// make questions with, schemas and capabilities.json, with the paths they have in this folder.
//
//go:embed core testing schemas capabilities.json
var Files embed.FS

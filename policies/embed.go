// Package policies holds the core policy, its command grammar and its schemas, as they are built
// into the host.
package policies

import "embed"

// Files are core (Rego and the command grammar), schemas and capabilities.json, with the paths they
// have in this folder.
//
//go:embed core schemas capabilities.json
var Files embed.FS

// Package assemblyscript has the SDK for plugins in AssemblyScript.
package assemblyscript

import "embed"

// Files are caponier.ts, and package.json with its lock, which pin the compiler.
//
//go:embed caponier.ts package.json package-lock.json
var Files embed.FS

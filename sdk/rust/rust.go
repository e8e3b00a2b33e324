// Package rust has the SDK for plugins in Rust.
package rust

import _ "embed"

// Module is caponier.rs.
//
//go:embed caponier.rs
var Module []byte

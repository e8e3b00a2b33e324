// Package c has the SDK for plugins in C.
package c

import _ "embed"

// Header is caponier.h.
//
//go:embed caponier.h
var Header []byte

//go:build conformance

package main

import "github.com/caponier-mcp/caponier/test/conformance/fixtures"

func init() { extend = fixtures.Extend }

package main

import (
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/config"
)

// shadowDir has what a candidate policy would decide otherwise.
func shadowDir(c *config.Config) string { return filepath.Join(c.Store.Dir, "shadow") }

// indexDir has the console's index of the journal.
func indexDir(c *config.Config) string { return filepath.Join(c.Store.Dir, "index") }

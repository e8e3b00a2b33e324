// Package config reads config.toml: one table for each package, decoded straight into that package's Options.
package config

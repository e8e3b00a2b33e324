// Package test drives the real binary.
package test

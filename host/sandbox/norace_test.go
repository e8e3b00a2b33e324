//go:build !race

package sandbox

const slack = 0

//go:build !race

package sandbox

const slack = 0

const noMemory = "exit status 2: runtime: out of memory: "

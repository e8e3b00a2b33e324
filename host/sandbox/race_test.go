//go:build race

package sandbox

// slack is what the race detector's own memory may add to a process, in MiB.
const slack = 64

// noMemory is what a process without memory prints as it ends: the race detector reserves memory of
// its own, and words it differently.
const noMemory = "exit status 2: fatal error: "

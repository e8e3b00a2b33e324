//go:build race

package sandbox

// slack is what the race detector's own memory may add to a process, in MiB.
const slack = 64

// noMemory is how a process ends that gets none: the race detector reserves its own part, and says
// it in words of its own.
const noMemory = "exit status 2: fatal error: "

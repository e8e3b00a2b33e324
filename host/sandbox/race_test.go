//go:build race

package sandbox

// slack is what the race detector's own memory may add to a process, in MiB.
const slack = 64

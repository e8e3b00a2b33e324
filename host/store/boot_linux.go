package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is how long the machine runs, suspended time included.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Package hangup catches SIGHUP before main begins: a process that SIGHUP reaches while its
// packages are initialised would end.
package hangup

import (
	"os"
	"os/signal"
	"syscall"
)

// C receives each SIGHUP; one that is not read yet stands for those that follow.
var C = catch()

func catch() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

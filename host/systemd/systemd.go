// Package systemd reports the state of this process to the service manager.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Notify reports the state of this process to the service manager, as sd_notify(3) describes it:
// READY=1, RELOADING=1, STOPPING=1 or WATCHDOG=1. Without NOTIFY_SOCKET it does nothing. An error
// is logged and otherwise ignored.
func Notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if rest, abstract := strings.CutPrefix(name, "@"); abstract {
		name = "\x00" + rest
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		_ = c.Close()
	}
	if err != nil {
		slog.Warn("cannot report the state to the service manager", "state", state, "error", err)
	}
}

// Reloading returns the state that announces a reload, with the monotonic clock as
// Type=notify-reload wants it.
func Reloading() string {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

// watchdogInterval returns the interval of reports to the service manager: half of WatchdogSec=, as
// sd_watchdog_enabled(3) recommends. It returns 0 when there is no watchdog.
func watchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

// Watchdog reports to the service manager until ctx ends. Before each report it calls alive, so
// that a process whose parts hang stops reporting and is restarted.
func Watchdog(ctx context.Context, alive func()) {
	every := watchdogInterval()
	if every == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		alive()
		Notify("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

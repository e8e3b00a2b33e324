package pvelab

import (
	"errors"
	"fmt"
	"time"
)

// Options configure a lab. The zero value of each field but State is usable.
type Options struct {
	// directory for everything the lab keeps; made 0700 when it is missing; required
	State string
	// address of the first node's SSH server; default 127.0.0.1:0; the others take random ports
	Listen  string
	Effects string // file that gets one JSON line for each effect; none by default
	Config  string // where to write a configuration for caponier; none by default
	Plugins string // [plugin] dir of that configuration
	Lock    string // [plugin] lock
	Site    string // [policy] site
	// what is wrong with the cluster from the start, with commas between: see faults
	Faults string
	// added to each start of pct, qm, pvesh …; a real node takes about 0.6 s
	Latency time.Duration
	// waits as long as a real node for a lock or a guest's shutdown; otherwise such waits take no
	// time
	RealWaits bool
	// directory that the nodes' programs see as "/"; by default one of the lab's own for each node
	NodeRoot  string
	Inventory *State // what a fresh state directory begins with; the demo's by default
}

// Validate reports what a lab cannot start with.
func (o Options) Validate() error {
	if o.State == "" {
		return errors.New("pvelab: Options.State names no directory")
	}
	if err := (&State{}).spoil(o.Faults); err != nil {
		return err
	}
	if o.Latency < 0 {
		return fmt.Errorf("pvelab: Options.Latency is %v; it must not be negative", o.Latency)
	}
	return nil
}

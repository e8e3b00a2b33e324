package pvelab

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// configLock waits for the lock that a guest's configuration file has on its node.
func (c *call) configLock(ctx context.Context, out io.Writer, typ string) error {
	file := (&Guest{Type: typ, VMID: c.vmid()}).lockFile()
	key := c.node + ":" + file
	if !c.lab.isHeld(key) {
		return nil
	}
	fmt.Fprintln(out, "trying to acquire lock...")
	for range 10 {
		if err := c.lab.wait(ctx, time.Second); err != nil {
			return err
		}
		if !c.lab.isHeld(key) {
			fmt.Fprintln(out, " OK")
			return nil
		}
	}
	return die(255, "can't lock file '%s' - got timeout", file)
}

func (g *Guest) lockFile() string {
	if g.Type == "qemu" {
		return fmt.Sprintf("/var/lock/qemu-server/lock-%d.conf", g.VMID)
	}
	return fmt.Sprintf("/run/lock/lxc/pve-config-%d.lock", g.VMID)
}

// missingVolume names a configured disk that its storage does not have.
func missingVolume(s *State, g *Guest) string {
	vol, _, _ := strings.Cut(g.Config["rootfs"], ",")
	id, _, ok := strings.Cut(vol, ":")
	st := s.storage(g.Node, id)
	if !ok || st == nil {
		return ""
	}
	if slices.ContainsFunc(st.Volumes, func(v *Volume) bool { return v.VolID == vol }) {
		return ""
	}
	return vol
}

// requestHA answers for a guest that the HA manager looks after: the command returns at once and
// the change comes later (facts 6, from the source). ok is false for every other guest.
func (c *call) requestHA(ctx context.Context, typ, verb string,
	do func() error) (v any, err error, ok bool) {
	g, err := c.guest(typ, 255)
	if err != nil || !g.HA {
		return nil, nil, false
	}
	task, what := "hastop", map[string]string{"lxc": "CT", "qemu": "VM"}[typ]
	if verb == "start" {
		task = "hastart"
	}
	v, err = c.worker(ctx, task, g.id(), func(out io.Writer) error {
		fmt.Fprintf(out, "Requesting HA %s for %s %d\n", verb, what, g.VMID)
		return nil
	})
	c.lab.later(haDelay, func() { _ = do() }) // a failure would only be in the HA manager's log
	return v, err, true
}

const haDelay = 300 * time.Millisecond

// later runs fn after d, or when the lab is closed.
func (l *Lab) later(d time.Duration, fn func()) {
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		_ = sleep(l.ctx, d)
		fn()
	}()
}

func ctStart(ctx context.Context, c *call) (any, error) {
	if err := c.quorum(); err != nil {
		return nil, err
	}
	if g, err := c.guest("lxc", 255); err == nil && g.Running {
		return nil, die(255, "CT %d already running", g.VMID)
	}
	if v, err, ok := c.requestHA(ctx, "lxc", "start", func() error { return c.run("lxc") }); ok {
		return v, err
	}
	return c.worker(ctx, "vzstart", strconv.Itoa(c.vmid()),
		func(out io.Writer) error { return c.startCT(ctx, out) })
}

func (c *call) startCT(ctx context.Context, out io.Writer) error {
	if err := c.configLock(ctx, out, "lxc"); err != nil {
		return err
	}
	g, err := c.guest("lxc", 255)
	if err != nil {
		return err
	}
	if err := g.locked(c.on("skiplock")); err != nil {
		return err
	}
	if g.Config["template"] == "1" {
		return die(255, "you can't start a CT if it's a template")
	}
	missing := ""
	var noise []string
	_ = c.lab.db.view(
		func(s *State) { missing, noise = missingVolume(s, g), slices.Clone(s.StartNoise) },
	)
	if missing != "" {
		return die(255, "volume '%s' does not exist", missing)
	}
	for _, line := range noise {
		fmt.Fprintln(out, line)
	}
	if g.StartError != "" {
		return die(255, "%s", g.StartError)
	}
	return c.run("lxc")
}

// run and halt flip the guest's power.
func (c *call) run(typ string) error {
	return c.change(typ, false, func(s *State, g *Guest) {
		s.NextPID++
		g.Running, g.PID, g.Started = true, s.NextPID, now()
	})
}

func (c *call) halt(typ string) error {
	err := c.change(typ, false,
		func(_ *State, g *Guest) { g.Running, g.PID, g.Started = false, 0, 0 })
	for _, s := range c.lab.processes(fmt.Sprintf("ct/%d", c.vmid())) {
		s.signal(sigKILL)
	}
	return err
}

// running finds a running guest, or refuses in the words of that method.
func (c *call) running(typ, what string) (*Guest, error) {
	g, err := c.guest(typ, 255)
	if err != nil || !g.Running {
		return nil, die(255, "%s %d not running", what, c.vmid())
	}
	return g, nil
}

func ctStop(ctx context.Context, c *call) (any, error) {
	if _, err := c.running("lxc", "CT"); err != nil {
		return nil, err
	}
	if v, err, ok := c.requestHA(ctx, "lxc", "stop", func() error { return c.halt("lxc") }); ok {
		return v, err
	}
	return c.worker(ctx, "vzstop", strconv.Itoa(c.vmid()), func(out io.Writer) error {
		if err := c.configLock(ctx, out, "lxc"); err != nil {
			return err
		}
		g, err := c.guest("lxc", 255)
		if err == nil {
			err = g.locked(c.on("skiplock"))
		}
		if err != nil {
			return err
		}
		return c.halt("lxc")
	})
}

func ctShutdown(ctx context.Context, c *call) (any, error) {
	if _, err := c.running("lxc", "CT"); err != nil {
		return nil, err
	}
	if v, err, ok := c.requestHA(ctx, "lxc", "stop", func() error { return c.halt("lxc") }); ok {
		return v, err
	}
	return c.worker(ctx, "vzshutdown", strconv.Itoa(c.vmid()),
		func(out io.Writer) error { return c.shutdownCT(ctx, out) })
}

// shutdownCT asks first. A guest that ignores the request costs the timeout, and then a second wait
// of up to 9 s.
func (c *call) shutdownCT(ctx context.Context, out io.Writer) error {
	if err := c.configLock(ctx, out, "lxc"); err != nil {
		return err
	}
	g, err := c.guest("lxc", 255)
	if err == nil {
		err = g.locked(false)
	}
	if err != nil {
		return err
	}
	timeout := c.num("timeout", 60)
	if g.Stubborn {
		if err := c.lab.wait(ctx, time.Duration(timeout)*time.Second); err != nil {
			return err
		}
		if !c.on("forceStop") {
			fmt.Fprintf(out, "command 'lxc-stop -n %d --nokill --timeout %d' failed: exit code 1\n",
				g.VMID, timeout)
			if err := c.lab.wait(ctx, 9*time.Second); err != nil {
				return err
			}
			return die(255, "container did not stop")
		}
	}
	return c.halt("lxc")
}

func ctReboot(ctx context.Context, c *call) (any, error) {
	if _, err := c.running("lxc", "VM"); err != nil { // the real text says VM
		return nil, err
	}
	return c.worker(ctx, "vzreboot", strconv.Itoa(c.vmid()), func(out io.Writer) error {
		if err := c.shutdownCT(ctx, out); err != nil {
			return err
		}
		return c.startCT(ctx, out)
	})
}

func ctSuspend(ctx context.Context, c *call) (any, error) {
	if _, err := c.running("lxc", "CT"); err != nil {
		return nil, err
	}
	return c.worker(ctx, "vzsuspend", strconv.Itoa(c.vmid()), func(out io.Writer) error {
		id := c.vmid()
		fmt.Fprintf(
			out,
			"lxc-checkpoint: %d: ../src/lxc/criu.c: criu_version_ok: 767 No such file or "+
				"directory - execing criu failed, is it installed?\n",
			id,
		)
		fmt.Fprintf(
			out,
			"lxc-checkpoint: %d: ../src/lxc/tools/lxc_checkpoint.c: checkpoint: 182 "+
				"Checkpointing %d failed\n",
			id,
			id,
		)
		return die(255, "command 'lxc-checkpoint -n %d -s -D /var/lib/vz/dump' failed: exit code 1",
			id)
	})
}

func ctResume(ctx context.Context, c *call) (any, error) {
	if g, err := c.guest("lxc", 255); err == nil && g.Running {
		return nil, die(255, "CT %d already running", g.VMID)
	}
	return c.worker(ctx, "vzresume", strconv.Itoa(c.vmid()), func(io.Writer) error {
		if _, err := c.guest("lxc", 255); err != nil {
			return err
		}
		return die(
			255,
			"command 'lxc-checkpoint -r -n %d --foreground -D /var/lib/vz/dump' failed: exit "+
				"code 1",
			c.vmid(),
		)
	})
}

func ctUnlock(_ context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 2)
	if err != nil {
		return nil, err
	}
	if g.Config["lock"] == "" {
		return nil, die(255, "no lock found trying to remove any lock")
	}
	return nil, c.change("lxc", true, func(_ *State, g *Guest) { delete(g.Config, "lock") })
}

// ctDestroy and vmDestroy check what they can before the worker, so that pvesh fails for those too.
func ctDestroy(ctx context.Context, c *call) (any, error) {
	g, err := c.guest("lxc", 2)
	if err != nil {
		return nil, err
	}
	if g.Config["protection"] == "1" {
		return nil, die(255, "can't remove CT %d - protection mode enabled", g.VMID)
	}
	if err := g.locked(false); err != nil {
		return nil, err
	}
	if g.HA && !c.on("purge") {
		return nil, die(255,
			"unable to remove CT %d - used in HA resources and purge parameter not set.", g.VMID)
	}
	if g.Running && !c.on("force") {
		return nil, die(255, "unable to destroy CT %d - container is running", g.VMID)
	}
	return c.worker(ctx, "vzdestroy", g.id(), func(out io.Writer) error {
		if err := c.configLock(ctx, out, "lxc"); err != nil {
			return err
		}
		if g.Running {
			fmt.Fprintf(out, "forced to stop CT %d before destroying!\n", g.VMID)
			if err := c.halt("lxc"); err != nil {
				return err
			}
		}
		if err := c.change("lxc", true, func(s *State, g *Guest) { s.forget(g) }); err != nil {
			return err
		}
		c.lab.dropCT(g.VMID)
		if c.on("purge") {
			fmt.Fprintf(out, "purging CT %d from related configurations..\n", g.VMID)
		}
		return nil
	})
}

// forget removes a guest, its disks and its pool membership; backups stay.
func (s *State) forget(g *Guest) {
	s.Guests = slices.DeleteFunc(s.Guests, func(x *Guest) bool { return x == g })
	for _, st := range s.Storages {
		st.Volumes = slices.DeleteFunc(st.Volumes,
			func(v *Volume) bool { return v.VMID == g.VMID && v.Content != "backup" })
	}
	for _, p := range s.Pools {
		p.Guests = slices.DeleteFunc(p.Guests, func(id int) bool { return id == g.VMID })
	}
}

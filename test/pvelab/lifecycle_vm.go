package pvelab

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"
)

// The machine of the recordings had no KVM: what a running VM does was read in the source, not run
// (facts 0).

func vmStart(ctx context.Context, c *call) (any, error) {
	if err := c.quorum(); err != nil {
		return nil, err
	}
	if g, err := c.guest("qemu", 255); err == nil && g.Running {
		return nil, die(255, "VM %d already running", g.VMID)
	}
	if v, err, ok := c.requestHA(ctx, "qemu", "start", func() error { return c.run("qemu") }); ok {
		return v, err
	}
	return c.worker(
		ctx,
		"qmstart",
		strconv.Itoa(c.vmid()),
		func(out io.Writer) error { return c.startVM(ctx, out) },
	)
}

func (c *call) startVM(ctx context.Context, out io.Writer) error {
	if err := c.configLock(ctx, out, "qemu"); err != nil {
		return err
	}
	g, err := c.guest("qemu", 255)
	if err != nil {
		return err
	}
	if err := g.locked(c.on("skiplock")); err != nil {
		return err
	}
	if g.Config["template"] == "1" {
		return die(255, "you can't start a vm if it's a template")
	}
	if g.StartError != "" {
		return die(255, "%s", g.StartError)
	}
	return c.run("qemu")
}

// vmStop on a stopped VM succeeds and says nothing, unlike pct.
func vmStop(ctx context.Context, c *call) (any, error) {
	if v, err, ok := c.requestHA(ctx, "qemu", "stop", func() error { return c.halt("qemu") }); ok {
		return v, err
	}
	return c.worker(ctx, "qmstop", strconv.Itoa(c.vmid()), func(out io.Writer) error {
		g, err := c.guest("qemu", 255)
		if err != nil {
			return err
		}
		if err := c.configLock(ctx, out, "qemu"); err != nil {
			return err
		}
		if !g.Running {
			return nil
		}
		if err := g.locked(c.on("skiplock")); err != nil {
			return err
		}
		return c.halt("qemu")
	})
}

// vmShutdown on a stopped VM succeeds with a complaint.
func vmShutdown(ctx context.Context, c *call) (any, error) {
	if v, err, ok := c.requestHA(ctx, "qemu", "stop", func() error { return c.halt("qemu") }); ok {
		return v, err
	}
	return c.worker(
		ctx,
		"qmshutdown",
		strconv.Itoa(c.vmid()),
		func(out io.Writer) error { return c.shutdownVM(ctx, out) },
	)
}

func (c *call) shutdownVM(ctx context.Context, out io.Writer) error {
	g, err := c.guest("qemu", 255)
	if err != nil {
		return err
	}
	if err := c.configLock(ctx, out, "qemu"); err != nil {
		return err
	}
	if !g.Running {
		fmt.Fprintf(c.p.err, "VM %d not running\n\n", g.VMID)
		return nil
	}
	if err := g.locked(c.on("skiplock")); err != nil {
		return err
	}
	if g.Stubborn {
		if err := c.lab.wait(ctx, time.Duration(c.num("timeout", 180))*time.Second); err != nil {
			return err
		}
		if !c.on("forceStop") {
			return die(255, "VM quit/powerdown failed - got timeout")
		}
		fmt.Fprintln(out, "VM still running - terminating now with SIGTERM")
	}
	return c.halt("qemu")
}

func vmReboot(ctx context.Context, c *call) (any, error) {
	return c.worker(ctx, "qmreboot", strconv.Itoa(c.vmid()), func(out io.Writer) error {
		g, err := c.guest("qemu", 255)
		if err != nil {
			return err
		}
		if !g.Running {
			fmt.Fprintf(c.p.err, "VM %d not running\n\n", g.VMID)
			return die(2, "VM %d not running", g.VMID)
		}
		if err := c.shutdownVM(ctx, out); err != nil {
			return err
		}
		return c.startVM(ctx, out)
	})
}

// vmNeedsRunning is reset, suspend and resume.
func vmNeedsRunning(typ string) func(context.Context, *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		g, err := c.guest("qemu", 2)
		if err != nil {
			return nil, err
		}
		if !g.Running {
			return nil, die(2, "VM %d not running", g.VMID)
		}
		return c.worker(
			ctx,
			typ,
			g.id(),
			func(io.Writer) error { return g.locked(c.on("skiplock")) },
		)
	}
}

func vmUnlock(_ context.Context, c *call) (any, error) {
	if _, err := c.guest("qemu", 2); err != nil {
		return nil, err
	}
	return nil, c.change("qemu", true, func(_ *State, g *Guest) { delete(g.Config, "lock") })
}

func vmCreate(ctx context.Context, c *call) (any, error) {
	if err := c.quorum(); err != nil {
		return nil, die(2, "%v", err)
	}
	taken := false
	_ = c.lab.db.view(func(s *State) { taken = s.guest(c.vmid()) != nil })
	if taken {
		return nil, die(
			255,
			"unable to create VM %d: VM %d already exists on node '%s'",
			c.vmid(),
			c.vmid(),
			c.node,
		)
	}
	return c.worker(ctx, "qmcreate", strconv.Itoa(c.vmid()), func(io.Writer) error {
		return c.lab.db.update(func(s *State) error {
			g := &Guest{VMID: c.vmid(), Type: "qemu", Node: c.node, Config: map[string]string{}}
			for _, k := range []string{"memory", "cores", "name", "ostype"} {
				if v := c.vals[k]; v != "" {
					g.Config[k] = v
				}
			}
			s.Guests = append(s.Guests, g)
			return nil
		})
	})
}

func vmDestroy(ctx context.Context, c *call) (any, error) {
	g, err := c.guest("qemu", 2)
	if err != nil {
		return nil, err
	}
	if g.Config["protection"] == "1" {
		return nil, die(255, "can't remove VM %d - protection mode enabled", g.VMID)
	}
	if err := g.locked(c.on("skiplock")); err != nil {
		return nil, err
	}
	if g.Running {
		return nil, die(25, "VM %d is running - destroy failed", g.VMID)
	}
	return c.worker(ctx, "qmdestroy", g.id(), func(out io.Writer) error {
		if err := c.configLock(ctx, out, "qemu"); err != nil {
			return err
		}
		if err := c.change("qemu", true, func(s *State, g *Guest) { s.forget(g) }); err != nil {
			return err
		}
		if c.on("purge") {
			fmt.Fprintf(out, "purging VM %d from related configurations..\n", g.VMID)
		}
		return nil
	})
}

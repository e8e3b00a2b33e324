package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Report is what the doctor finds out about one node.
type Report struct {
	Node     string        `json:"node"`
	Address  string        `json:"address"`
	HostKey  string        `json:"host_key"` // fingerprint that was accepted
	Server   string        `json:"server"`   // the version that it announces
	Dial     time.Duration `json:"dial_ns"`  // connecting and logging in
	Exec     time.Duration `json:"exec_ns"`  // the quickest of three `true`
	SFTP     bool          `json:"sftp"`
	Warnings []string      `json:"warnings"` // what works and could be better
}

// slowExec is what `true` may take beyond the network before something in the login shell's start-up files is the likely reason.
const slowExec = 50 * time.Millisecond

// Check connects to a node, runs `true` and opens SFTP. The error says what is wrong and how to repair it; the report holds what was found out before.
func (r *Remote) Check(ctx context.Context, name string) (Report, error) {
	n, done, err := r.enter(gate.Question{Op: gate.Stage{OnNode: gate.OnNode{Node: name}}})
	if err != nil {
		return Report{Node: name}, err
	}
	defer done()
	rep := Report{Node: name, Address: n.opts.addr(), Warnings: []string{}}
	began := time.Now()
	c, err := n.acquire(ctx)
	if err != nil {
		return rep, err
	}
	rep.Dial, rep.HostKey, rep.Server = time.Since(began), c.key, fmt.Sprintf("%.64q", c.client.ServerVersion())
	n.release(c)
	var trip time.Duration
	for i := range 4 {
		began := time.Now()
		if e, err := n.exec(ctx, command{text: "true", max: 1024}); err != nil {
			return rep, err
		} else if e.exit != 0 {
			return rep, failed("shell", "`true` ends with exit code %d on %s: %s", e.exit, name, clip(e.stderr))
		}
		if took := time.Since(began); i > 0 && (rep.Exec == 0 || took < rep.Exec) { // the first one probes the shell, too
			rep.Exec = took
		}
		began = time.Now()
		stop := c.watch("a round trip")
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		if stop(); err != nil {
			return rep, failed("lost", "the connection to %s was lost: %v", name, c.why(err))
		}
		if took := time.Since(began); trip == 0 || took < trip {
			trip = took
		}
	}
	if rep.Exec > slowExec+4*trip {
		rep.Warnings = append(rep.Warnings, fmt.Sprintf("every command takes %s on %s although the network needs %s: a start-up file of the login shell (bash reads ~/.bashrc for SSH commands, zsh ~/.zshenv) "+
			"does work; return from it early when the shell is not interactive", rep.Exec.Round(time.Millisecond), name, trip.Round(100*time.Microsecond)))
	}
	lacks := new([]string) // of its own: what was given up may still write to it
	if err := n.with(ctx, "opening", "/", func(_ context.Context, f *files, _ *pledge) error {
		_, err := f.Lstat("/")
		for _, ext := range []string{"posix-rename@openssh.com", "fsync@openssh.com", "statvfs@openssh.com"} {
			if _, has := f.HasExtension(ext); !has {
				*lacks = append(*lacks, "the SFTP server of "+name+" lacks "+ext)
			}
		}
		return err
	}); err != nil {
		rep.Warnings = append(rep.Warnings, "files cannot be moved: "+err.Error())
		return rep, nil
	}
	rep.SFTP, rep.Warnings = true, append(rep.Warnings, *lacks...)
	return rep, nil
}

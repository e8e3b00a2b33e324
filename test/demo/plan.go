package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// approved makes a call that waits, approves it as the account that runs the demo, and makes it
// again.
func (d *demo) approved(ctx context.Context, tool, args string) error {
	if err := d.show(ctx, "plan", tool, args); err != nil {
		return err
	}
	waits := exec.CommandContext(ctx, d.bin, "--config", filepath.Join(d.dir, "config.toml"),
		"call", "--json", tool, args)
	waits.Env = append(d.env(), "CAPONIER_APPROVAL_WAIT=100ms")
	out, err := waits.Output()
	var answer struct {
		ID string `json:"approval_id"`
	}
	if json.Unmarshal(out, &answer) != nil || answer.ID == "" {
		return fmt.Errorf("%s did not wait for a person: %w\n%s", tool, err, out)
	}
	if err := d.show(ctx, "approvals", "approve", answer.ID); err != nil {
		return err
	}
	return d.show(ctx, "call", tool, args)
}

// deviates has the deviant tool's plan approved, and holds that what it does instead is refused.
func (d *demo) deviates(ctx context.Context) error {
	err := d.approved(ctx, "deviant_act", `{"vmid":101,"how":"option"}`)
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		return fmt.Errorf("the deviant tool was not refused: %w", err)
	}
	return nil
}

// undone takes back the last call of a tool, and shows what the journal has of both.
func (d *demo) undone(ctx context.Context, tool string) error {
	id, err := d.last(ctx, tool)
	if err != nil {
		return err
	}
	if err := d.approved(ctx, "undo_call", fmt.Sprintf(`{"call":%q}`, id)); err != nil {
		return err
	}
	return d.show(ctx, "audit", "show", id)
}

// last is the id of the last call of a tool that succeeded.
func (d *demo) last(ctx context.Context, tool string) (id string, err error) {
	tail := exec.CommandContext(ctx, d.bin, "--config", filepath.Join(d.dir, "config.toml"),
		"audit", "tail", "--json", "-n", "1000")
	tail.Env = d.env()
	out, err := tail.Output()
	for line := range strings.Lines(string(out)) {
		var r struct {
			CallID  string `json:"call_id"`
			Kind    string `json:"kind"`
			Type    string `json:"type"`
			Tool    string `json:"tool"`
			Outcome string `json:"outcome"`
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Kind == "call" && r.Type == "outcome" &&
			r.Tool == tool && r.Outcome == "succeeded" {
			id = r.CallID
		}
	}
	if id == "" && err == nil {
		err = fmt.Errorf("the journal has no call of %s that succeeded", tool)
	}
	return id, err
}

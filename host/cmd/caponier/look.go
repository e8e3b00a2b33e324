package main

import (
	"context"
	"fmt"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// looks makes the door through which approvers look: it allows nothing above green, whatever the
// site says of a tool.
func (h *host) looks(o gate.Options, plugins gate.Runner) error {
	for _, name := range h.cfg.Approval.Looks {
		if t, err := h.lock().Tool(h.cfg.Plugin, name); err != nil || t.Kind != "tool" ||
			!t.Hints.ReadOnly {
			return fmt.Errorf("%s: [approval] looks: %s is not a tool of %s that only reads",
				h.cfg.File, name, h.cfg.Plugin.Lock)
		}
	}
	o.Confirmer = nil
	o.Mode = func(ctx context.Context) terms.Mode {
		m := h.mode(ctx)
		m.ReadOnly = true
		return m
	}
	h.lookDoor = gate.New(o, plugins)
	return nil
}

const maxReadings = 6

// look reads what a request is about, as the approver: that principal needs an entry in the site's
// data, as every other.
func (h *host) look(ctx context.Context, approver string,
	d approval.Detail) (readings []approval.Reading) {
	p := h.cfg.Identity.Configured(approver)
	for _, name := range h.cfg.Approval.Looks {
		tool, err := h.lock().Tool(h.cfg.Plugin, name)
		if err != nil { // not since looks
			continue
		}
		for _, args := range approval.LookArgs(tool.Params, d.Targets) {
			if len(readings) == maxReadings {
				return readings
			}
			a := h.lookDoor.Call(ctx,
				terms.Request{Source: "http", Principal: p, Tool: tool, Arguments: args})
			readings = append(readings, reading(name, a))
		}
	}
	return readings
}

func reading(name string, a terms.Answer) approval.Reading {
	out := outputOf(a)
	r := approval.Reading{Tool: name, Text: out.text()}
	switch {
	case a.Err != nil:
		r.Refused, r.Text = true, a.Err.Error()
	case a.Outcome != terms.Succeeded && out.Error != nil:
		r.Refused, r.Text = true, plaintext.Clean(out.Error.Message)
	case a.Outcome != terms.Succeeded:
		r.Refused = true
	}
	if runes := []rune(r.Text); len(runes) > 4000 {
		r.Text = string(runes[:4000]) + "\n… (cut)"
	}
	return r
}

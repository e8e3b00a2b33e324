package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

// looks makes the door through which approvers look: it allows nothing above green, whatever the
// site says of a tool.
func (h *host) looks(o gate.Options) error {
	for _, name := range h.cfg.Approval.Looks {
		if t, err := toolOf(h.cfg, h.lock(), name); err != nil || t.Kind != "tool" ||
			!t.Hints.ReadOnly {
			return fmt.Errorf("%s: [approval] looks: %s is not a tool of %s that only reads",
				h.cfg.File, name, h.cfg.Plugin.Lock)
		}
	}
	o.Confirmer = nil
	o.Mode = func() gate.Mode {
		m := mode(h.cfg)
		m.ReadOnly = true
		return m
	}
	h.lookDoor = gate.New(o)
	return nil
}

const maxReadings = 6

// look reads what a request is about, as the approver: that principal needs an entry in the site's
// data, as every other.
func (h *host) look(ctx context.Context, approver string,
	d approval.Detail) (readings []approval.Reading) {
	p := h.cfg.Identity.Configured(approver)
	for _, name := range h.cfg.Approval.Looks {
		tool, err := toolOf(h.cfg, h.lock(), name)
		if err != nil { // not since looks
			continue
		}
		for _, args := range lookArgs(tool, d.Targets) {
			if len(readings) == maxReadings {
				return readings
			}
			a := h.lookDoor.Call(ctx,
				gate.Request{Source: "http", Principal: p, Tool: tool, Arguments: args})
			readings = append(readings, reading(name, a))
		}
	}
	return readings
}

// lookArgs returns the arguments with which a tool reads about targets: one set for each guest, or
// else for each node. It returns none for a tool that takes neither, or that requires more.
func lookArgs(tool *gate.Tool, t gate.Targets) (all [][]byte) {
	var guest, node gate.Param
	for _, p := range tool.Params {
		switch {
		case p.Type == "array":
		case p.Target == "vmid":
			guest = p
		case p.Target == "node":
			node = p
		}
	}
	var sets []map[string]any
	switch {
	case guest.Name != "":
		for _, id := range t.VMIDs {
			set := map[string]any{guest.Name: id}
			if n, err := strconv.ParseInt(id, 10, 64); err == nil && guest.Type == "integer" {
				set[guest.Name] = n
			}
			if node.Name != "" && len(t.Nodes) == 1 {
				set[node.Name] = t.Nodes[0]
			}
			sets = append(sets, set)
		}
	case node.Name != "":
		for _, n := range t.Nodes {
			sets = append(sets, map[string]any{node.Name: n})
		}
	}
	for _, set := range sets {
		lacks := func(p gate.Param) bool { return p.Required && set[p.Name] == nil }
		if data, err := json.Marshal(set); err == nil && !slices.ContainsFunc(tool.Params, lacks) {
			all = append(all, data)
		}
	}
	return all
}

func reading(name string, a gate.Answer) approval.Reading {
	out := outputOf(a)
	r := approval.Reading{Tool: name, Text: out.text()}
	switch {
	case a.Err != nil:
		r.Refused, r.Text = true, a.Err.Error()
	case a.Outcome != gate.Succeeded && out.Error != nil:
		r.Refused, r.Text = true, plaintext.Clean(out.Error.Message)
	case a.Outcome != gate.Succeeded:
		r.Refused = true
	}
	if runes := []rune(r.Text); len(runes) > 4000 {
		r.Text = string(runes[:4000]) + "\n… (cut)"
	}
	return r
}

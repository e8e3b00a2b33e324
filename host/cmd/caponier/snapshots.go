package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/undo"
	"github.com/spf13/cobra"
)

func snapshotsCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshots",
		Short: "List the snapshots of guests that the host took before calls changed them",
		Args:  cobra.NoArgs,
		RunE: g.does(func(v *verb) error {
			all, err := v.snapshots()
			if err != nil {
				return err
			}
			return list(v, all, "GUEST|CLUSTER|SNAPSHOT|BEFORE CALL|OF|TOOL|MADE|EXPIRES",
				snapshotRow)
		}),
	}
}

func snapshotRow(s undo.Snapshot) []string {
	name := s.Name
	if !s.Taken {
		name += " (perhaps not there)"
	}
	return []string{s.VMID, plaintext.Show(s.Cluster), name, s.Call, plaintext.Show(s.Principal),
		plaintext.Show(s.Tool), s.Made.Format(time.RFC3339), s.Expires.Format(time.RFC3339)}
}

// snapshots lists what the store records.
func (v *verb) snapshots() (all []undo.Snapshot, err error) {
	cfg, err := v.load()
	if err != nil {
		return nil, err
	}
	s, err := store.Open(cfg.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Snapshots(v.ctx)
}

func undoCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "undo CALL",
		Short: "Undo a call of [cli] principal: roll its guest back to the host's snapshot",
		Long: "undo calls " + undo.RollbackTool + " with the snapshot that the host took before " +
			"the call. It is a call of its own: decided, planned, approved where it is red. What " +
			"the guest did since is lost.",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, cfg *config.Config) error {
			caller, err := cfg.Caller()
			if err != nil {
				return usage(err)
			}
			all, err := v.snapshots()
			if err != nil {
				return err
			}
			args, err := undo.Rollback(all, v.args[0], caller.ID)
			if err != nil {
				return &exit{exitRefused, err}
			}
			data, err := json.Marshal(args)
			if err != nil {
				return err
			}
			v.args = []string{undo.RollbackTool, string(data)}
			return v.call(false)
		}),
	}
}

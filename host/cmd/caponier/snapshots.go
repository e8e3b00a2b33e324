package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
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
	s, err := openStore(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Snapshots(v.ctx)
}

func undoCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "undo CALL",
		Short: "Undo a call of [cli] principal, as far as the host kept what takes it back",
		Long: "undo calls " + undo.Tool + ", which is a call of its own: decided, planned, " +
			"approved where it is red. A guest that has a snapshot of the host is rolled back: " +
			"what it did since is lost. All else is taken back step by step, unless somebody " +
			"changed it since.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			data, err := json.Marshal(map[string]string{"call": v.args[0]})
			if err != nil {
				return err
			}
			v.args = []string{undo.Tool, string(data)}
			return v.call(false)
		}),
	}
}

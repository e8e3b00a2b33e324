package undo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// lookAt tells how the guest, the unit or the file of a call is.
func lookAt(ctx context.Context, r *gate.Running) (any, error) {
	args := r.Call.Args.Value
	node, _ := args["node"].(string)
	if unit, is := args["unit"].(string); is {
		out, err := guest{r: r, node: node}.run(ctx, "systemctl", "show",
			"--property=ActiveState,UnitFileState", "--", unit)
		if err == nil && !strings.Contains(out, "ActiveState=") {
			err = failed("%s does not say how unit %s is", node, unit)
		}
		return State{Status: strings.Join(strings.Fields(out), " ")}, err
	}
	if path, is := args["file"].(string); is {
		most, _ := args["max_bytes"].(int64)
		return fileState(ctx, r, abi.OnNode{Node: node}, path, most)
	}
	g, err := find(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case g.gone:
		return State{Status: absent}, nil
	}
	var now struct{ Status, QMPStatus string }
	values := map[string]any{}
	if err := g.get(ctx, &now, "status/current"); err != nil {
		return nil, err
	}
	if err := g.get(ctx, &values, "config", "--current", "1"); err != nil {
		return nil, err
	}
	s := State{Status: now.Status, Values: map[string]string{}}
	if now.QMPStatus != "" {
		s.Status = now.QMPStatus
	}
	for name, v := range values {
		switch v := v.(type) {
		case string:
			s.Values[name] = v
		case float64, bool, json.Number:
			s.Values[name] = fmt.Sprint(v)
		}
	}
	if s.Config = s.Values["digest"]; s.Status == "" || s.Config == "" {
		return nil, failed("guest %s has no status, or no digest of its configuration", g.VMID)
	}
	return s, nil
}

// fileState reads a file whole, or says that it is too large.
func fileState(ctx context.Context, r *gate.Running, on abi.OnNode, path string, most int64) (
	State, error) {
	res, err := r.Operate(ctx, abi.SFTPStat{OnNode: on, Path: path})
	if op := (*gate.OpError)(nil); errors.As(err, &op) && op.Code == "not_found" {
		return State{Status: absent}, nil
	}
	if err != nil {
		return State{}, err
	}
	is, _ := res.Value.(abi.FileInfo)
	s := State{Status: large, Mode: fmt.Sprintf("%04o", uint32(is.Mode))}
	if is.Size > most || is.Type != "file" {
		return s, nil
	}
	res, err = r.Operate(ctx, abi.SFTPRead{OnNode: on, Path: path, MaxBytes: most + 1})
	if err != nil {
		return s, err
	}
	read, _ := res.Value.(abi.ReadResponse)
	data, err := read.Data.Bytes()
	if err != nil || !read.EOF || int64(len(data)) > most {
		return s, err
	}
	sum := sha256.Sum256(data)
	s.Status, s.Data = "sha256:"+hex.EncodeToString(sum[:]), data
	return s, nil
}

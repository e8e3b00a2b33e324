package undo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// lookAt tells how the guest, the unit or the file of a call is.
func lookAt(ctx context.Context, r *gate.Running) (any, error) {
	args := r.Call.Args.Value
	node, _ := args["node"].(string)
	if unit, is := args["unit"].(string); is {
		out, err := guest{r: r, node: node}.run(ctx, "systemctl", "show",
			"--property=ActiveState,UnitFileState", "--", unit)
		lines := slices.Sorted(strings.Lines(out))
		if err == nil && !unitState.MatchString(strings.Join(lines, "")) {
			err = failed("%s does not say how unit %s is: %.100q", node, unit, out)
		}
		return State{Status: strings.Join(strings.Fields(strings.Join(lines, " ")), " ")}, err
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
	now, err := g.object(ctx, "status/current")
	if err != nil {
		return nil, err
	}
	values, err := g.object(ctx, "config", "--current", "1")
	if err != nil {
		return nil, err
	}
	s := State{Values: map[string]string{}}
	for name, v := range values {
		switch v := v.(type) {
		case string, bool, json.Number:
			s.Values[name] = fmt.Sprint(v)
		default:
			if name != "lxc" { // a list of raw settings, which no command sets
				return nil, failed("the configuration of guest %s has no value of %s", g.VMID, name)
			}
		}
	}
	status, _ := now["status"].(string)
	s.Status = status
	if g.Type == "qemu" { // paused is running otherwise
		s.Status, _ = now["qmpstatus"].(string)
	}
	s.Config, _ = values["digest"].(string)
	if status == "" || s.Status == "" || s.Config == "" {
		return nil, failed("guest %s has no status, or no digest of its configuration", g.VMID)
	}
	return s, nil
}

// unitState is how systemctl tells it. A unit that has no file has no UnitFileState.
var unitState = regexp.MustCompile(`^ActiveState=[a-z-]+\nUnitFileState=[a-z-]*\n$`)

// object reads what the API says of the guest, where it says each thing once. Numbers keep their
// text.
func (g guest) object(ctx context.Context, what string, options ...string) (map[string]any,
	error) {
	var raw json.RawMessage
	if err := g.get(ctx, &raw, what, options...); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	all := map[string]any{}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, failed("%s is no object: %.40q", what, raw)
	}
	for d.More() {
		key, _ := d.Token() // which is text, since get has read all of it
		name, _ := key.(string)
		if _, twice := all[name]; twice {
			return nil, failed("%s says %.40q twice", what, name)
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		all[name] = v
	}
	return all, nil
}

// fileState reads a file whole, or says that it is too large.
func fileState(ctx context.Context, r *gate.Running, on abi.OnNode, path string, most int64) (
	State, error) {
	res, err := r.Operate(ctx, abi.SFTPStat{OnNode: on, Path: path})
	if op := (*terms.OpError)(nil); errors.As(err, &op) && op.Code == "not_found" {
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
	s.Status, s.Data = digest(data), data
	return s, nil
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

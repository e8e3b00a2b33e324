package undo

import (
	"fmt"
	"strconv"
)

// RollbackTool is the tool that sets a guest back to a snapshot. It is called by whoever undoes a
// call, and decided as every call.
const RollbackTool = "rollback_snapshot"

// Rollback returns the arguments of [RollbackTool] that undo a call of a principal, by the
// snapshots that the host took. The error says why there is no such way back.
func Rollback(all []Snapshot, call, principal string) (map[string]any, error) {
	var found []Snapshot
	for _, s := range all {
		if s.Call == call {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("the host has no snapshot from before call %s: nothing undoes it "+
			"(caponier snapshots lists those that it has)", call)
	case len(found) > 1:
		return nil, fmt.Errorf("call %s changed %d guests: roll each back by itself, with %s and "+
			"the names that caponier snapshots lists", call, len(found), RollbackTool)
	}
	s := found[0]
	id, err := strconv.Atoi(s.VMID)
	switch {
	case s.Principal != principal:
		return nil, fmt.Errorf("call %s was made by %s, and %s cannot undo it", call, s.Principal,
			principal)
	case !s.Taken:
		return nil, fmt.Errorf("the host ended while it took the snapshot before call %s: whether "+
			"guest %s has one, and whether the call did anything, is not known", call, s.VMID)
	case err != nil:
		return nil, err
	}
	for _, later := range all {
		if later.Cluster == s.Cluster && later.VMID == s.VMID && later.Made.After(s.Made) {
			return nil, fmt.Errorf("guest %s was changed since by call %s: undo that one first",
				s.VMID, later.Call)
		}
	}
	args := map[string]any{"guest_id": id, "name": s.Name, "node": s.Node}
	if s.Running {
		args["start"] = true
	}
	return args, nil
}

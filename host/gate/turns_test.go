package gate

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Operations are asked for in random order, all at once. Two are under way together only if both
// copy files, and only in a call that has no plan, is not planned and acts on no guest.
func TestOnlyCopiesAreUnderWayTogether(t *testing.T) {
	node := abi.OnNode{Node: "pve1"}
	kinds := []abi.Op{abi.SFTPGet{OnNode: node}, abi.SFTPPut{OnNode: node},
		abi.SFTPStat{OnNode: node}, abi.SSHExec{OnNode: node}, abi.SFTPRemove{OnNode: node}}
	for way, together := range map[string]bool{"run": true, "planned": false, "by a plan": false,
		"on a guest": false} {
		var mu sync.Mutex
		now := map[string]int{} // by import
		most := 0
		w := &world{decide: allow(terms.Green), during: func(q terms.Question) {
			mu.Lock()
			now[q.Op.Import()]++
			all, copies := 0, now["sftp_get"]+now["sftp_put"]
			for _, n := range now {
				all += n
			}
			if most = max(most, all); all > 1 && (all != copies || !together) {
				t.Errorf("%s: under way together: %v", way, now)
			}
			mu.Unlock()
			time.Sleep(200 * time.Microsecond)
			mu.Lock()
			now[q.Op.Import()]--
			mu.Unlock()
		}}
		w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
			r.Call.Planning = way == "planned"
			if way == "by a plan" {
				r.Call.Plan = noPlan{}
			}
			if way == "on a guest" {
				r.Call.Targets.VMIDs = []string{"101"}
			}
			var all sync.WaitGroup
			for range 200 {
				op := kinds[rand.IntN(len(kinds))]
				if rand.IntN(2) == 0 {
					op = kinds[0]
				}
				all.Go(func() {
					if _, err := r.Operate(ctx, op); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			return terms.Output{JSON: json.RawMessage(`{}`)}, nil
		}
		if a := w.call(`{}`); a.Err != nil {
			t.Errorf("%s: %v", way, a.Err)
		}
		if (most > 1) != together {
			t.Errorf("%s: at most %d were under way together", way, most)
		}
	}
}

// noPlan is a plan that every operation fits.
type noPlan struct{}

func (noPlan) Digest() string                      { return "" }
func (noPlan) Text() string                        { return "" }
func (noPlan) Complete() (ok bool, ends string)    { return true, "" }
func (noPlan) Next(terms.Question) terms.PlanFacts { return terms.PlanFacts{} }
func (noPlan) Take()                               {}

package policy

import (
	"context"
	"testing"
)

// Every site that we ship is fit to decide, by the same test as a user's.
func TestShippedSitesAreGood(t *testing.T) {
	for _, dir := range []string{"../../policies/site", "../../policies/examples/homelab", "../../policies/examples/team", "../../examples/lab/site"} {
		r, err := Check(context.Background(), dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		t.Logf("%s: %+v", dir, r)
	}
}

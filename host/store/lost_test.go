package store_test

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/store/postgres"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

// TestADatabaseThatLostATableThawsNothing takes from the database of a host that runs what its
// decisions read. Another host freezes afterwards. Whoever decides then sees the freeze, or an
// error.
func TestADatabaseThatLostATableThawsNothing(t *testing.T) {
	server := pgtest.Start(t)
	for _, lost := range []string{"DELETE FROM caponier.changes", "TRUNCATE caponier.changes",
		"DROP TABLE caponier.changes CASCADE", "DROP TABLE caponier.tokens CASCADE",
		"DROP TABLE caponier.freezes CASCADE", "TRUNCATE caponier.schema",
		"DROP TABLE caponier.schema CASCADE", "DROP SCHEMA caponier CASCADE"} {
		database := server.Database()
		a := shared(t, postgres.Options{URL: server.URL(database)})
		b := shared(t, postgres.Options{URL: server.URL(database)})
		reads(t, a, anOperation, "")
		server.SQL(database, lost)
		for range 2 { // what was read is remembered
			_, _ = a.Freezes(a.Look(bg, anOperation))
		}
		err := b.AddFreeze(bg, freeze.Freeze{Kind: "node", Name: "pve1"})
		if err != nil && strings.HasSuffix(lost, " caponier.changes") {
			t.Errorf("%s: freezing: %v", lost, err)
		}
		for _, q := range []terms.Question{anOperation, aCall} {
			ctx := a.Look(bg, q)
			var counting error
			if q.Kind == terms.KindCall {
				_, _, counting = a.Take(ctx, call("agent"))
			}
			all, wrong := a.Freezes(ctx)
			if err == nil && counting == nil && wrong == nil && len(all) != 1 {
				t.Errorf("%s: another host froze, and a question of kind %d sees %v", lost, q.Kind,
					all)
			}
			if strings.HasSuffix(lost, " caponier.changes") &&
				(wrong == nil || !strings.Contains(wrong.Error(), "has lost its row")) {
				t.Errorf("%s: it is told as %v", lost, wrong)
			}
		}
	}
}

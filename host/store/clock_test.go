package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/terms"
)

// machine is a machine whose clock is set forward and back while it runs.
type machine struct {
	ran  atomic.Int64 // nanoseconds since it started
	wall atomic.Int64 // that its clock is ahead of a clock that is never set
}

var started = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)

func (m *machine) now() time.Time {
	return started.Add(time.Duration(m.ran.Load() + m.wall.Load()))
}
func (m *machine) boot() time.Duration { return time.Duration(m.ran.Load()) }

func (m *machine) open(t *testing.T, dir string) *Store {
	return open(t, Options{Dir: dir, Now: m.now, Boot: m.boot})
}

// With any change of the clock, a yes, a no and a session never last longer than their time, and
// a caller is never refused for longer than the window of its rate. A steered clock may lose a
// thousandth, and one second is lost to rounding.
func TestAClockThatIsSetNeitherLocksOutNorExtends(t *testing.T) {
	const ttl = 15 * time.Minute
	const most = ttl + 3*time.Second + ttl/1000
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(round), 7))
			m, dir := &machine{}, filepath.Join(t.TempDir(), "state")
			m.ran.Store(int64(time.Hour))
			stores := []*Store{m.open(t, dir), m.open(t, dir)}
			type granted struct {
				key   string
				at    int64 // when, by the time that the machine runs
				taken bool
			}
			var yes []granted
			sessions := map[string]int64{}
			busy := int64(-1) // since when the caller called as often as it may
			for step := range 60 {
				s := stores[r.IntN(2)]
				switch r.IntN(4) {
				case 0: // time goes by
					m.ran.Add(r.Int64N(int64(10 * time.Minute)))
				case 1: // the clock is set
					m.wall.Add(r.Int64N(int64(4*time.Hour)) - int64(2*time.Hour))
				case 2:
					id := fmt.Sprint(step)
					q := approval.Request{ID: id, Key: id, Principal: "agent", TTL: ttl,
						Detail: json.RawMessage("{}")}
					_, err := s.Join(bg, q, 1000)
					_, err2 := s.Decide(bg, id, approval.Verdict{Approve: true, By: "ann"})
					err3 := s.Begin(bg, approval.Session{ID: id, Name: "ann",
						Expires: m.now().Add(ttl)})
					if err := errors.Join(err, err2, err3); err != nil {
						t.Fatal(err)
					}
					yes = append(yes, granted{key: id, at: m.ran.Load()})
					sessions[id] = m.ran.Load()
				case 3:
					m.ran.Add(int64(time.Second))
				}
				for id, at := range sessions {
					list, err := s.Sessions(bg, id)
					if err != nil {
						t.Fatal(err)
					}
					if age := time.Duration(m.ran.Load() - at); len(list) > 0 && age > most {
						t.Errorf("step %d: a session of %s is valid after %s", step, ttl, age)
					}
				}
				for i, y := range yes {
					age := time.Duration(m.ran.Load() - y.at)
					if y.taken || age < most && r.IntN(3) > 0 {
						continue
					}
					if _, err := s.Consume(bg, y.key); err == nil {
						yes[i].taken = true
						if age > most {
							t.Errorf("step %d: a yes of %s is used after %s", step, ttl, age)
						}
					}
				}
				// A caller that waits for the window is not refused after it.
				counts, back, err := s.Take(bg, call("agent"))
				if err != nil {
					t.Fatal(err)
				}
				if counts.CallsRetryS > window+1 {
					t.Errorf("step %d: come back in %d s", step, counts.CallsRetryS)
				}
				back()
				if busy < 0 || r.IntN(4) == 0 {
					if _, _, err := s.Take(bg, call("agent")); err != nil {
						t.Fatal(err)
					}
					busy = m.ran.Load()
				} else if waited := time.Duration(m.ran.Load() - busy); waited > 2*time.Minute &&
					counts.Calls60s > 1 {
					t.Errorf("step %d: %d calls are counted after %s without any", step,
						counts.Calls60s, waited)
				}
			}
		})
	}
}

// Each version since then is taken over with the tables that it has.
func TestAStoreOfEachLaterVersionIsTakenOver(t *testing.T) {
	undo := []string{3: "DROP TABLE snapshots", 4: "DROP TABLE steps; ALTER TABLE " +
		"snapshots DROP COLUMN host; ALTER TABLE snapshots DROP COLUMN program",
		5: "DROP TABLE leases",
		6: "ALTER TABLE approvals DROP COLUMN need; ALTER TABLE approvals DROP COLUMN answers",
		7: "ALTER TABLE stages DROP COLUMN missing"}
	if len(undo) != schemaVersion {
		t.Fatalf("say what version %d added", schemaVersion)
	}
	for have := 3; have < schemaVersion; have++ {
		dir := filepath.Join(t.TempDir(), "state")
		s := open(t, Options{Dir: dir})
		want := tables(t, s)
		at := terms.StageDir{Node: "pve1", Dir: "/tmp/1"}
		if err := s.PutStage(bg, at); err != nil {
			t.Fatal(err)
		}
		without := slices.Clone(undo[have:])
		slices.Reverse(without) // the newest first
		_, err := s.sure.Exec(strings.Join(without, ";") +
			fmt.Sprintf(";PRAGMA user_version = %d", have))
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		s = open(t, Options{Dir: dir})
		if got := tables(t, s); !slices.Equal(got, want) {
			t.Errorf("version %d has %q, want %q", have, got, want)
		}
		if dead, err := s.DeadStages(bg); len(dead) != 1 || err != nil {
			t.Errorf("version %d: %v, %v", have, dead, err)
		}
	}
}

// tables lists the columns of all tables.
func tables(t *testing.T, s *Store) (names []string) {
	rows, err := s.quick.Query("SELECT m.name || '.' || c.name FROM sqlite_master m, " +
		"pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	names, err = scan(rows, func(r Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Version 2 is what the releases before this one made.
func TestAStoreOfVersion2IsTakenOver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, Options{Dir: dir})
	q := approval.Request{ID: "1", Key: "k", Principal: "agent", TTL: time.Minute,
		Detail: json.RawMessage("{}")}
	if _, err := s.Join(bg, q, 9); err != nil {
		t.Fatal(err)
	}
	_, err := s.sure.Exec("ALTER TABLE approvals DROP COLUMN origin; ALTER TABLE approvals " +
		"DROP COLUMN need; ALTER TABLE approvals DROP COLUMN answers; DROP TABLE sessions;" +
		"DROP TABLE stages; DROP TABLE trial; DROP TABLE snapshots; DROP TABLE steps; " +
		"DROP TABLE leases; CREATE " +
		"TABLE tokens (id TEXT); PRAGMA " +
		"user_version = 2")
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	if _, err := s.Decide(bg, "1", approval.Verdict{Approve: true, By: "ann"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Consume(bg, "k"); err != nil {
		t.Error(err)
	}
	if err := s.PutStage(bg, terms.StageDir{Node: "pve1", Dir: "/tmp/1"}); err != nil {
		t.Error(err)
	}
}

func TestReadyTriesToWrite(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	if err := s.Ready(bg); err != nil {
		t.Fatal(err)
	}
	if _, err := s.quick.Exec("PRAGMA query_only = 1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(bg); err == nil {
		t.Error("ready although nothing can be written")
	}
	s.Close()
	if err := s.Ready(bg); err == nil {
		t.Error("a closed store is ready")
	}
}

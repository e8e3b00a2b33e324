package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
)

// aRequest asks for so many persons.
func aRequest(id string, need int) approval.Request {
	return approval.Request{ID: id, Key: "k" + id, Principal: "agent", TTL: time.Minute,
		Detail: []byte("{}"), Need: need}
}

func yes(by string) approval.Verdict {
	return approval.Verdict{Approve: true, By: by, Channel: "web", Ticket: "T-" + by, Note: "why"}
}

// severalPersons holds a store to what an approval of several persons is.
func severalPersons(t *testing.T, a, b engine, c *clock) {
	must := func(e engine, id string, v approval.Verdict, state string, answers int) {
		t.Helper()
		r, err := e.Decide(bg, id, v)
		if err != nil || r.State != state || len(r.Answers) != answers || r.Need != 2 {
			t.Fatalf("%+v: %+v, %v", v, r, err)
		}
	}
	join := func(id string) {
		t.Helper()
		if r, err := a.Join(bg, aRequest(id, 2), 9); err != nil || r.Need != 2 ||
			r.Answers == nil || len(r.Answers) > 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	join("1")
	c.add(30 * time.Second)
	must(a, "1", yes("ann"), approval.Waiting, 1)
	if _, err := b.Consume(bg, "k1"); !errors.Is(err, approval.ErrNone) {
		t.Errorf("it was used after the first yes: %v", err)
	}
	for _, again := range []string{"ann", "ANN"} {
		if _, err := b.Decide(bg, "1", yes(again)); !errors.Is(err, approval.ErrLacks) {
			t.Errorf("%s counts twice: %v", again, err)
		}
	}
	terminal := approval.Verdict{Approve: true, By: "cyd", Channel: "cli"}
	if _, err := a.Join(bg, aRequest("4", 3), 9); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Decide(bg, "4", terminal); err != nil {
		t.Fatal(err)
	}
	terminal.By = "bob"
	if _, err := b.Decide(bg, "4", terminal); !errors.Is(err, approval.ErrLacks) {
		t.Errorf("a terminal counts twice: %v", err)
	}
	if _, err := b.Decide(bg, "1", yes("Agent")); err == nil {
		t.Error("the requester gave a yes")
	}
	must(b, "1", yes("bob"), approval.Approved, 2)
	used, err := a.Consume(bg, "k1")
	if err != nil || len(used.Answers) != 2 || used.Answers[0].By != "ann" ||
		used.Answers[0].Ticket != "T-ann" || used.Answers[1].Note != "why" {
		t.Errorf("%+v, %v", used, err)
	}
	if _, err := b.Consume(bg, "k1"); !errors.Is(err, approval.ErrNone) {
		t.Errorf("it was used twice: %v", err)
	}
	join("2")
	must(a, "2", yes("ann"), approval.Waiting, 1)
	must(b, "2", approval.Verdict{By: "bob", Channel: "cli"}, approval.Denied, 1)
	if _, err := a.Decide(bg, "2", yes("eve")); !errors.Is(err, approval.ErrAnswered) {
		t.Errorf("a yes after a no: %v", err)
	}
	join("3") // the first yes gives no more time
	c.add(40 * time.Second)
	must(a, "3", yes("ann"), approval.Waiting, 1)
	c.add(25 * time.Second)
	if _, err := b.Decide(bg, "3", yes("bob")); !errors.Is(err, approval.ErrNone) {
		t.Errorf("a yes after it expired: %v", err)
	}
}

// Persons answer, take back and use at random, on two handles at once. No approval is used without
// as many different persons as it needs, or twice, or after a no.
func noneIsUsedWithoutItsPersons(t *testing.T, a, b engine, _ *clock) {
	people := []string{"ann", "bob", "cyd", "Ann"}
	for round := range 30 {
		id, need := fmt.Sprint("r", round), 1+round%3
		if _, err := a.Join(bg, aRequest(id, need), 99); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var uses, denied atomic.Int32
		for _, e := range []engine{a, b} {
			for worker := range 2 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
					for range 8 {
						switch r.IntN(8) {
						case 0:
							v := approval.Verdict{By: people[r.IntN(3)], Channel: "web"}
							if _, err := e.Decide(bg, id, v); err == nil {
								denied.Add(1)
							}
						case 1, 2, 3:
							used, err := e.Consume(bg, "k"+id)
							if err == nil {
								uses.Add(1)
								hold(t, used, need)
							} else if !errors.Is(err, approval.ErrNone) {
								t.Error(err)
							}
						default:
							_, err := e.Decide(bg, id, yes(people[r.IntN(len(people))]))
							if err != nil && !errors.Is(err, approval.ErrLacks) &&
								!errors.Is(err, approval.ErrAnswered) {
								t.Error(err)
							}
						}
					}
				})
			}
		}
		wg.Wait()
		if uses.Load() > 1 || uses.Load()+denied.Load() > 1 {
			t.Errorf("round %d: %d uses, %d noes", round, uses.Load(), denied.Load())
		}
	}
}

func hold(t *testing.T, r approval.Request, need int) {
	var persons []string
	for _, y := range r.Answers {
		if !slices.Contains(persons, strings.ToLower(y.By)) {
			persons = append(persons, strings.ToLower(y.By))
		}
	}
	if len(persons) != need || len(r.Answers) != need || r.State != approval.Used {
		t.Errorf("it was used as %+v, and needs %d", r, need)
	}
}

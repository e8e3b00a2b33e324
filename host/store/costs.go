package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// OverBudget is the error of a reservation that does not fit into what is left of a day's budget.
// Nothing was reserved.
type OverBudget struct {
	Principal           string
	Asked, Spent, Limit int64     // micro-dollars; Spent includes what others have reserved
	Free                time.Time // when the next day begins
}

func (e *OverBudget) Error() string {
	return fmt.Sprintf("%d micro-dollars for %s would go over the day's limit of %d, of which %d "+
		"are spent or reserved; the next day begins at %s", e.Asked, e.Principal, e.Limit, e.Spent,
		e.Free.Format(time.RFC3339))
}

const maxMicros = 1 << 50

// Reserve takes micro-dollars out of the principal's budget of the (UTC) day before they are spent,
// or returns *OverBudget. The caller calls settle once with what was really spent, which may be
// more; a reservation that is never settled stays spent.
func (s *Store) Reserve(
	ctx context.Context, principal string, micros, limit int64,
) (settle func(ctx context.Context, spent int64) error, err error) {
	if micros < 0 || micros > maxMicros {
		return nil, fmt.Errorf("reserving %d micro-dollars: want 0 to %d", micros, int64(maxMicros))
	}
	id, err := get(ctx, s, s.sure, fmt.Sprintf("reserving %d micro-dollars", micros),
		func(t tx) (id int64, err error) {
			now := s.opt.Now().UTC()
			today, old := now.Format(time.DateOnly), now.AddDate(0, 0, -31).Format(time.DateOnly)
			if err := t.exec("DELETE FROM costs WHERE day < ?", old); err != nil {
				return 0, err
			}
			var spent int64
			if err := t.row(spentToday, principal, today).Scan(&spent); err != nil {
				return 0, err
			}
			if micros > limit-spent {
				return 0, &OverBudget{principal, micros, spent, limit,
					now.Truncate(24*time.Hour).AddDate(0, 0, 1)}
			}
			err = t.row("INSERT INTO costs (principal, day, micros) VALUES (?, ?, ?) RETURNING id",
				principal, today, micros).Scan(&id)
			return id, err
		})
	if over := (*OverBudget)(nil); errors.As(err, &over) {
		return nil, over
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, spent int64) error { return s.settle(ctx, id, spent) }, nil
}

func (s *Store) settle(ctx context.Context, id, spent int64) error {
	if spent < 0 || spent > maxMicros {
		return fmt.Errorf("settling %d micro-dollars: want 0 to %d", spent, int64(maxMicros))
	}
	return s.do(ctx, s.sure, "settling a reservation", func(t tx) error {
		return t.one("UPDATE costs SET micros = ?, settled = 1 WHERE id = ? AND settled = 0", spent,
			id)
	})
}

// Usage is what the store counts now.
type Usage struct {
	Waiting   int64            // requests that wait for a person
	USDMicros map[string]int64 // spent or reserved today, of the 100 principals who spent most
}

// Usage reads what the store counts.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	return get(ctx, s, s.quick, "reading what the store counts", func(t tx) (Usage, error) {
		u := Usage{USDMicros: map[string]int64{}}
		err := t.row("SELECT count(*) FROM approvals WHERE "+live+" AND state = 'waiting'", s.ms(),
			s.origin()).Scan(&u.Waiting)
		if err != nil {
			return u, err
		}
		_, err = all(t, func(r Row) (_ struct{}, err error) {
			var who string
			var micros int64
			err = r.Scan(&who, &micros)
			u.USDMicros[who] = micros
			return struct{}{}, err
		}, "SELECT principal, sum(micros) FROM costs WHERE day = ? GROUP BY principal "+
			"ORDER BY 2 DESC LIMIT 100", s.day())
		return u, err
	})
}

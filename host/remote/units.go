package remote

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	unitTime = 5 * time.Minute // for which a node's answer about a unit is kept
	maxUnits = 256             // answers that are kept for a node
)

// A word that systemctl could take for an option, a pattern or several units is not a unit name
// (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9_@:][A-Za-z0-9_@:.\\-]{0,254}$`)

// ask runs a command on a node, of which the host needs the answer.
type ask func(ctx context.Context, argv []string) (command.Ended, error)

// units are what a node calls its units. The zero value is empty.
type units struct {
	mu    sync.Mutex // guards names
	names map[string]unitNames
}

type unitNames struct {
	all   []string
	until time.Time
}

// of asks the node for all names of the units, the given ones included, sorted. An alias, and
// a name without its suffix, lead to the same names (systemctl(1), Id and Names). A unit that does
// not exist has one name. Answers are kept for unitTime.
func (u *units) of(
	ctx context.Context, run ask, node string, asked []string,
) (terms.Facts, error) {
	all := []string{}
	for _, name := range asked {
		if !unitName.MatchString(name) {
			return terms.Facts{}, effect.Failed("bad_input", "%q is not the name of a unit", name)
		}
		names, known := u.get(name, time.Now())
		if !known {
			now := time.Now()
			out, err := run(ctx, []string{"systemctl", "show", "--property=Id,Names", "--", name})
			if err != nil {
				return terms.Facts{}, err
			}
			if names = readNames(string(out.Stdout)); out.Exit != 0 || names == nil {
				return terms.Facts{}, effect.Failed("failed",
					"asking %s for the names of unit %s: "+
						"systemctl ended with exit code %d: %q", node, name, out.Exit,
					command.Clip(out.Stderr))
			}
			u.put(name, unitNames{names, now.Add(unitTime)})
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return terms.Facts{Units: slices.Compact(all)}, nil
}

func (u *units) get(name string, now time.Time) ([]string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.names[name]
	return known.all, now.Before(known.until)
}

func (u *units) put(name string, names unitNames) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names == nil || len(u.names) >= maxUnits {
		u.names = map[string]unitNames{}
	}
	u.names[name] = names
}

// readNames reads what systemctl show prints: Id and Names, once each, the id being one of them. It
// returns nil for everything else.
func readNames(out string) []string {
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, is := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := fields[key]; !is || twice {
			return nil
		}
		fields[key] = value
	}
	names := strings.Fields(fields["Names"])
	if len(fields) != 2 || !slices.Contains(names, fields["Id"]) {
		return nil
	}
	for _, n := range names {
		if !unitName.MatchString(n) {
			return nil
		}
	}
	return names
}

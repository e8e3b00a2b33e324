package remote

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
)

// unitTime is how long what a node said of a unit is believed.
const unitTime = 5 * time.Minute

// A word that systemctl could take for an option, a pattern or several units is not a unit name
// (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9_@:][A-Za-z0-9_@:.\\-]{0,254}$`)

type unit struct {
	names []string
	until time.Time
}

// Unit asks a node for a unit's own id and all of its names, the id first and the others sorted:
// an alias and a name without its suffix lead to the same list. The answer is kept for 5 minutes.
// It runs one fixed command that reads, `systemctl show`. A unit that does not exist has one name.
// The error is a *gate.OpError.
func (r *Remote) Unit(ctx context.Context, node, name string) ([]string, error) {
	n, done, err := r.inspect(node)
	if err != nil {
		return nil, err
	}
	defer done()
	if !unitName.MatchString(name) {
		return nil, failed("bad_input", "%q is not the name of a unit", name)
	}
	n.unitMu.Lock()
	known := n.units[name]
	n.unitMu.Unlock()
	if now := r.opts.Now(); now.Before(known.until) && !now.Add(unitTime).Before(known.until) {
		return slices.Clone(known.names), nil
	}
	asked := r.opts.Now()
	out, err := n.ask(ctx, "'systemctl' 'show' '--property=Id,Names' '--' '"+name+"'")
	if err != nil {
		return nil, err
	}
	names, ok := unitNames(string(out.Stdout))
	if out.Exit != 0 || !ok {
		return nil, failed("failed", "asking %s for the names of unit %q: systemctl ended with "+
			"exit code %d: %q", node, name, out.Exit, clip(out.Stderr))
	}
	n.unitMu.Lock()
	defer n.unitMu.Unlock()
	if n.units == nil || len(n.units) >= 256 {
		n.units = map[string]unit{}
	}
	n.units[name] = unit{names, asked.Add(unitTime)}
	return slices.Clone(names), nil
}

// unitNames reads what systemctl show prints: Id and Names, once each, the id being one of them.
func unitNames(out string) ([]string, bool) {
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, is := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := fields[key]; !is || twice {
			return nil, false
		}
		fields[key] = value
	}
	id, names := fields["Id"], strings.Fields(fields["Names"])
	if len(fields) != 2 || !slices.Contains(names, id) {
		return nil, false
	}
	for _, n := range names {
		if !unitName.MatchString(n) {
			return nil, false
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	others := slices.DeleteFunc(names, func(n string) bool { return n == id })
	return append([]string{id}, others...), true
}

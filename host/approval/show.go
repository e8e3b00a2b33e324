package approval

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

//go:embed request.txt
var requestText string

// shows are the functions of every template. Show makes what others wrote harmless.
var shows = map[string]any{
	"show": plaintext.Show, "join": strings.Join, "lines": showLines,
	"line": func(name, value string) string {
		if value == "" {
			return ""
		}
		return fmt.Sprintf("%-10s %s\n", name, plaintext.Show(value))
	},
	"time": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
}

var texts = template.Must(template.New("").Funcs(shows).Parse(requestText))

// showLines is plaintext.Show of text that has lines.
func showLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = plaintext.Show(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// shown is a request as people see it: at a terminal, in a client and on the page.
type shown struct {
	Request
	D    Detail
	Args []kind // canonical, sorted by name
	now  time.Time
}

// shown reads the request's detail and arguments.
func (r Request) shown(now time.Time) (s shown, err error) {
	s = shown{Request: r, now: now}
	if s.D, err = r.Read(); err != nil {
		return s, err
	}
	var args map[string]json.RawMessage
	if err := json.Unmarshal(s.D.Args, &args); err != nil {
		return s, fmt.Errorf("reading approval %s: %w", r.ID, err)
	}
	for _, k := range slices.Sorted(maps.Keys(args)) {
		s.Args = append(s.Args, kind{k, []string{string(args[k])}})
	}
	return s, nil
}

// Print shows a request to a person at a terminal.
func (r Request) Print(w io.Writer) error {
	s, err := r.shown(time.Now())
	if err != nil {
		return err
	}
	return texts.ExecuteTemplate(w, "terminal", s)
}

// question is the whole request for the user of a client, in one text.
func (r Request) question() (string, error) {
	s, err := r.shown(time.Now())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = texts.ExecuteTemplate(&b, "client", s)
	return b.String(), err
}

func (s shown) Target() string  { return s.D.Target() }
func (s shown) Targets() []kind { return s.D.targets() }
func (s shown) Waits() bool     { return s.State == Waiting }
func (s shown) Unused() bool    { return s.State == Approved }
func (s shown) Left() string    { return left(s.Expires, s.now) }
func (s shown) Age() string     { return left(s.now, s.Created) }

// Standing is the state, and who decided.
func (s shown) Standing() string {
	state := s.State
	if s.By != "" {
		state += " by " + s.By + " (" + s.Channel + ")"
	}
	return state + ", expires " + s.Expires.UTC().Format("2006-01-02 15:04:05 MST")
}

// Lacks says what a yes takes beside the word, and how many of them.
func (s shown) Lacks() string {
	var all []string
	if s.Need > 1 {
		all = append(all, fmt.Sprintf("%d of %d persons said yes", len(s.Answers), s.Need))
	}
	if n := s.D.Needs; n.Ticket != "" {
		all = append(all, "each with a ticket that matches "+n.Ticket)
	}
	if s.D.Needs.Reason {
		all = append(all, "each with a reason")
	}
	return strings.Join(all, ", ")
}

// Said is each yes, where there may be more of them or a ticket.
func (s shown) Said() (all []string) {
	for _, y := range s.Answers {
		text := y.By + " (" + y.Channel + ")"
		if y.Ticket != "" {
			text += ", ticket " + y.Ticket
		}
		if y.Note != "" {
			text += ": " + y.Note
		}
		if special(s.D.Needs) {
			all = append(all, text)
		}
	}
	return all
}

// Why says for a person why the call waits. What policy says of a missing confirmation is written
// for the caller.
func (s shown) Why() (out []string) {
	for _, r := range s.D.Why {
		if r.ID == "confirmation" {
			out = append(out, "Calls of tier "+s.D.Tier+" run only after a person approved them.")
		} else {
			out = append(out, r.Msg+" ("+r.ID+")")
		}
	}
	return out
}

type mayRun struct {
	Text string
	Any  bool // it is no single command
}

// MayRun lists the commands that the tool declares.
func (s shown) MayRun() (all []mayRun) {
	for i, text := range plaintext.Commands(s.D.Declared) {
		all = append(all, mayRun{text, s.D.Declared[i] == terms.CallersText})
	}
	return all
}

// PlanLines are the steps of the plan, none for a call without one.
func (s shown) PlanLines() []string {
	if s.D.PlanText == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s.D.PlanText, "\n"), "\n")
}

// Where says where a command runs.
func (c Command) Where() string {
	if c.Guest {
		return "runs in the guest's shell"
	}
	return "runs on the node"
}

// left is the time until t for a person: "14 min".
func left(t, now time.Time) string {
	switch d := t.Sub(now); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(d+time.Second-1, 0)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
}

package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// event is what a sink gets: a record of the journal with its place there, or a gap. Records are
// masked before they are journaled, and nothing is added to them here but names of this host.
type event struct {
	terms.Record
	Instance string   `json:"instance"`
	Journal  place    `json:"journal"`
	Omitted  []string `json:"omitted,omitempty"` // what the sink takes no room for
	Gap      string   `json:"gap,omitempty"`     // the journal lacks something: type is "gap"
	// what a candidate policy answers: type is "shadow"
	Shadow *audit.Shadow `json:"shadow,omitempty"`
}

// place is where a record stands. Anchors and `caponier audit verify` speak of the same hash.
type place struct {
	File string `json:"file"`
	Seq  int64  `json:"seq"`
	Hash string `json:"hash,omitempty"`
}

// eventOf returns the event of a step, and reports false for entries that are no records.
func eventOf(s audit.Step, instance string, now time.Time) (event, bool) {
	e := event{Instance: instance, Journal: place{s.Entry.File, s.Entry.Seq, s.Entry.Hash}}
	switch {
	case s.Gap != "":
		e.Type, e.Time, e.Gap, e.Journal.Seq = "gap", now.UTC(), s.Gap, s.Mark.Seq
		e.ID = fmt.Sprintf("gap.%s.%d.%.6x", s.Entry.File, s.Mark.Bytes,
			sha256.Sum256([]byte(s.Gap))) // the same when it is sent again
	case s.Entry.Record != nil:
		e.Record = *s.Entry.Record
	case s.Entry.Shadow != nil:
		e.Shadow = s.Entry.Shadow
		e.Type, e.Time, e.ID, e.CallID = "shadow", e.Shadow.Time, e.Shadow.ID, e.Shadow.CallID
	default:
		return e, false
	}
	return e, true
}

const fewDenied = 16 // reasons of an event that is cut

// small returns the event without its input, which is by far its largest part, or else with no more
// than ids of what refused it. It reports false for one that is as small as it gets.
func (e event) small() (event, bool) {
	switch {
	case len(e.Input) > 0:
		e.Input, e.Omitted = nil, []string{"input"}
	case len(e.Denied) > 0 && !slices.Contains(e.Omitted, "deny"):
		e.Omitted = append(slices.Clone(e.Omitted), "deny")
		e.Denied = slices.Clone(e.Denied[:min(len(e.Denied), fewDenied)])
		for i, r := range e.Denied {
			e.Denied[i] = terms.Reason{ID: plaintext.Short(r.ID, 100)}
		}
	default:
		return e, false
	}
	return e, true
}

// says is the event in a sentence, on one line.
func (e event) says() string {
	what := strings.TrimSpace(e.Tool + " " + e.Op)
	text := fmt.Sprintf("%s %s of %s: %s", e.Kind, what, e.Principal, e.Type)
	switch {
	case e.Gap != "":
		text = e.Gap
	case e.Shadow != nil:
		text = fmt.Sprintf("candidate policy %s of decision %s: allow %t, %s %s", e.Shadow.Revision,
			e.ID, e.Shadow.Allow, e.Shadow.Change, strings.Join(e.Shadow.Failed, ", "))
	case e.Type == "outcome":
		text = fmt.Sprintf("%s %s of %s: %s %s", e.Kind, what, e.Principal, e.Outcome, e.Code)
	case e.Type == "refused" && e.Outcome == terms.Waits:
		text = fmt.Sprintf("%s %s of %s waits for a person", e.Kind, what, e.Principal)
	case e.Type == "refused":
		text += " (" + strings.Join(e.Failed, ", ") + ")"
	case e.Type == "intent":
		text = fmt.Sprintf("%s %s of %s: allowed, %s", e.Kind, what, e.Principal, e.Tier)
	}
	return plaintext.Show(plaintext.Short(strings.TrimSpace(text), 400))
}

// A severity has the numbers of syslog and of OpenTelemetry.
type severity struct {
	syslog, otel int
	text         string
}

func (e event) severity() severity {
	switch {
	case e.Gap != "":
		return severity{3, 17, "ERROR"}
	case e.Type == "refused", e.Outcome == terms.Failed, e.Outcome == terms.Unknown:
		return severity{4, 13, "WARN"}
	}
	return severity{6, 9, "INFO"}
}

// fields are what a log is searched by, without what is empty, in a fixed order.
func (e event) fields() (all [][2]string) {
	exit := ""
	if e.Exit != nil {
		exit = strconv.Itoa(*e.Exit)
	}
	for _, f := range [][2]string{{"type", e.Type}, {"decision_id", e.ID}, {"call_id", e.CallID},
		{"kind", e.Kind}, {"op", e.Op}, {"phase", e.Phase}, {"principal", e.Principal},
		{"source", e.Source}, {"tool", e.Tool}, {"plugin", e.Plugin.Name}, {"node", e.Node},
		{"tier", e.Tier}, {"failed", strings.Join(e.Failed, ",")}, {"revision", e.Revision},
		{"outcome", string(e.Outcome)}, {"code", e.Code}, {"exit", exit},
		{"journal_file", e.Journal.File}, {"journal_seq", strconv.FormatInt(e.Journal.Seq, 10)},
		{"journal_hash", e.Journal.Hash}, {"instance", e.Instance}} {
		if f[1] != "" {
			all = append(all, f)
		}
	}
	return all
}

// flags of a span in opentelemetry-proto/trace/v1: its parent is known to be of this process, or of
// another one
const flagSampled, flagLocal, flagRemote = 0x01, 0x100, 0x300

// where says to which trace a record belongs, and which span it is. The trace is that of the
// client's span, if it named one. Record.Trace is a valid traceparent, or "".
func where(r terms.Record) (trace, id, parent string, flags uint32) {
	trace, flags = digest("trace", r.CallID, 16), flagSampled|flagLocal
	id = digest("call", r.CallID, 8)
	if parts := strings.Split(r.Trace, "-"); len(parts) == 4 {
		bits, _ := strconv.ParseUint(parts[3], 16, 8)
		trace, parent, flags = parts[1], parts[2], uint32(bits)|flagRemote
	}
	if r.Kind == "operation" {
		parent, id, flags = id, digest("operation", r.ID, 8), flags&flagSampled|flagLocal
	}
	return trace, id, parent, flags
}

func digest(kind, id string, n int) string {
	sum := sha256.Sum256([]byte("caponier " + kind + " " + id))
	return hex.EncodeToString(sum[:n])
}

// encode returns a value as JSON on one line.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}

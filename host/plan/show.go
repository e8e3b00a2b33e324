package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Shown is a call from the journal: its plan and its operations.
type Shown struct {
	Call      string        `json:"call"`
	Time      time.Time     `json:"time"` // when it came
	Principal string        `json:"principal"`
	Tool      string        `json:"tool"`
	Outcome   terms.Outcome `json:"outcome"` // "" while it runs, or when the host was killed
	// why the call itself was refused, and the decision that says so
	Refused  []terms.Reason `json:"refused,omitempty"`
	Decision string         `json:"decision,omitempty"`
	Reads    int            `json:"reads"`    // operations that are green and were allowed
	Plan     string         `json:"plan"`     // digest, "" for a call without one
	DryRun   string         `json:"dry_run"`  // the call that made the plan
	Complete bool           `json:"complete"` // the plan
	Ends     string         `json:"ends"`
	Approval string         `json:"approval"` // id of the request
	By       string         `json:"by"`       // who approved it
	Channel  string         `json:"channel"`
	Undoes   string         `json:"undoes"`    // the call that it takes back
	UndoneBy []string       `json:"undone_by"` // calls that took it back, or began to
	Rows     []Row          `json:"rows"`
	Hits     []terms.Hit    `json:"hits,omitempty"` // in what went back, never their values
}

// Row is a step of the plan, or an operation above green that is none.
type Row struct {
	Step     int            `json:"step"` // 0 for what does not stand on the plan
	Does     string         `json:"does"`
	Tier     string         `json:"tier"`
	Planned  string         `json:"planned"`  // allowed | refused | "": it is no step
	Happened string         `json:"happened"` // not reached | planned | refused | begun | outcome
	Code     string         `json:"code,omitempty"`
	Decision string         `json:"decision,omitempty"` // its id
	Refused  []terms.Reason `json:"refused,omitempty"`
	NoUndo   string         `json:"no_undo,omitempty"` // why nothing takes it back, once it is done
}

// The result of a step, if there is no outcome.
const (
	notReached = "not reached"
	begun      = "begun" // its outcome was never written
)

// Show finds a call, or its dry run, in the journal. It returns false if the journal does not
// contain it. It reads the records up to twice, and keeps those of the call.
func Show(id string, records iter.Seq[terms.Record]) (s Shown, found bool, err error) {
	s = Shown{Call: id, UndoneBy: []string{}, Rows: []Row{}}
	plans, made := map[string]string{}, "" // decisions: the last one with a digest, the call's
	var approvals, ops []terms.Record
	var allowed time.Time // when it was allowed with its plan
	for r := range records {
		switch {
		case r.Kind == "plan" && r.Type != "outcome":
			plans[r.Plan] = r.ID
		case r.Kind == "approval" && r.Type == "intent" && r.Op == "approve":
			approvals = append(approvals, terms.Record{Time: r.Time, Plan: r.Plan,
				Verdict: r.Verdict})
		}
		if r.Op == "undo_steps" && r.Type == "intent" {
			s.undo(id, r)
		}
		if r.CallID != id || r.Kind == "approval" {
			continue
		}
		found = true
		if s.Call, s.Principal, s.Tool = id, r.Principal, r.Tool; s.Time.IsZero() {
			s.Time = r.Time
		}
		if r.Plan != "" && s.Plan == "" {
			s.Plan, made = r.Plan, plans[r.Plan]
		}
		s.Hits = append(s.Hits, r.Hits...)
		switch {
		case r.Kind == "operation":
			ops = append(ops, r)
		case r.Kind != "call":
		case r.Type == "outcome":
			s.Outcome = r.Outcome
		case r.Type == "refused" && r.Outcome != terms.Waits:
			s.Outcome, s.Refused, s.Decision = terms.Refusal, r.Denied, r.ID
		case r.Type == "refused":
			s.Outcome = terms.Waits
		case r.Plan != "": // after it had waited
			s.Outcome, allowed = "", r.Time
		}
	}
	for r := range records {
		if made == "" {
			break
		}
		if r.ID == made && r.Kind == "plan" && r.Type != "outcome" {
			err = s.planned(r)
			break
		}
	}
	for _, r := range approvals { // those of other processes stand elsewhere in the journal
		if v := r.Verdict; v != nil && r.Plan == s.Plan && s.Plan != "" && !r.Time.After(allowed) {
			s.Approval, s.By, s.Channel = v.Request, v.By, v.Channel
		}
	}
	s.happened(ops)
	return s, found, err
}

// undo notes that one call takes another back.
func (s *Shown) undo(id string, r terms.Record) {
	var in input.Operation
	if json.Unmarshal(r.Input, &in) != nil || in.Record == nil || in.Record.Undo == nil {
		return
	}
	if r.CallID == id {
		s.Undoes = in.Record.Call
	} else if in.Record.Call == id && !in.Planning {
		s.UndoneBy = append(s.UndoneBy, r.CallID)
	}
}

// planned adds the steps of a plan, from the question that was decided about it.
func (s *Shown) planned(r terms.Record) error {
	var p struct {
		Complete bool
		Ends     string
		Steps    []struct {
			Tier    string
			Allowed bool
			input.Operation
		}
	}
	if err := json.Unmarshal(r.Input, &p); err != nil {
		return fmt.Errorf("reading the plan of decision %s: %w", r.ID, err)
	}
	s.DryRun, s.Complete, s.Ends = r.CallID, p.Complete, p.Ends
	for i, step := range p.Steps {
		row := Row{Step: i + 1, Tier: step.Tier, Planned: "allowed", Happened: notReached}
		row.Does, row.NoUndo = doesOf(step.Operation)
		if !step.Allowed {
			row.Planned = "refused"
		}
		s.Rows = append(s.Rows, row)
	}
	return nil
}

func doesOf(op input.Operation) (text, noUndo string) {
	s := step{Op: op.Op, Command: op.Command, File: op.File, HTTP: op.HTTP, Blob: op.Blob}
	if op.Target != nil {
		s.Node = op.Target.Node
	}
	return does(&s), undo(&s, terms.Obligations{}).None
}

// happened adds the journal's records of operations above green. An allowed operation is the plan's
// next step, as check planned decides. Others get separate rows.
func (s *Shown) happened(ops []terms.Record) {
	next, steps, rows := 0, len(s.Rows), map[string]int{} // by decision
	for _, r := range ops {
		effect := r.Phase == terms.PhaseEffect.String()
		above := effect && r.Tier != terms.Green.String() || r.Type == "refused"
		if effect && !above && r.Type == "intent" {
			s.Reads++
		}
		at, known := rows[r.ID]
		switch {
		case r.Type == "outcome" && known:
			s.Rows[at].Happened, s.Rows[at].Code = string(r.Outcome), r.Code
			continue
		case r.Type == "outcome" || !above || r.Outcome == terms.Waits:
			continue
		}
		var in input.Operation
		_ = json.Unmarshal(r.Input, &in) // what cannot be read is shown by its name
		row := Row{Tier: r.Tier, Decision: r.ID, Happened: begun}
		row.Does, row.NoUndo = doesOf(in)
		if in.Op == "" {
			row.Does = r.Op
		}
		planning := in.Planning
		switch {
		case r.Type == "refused" && planning && next < steps: // of a dry run: it is a step
			s.Rows[next].Happened, s.Rows[next].Decision = "refused", r.ID
			s.Rows[next].Refused = r.Denied
			next++
			continue
		case r.Type == "refused":
			row.Happened, row.Refused = "refused", r.Denied
		case next < steps:
			s.Rows[next].Happened, s.Rows[next].Decision = begun, r.ID
			rows[r.ID] = next
			next++
			continue
		}
		rows[r.ID] = len(s.Rows)
		s.Rows = append(s.Rows, row)
	}
}

// Text writes it for people.
func (s Shown) Text(w io.Writer) error {
	var b strings.Builder
	outcome := cmp.Or(string(s.Outcome), "no outcome: it runs, or the host was ended")
	fmt.Fprintf(&b, "%s of %s by %s at %s: %s\n", s.Call, s.Tool, s.Principal,
		s.Time.UTC().Format(time.DateTime), outcome)
	for _, why := range s.Refused {
		fmt.Fprintf(&b, "    (%s) %s\n", why.ID, plaintext.Short(plaintext.Show(why.Msg), maxLine))
	}
	if s.Decision != "" {
		fmt.Fprintf(&b, "    caponier policy explain %s\n", s.Decision)
	}
	if s.Reads > 0 {
		fmt.Fprintf(&b, "%d operations that only read\n", s.Reads)
	}
	switch {
	case s.Plan == "":
		b.WriteString("no plan\n")
	case s.Complete:
		fmt.Fprintf(&b, "plan %s, complete, made by %s\n", s.Plan, s.DryRun)
	case s.DryRun == "":
		fmt.Fprintf(&b, "plan %s, which the journal no longer has\n", s.Plan)
	default:
		fmt.Fprintf(&b, "plan %s, NOT COMPLETE: %s; made by %s\n", s.Plan,
			plaintext.Short(plaintext.Show(s.Ends), maxLine), s.DryRun)
	}
	for _, h := range s.Hits {
		fmt.Fprintf(&b, "%d × %s in a result: %s\n", h.Count, plaintext.Show(h.Detector), h.Action)
	}
	s.undone(&b)
	if s.Approval != "" {
		fmt.Fprintf(&b, "approved by %s on %s (%s)\n", plaintext.Show(s.By), s.Channel, s.Approval)
	}
	for _, r := range s.Rows {
		step, planned := "  -", r.Planned
		if r.Step > 0 {
			step = fmt.Sprintf("%3d", r.Step)
		} else {
			planned = "no step"
		}
		fmt.Fprintf(&b, "%s  %-7s  %-11s  %s\n", step, planned, r.Happened, r.Does)
		if r.NoUndo != "" && (r.Happened == string(terms.Succeeded) || r.Happened == begun) {
			fmt.Fprintf(&b, "%28sundo: none without a snapshot: %s\n", "", r.NoUndo)
		}
		for _, why := range r.Refused {
			fmt.Fprintf(&b, "%28s(%s) %s\n", "", why.ID,
				plaintext.Short(plaintext.Show(why.Msg), maxLine))
		}
		if len(r.Refused) > 0 && r.Decision != "" {
			fmt.Fprintf(&b, "%28scaponier policy explain %s\n", "", r.Decision)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Shown) undone(b *strings.Builder) {
	if s.Undoes != "" {
		fmt.Fprintf(b, "undoes call %s\n", plaintext.Show(s.Undoes))
	}
	for _, by := range s.UndoneBy {
		fmt.Fprintf(b, "undone by call %s\n", by)
	}
}

package input

import "github.com/caponier-mcp/caponier/host/terms"

// Result is what goes back after an operation or a call, without its values.
type Result struct {
	Head
	After string         `json:"after"` // operation | call
	Op    string         `json:"op"`    // "" after a call
	Node  string         `json:"node"`
	Path  string         `json:"path"`  // of a file: its real path, where it is known
	Size  string         `json:"size"`  // empty, or at most 64k, 1m, 16m, or more
	Exit  *int           `json:"exit"`  // of a command
	Saved bool           `json:"saved"` // a file or blob that is handed over as it is
	Hits  map[string]int `json:"hits"`  // by detector
}

// ResultOf returns the document about what came of a question, with the fields that it can know.
func ResultOf(q *terms.Question, bytes int64, r Result) *Result {
	visible := Of(&terms.Question{ID: q.ID, Kind: terms.KindVisible, Call: q.Call, Time: q.Time,
		Mode: q.Mode, Facts: terms.Facts{Guests: q.Facts.Guests}}, nil).(*visible)
	r.Head = visible.Head
	r.Schema, r.After, r.Size = "caponier.result/1", "call", "more"
	if q.Op != nil {
		r.After, r.Op, r.Node = "operation", q.Op.Import(), q.Op.NodeName()
		var o Operation
		if o.operation(q); o.File != nil {
			r.Path = o.File.Path
		}
		if f := q.Facts.File; f != nil && f.RealPath != "" {
			r.Path = f.RealPath
		}
	}
	for i, most := range []int64{0, 64 << 10, 1 << 20, 16 << 20} {
		if bytes <= most {
			r.Size = []string{"empty", "64k", "1m", "16m"}[i]
			break
		}
	}
	return &r
}

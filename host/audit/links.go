package audit

// links checks how a file fits to the ones before and after it.
func (v *verifier) links(name string) {
	c := v.chains[name]
	if c.bad {
		return
	}
	if c.last.Close != nil && c.last.Close.Next != "" {
		next := v.chains[c.last.Close.Next]
		switch {
		case next == nil && v.exists(c.last.Close.Next): // begun after the files were listed
		case next == nil:
			v.problem(name, 0, "goes on in %s, which is missing", c.last.Close.Next)
		case next.empty && !next.bad:
			v.begun[c.last.Close.Next] = true
		}
	}
	if c.head != nil && c.head.Head.From != "" {
		v.continues(name, c.head, v.chains[c.head.Head.From])
	}
}

// continues checks that a file begins where the one before it ends. A head with an error says why
// its process left that one: then a gap has a known cause.
func (v *verifier) continues(name string, e *Entry, from *chain) {
	head := e.Head
	joined := from != nil && e.Prev == from.last.Hash && e.Seq == from.last.Seq+1
	if head.Error != "" {
		delete(v.endless, head.From)
	}
	switch {
	case from == nil && head.Error != "":
		v.problem(name, 1, "continues %s after entry %d, but that is missing: %s",
			head.From, e.Seq-1, head.Error)
	case from == nil:
		v.problem(name, 1, "continues %s, which is missing", head.From)
	case from.alive && from.last.Seq < e.Seq:
	case head.Changed && joined && !from.bad:
		v.warn(name, 1, "continues %s, which is whole now: %s", head.From, head.Error)
	case head.Changed:
		v.problem(name, 1, "continues %s after entry %d, and entries up to %d are good there: %s",
			head.From, e.Seq-1, from.last.Seq, head.Error)
	case joined, from.bad:
	case head.Error != "":
		v.warn(name, 1,
			"continues %s at entry %d, but that ends with entry %d: lost when its disk "+
				"failed (%s)", head.From, e.Seq, from.last.Seq, head.Error)
	default:
		v.problem(name, 1, "continues %s after entry %d, but that ends with entry %d: it was cut "+
			"or replaced", head.From, e.Seq-1, from.last.Seq)
	}
}

package pvelab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Effect is one thing that reached a node. Exec effects carry one simple command as the shell
// received its words (Argv is empty for a text that ran none); SFTP effects carry the operation,
// the path and, when a file is closed, its bytes.
type Effect struct {
	T      string   `json:"t"`
	Node   string   `json:"node"`
	Kind   string   `json:"kind"`             // exec | sftp | egress
	Via    string   `json:"via,omitempty"`    // node that passed the command on
	Text   string   `json:"text,omitempty"`   // the exec request's text
	Argv   []string `json:"argv,omitempty"`   //
	Op     string   `json:"op,omitempty"`     // read write rename remove stat …
	Path   string   `json:"path,omitempty"`   //
	Target string   `json:"target,omitempty"` // rename's or link's other name
	Bytes  int64    `json:"bytes,omitempty"`  //
}

// effects appends each effect to the file at once, and keeps it for Lab.Effects.
type effects struct {
	mu   sync.Mutex // guards the rest
	file *os.File
	list []Effect
}

func openEffects(name string) (*effects, error) {
	e := &effects{}
	if name == "" {
		return e, nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the effects file: %w", err)
	}
	e.file = f
	return e, nil
}

func (e *effects) add(x Effect) {
	x.T = time.Now().UTC().Format(time.RFC3339Nano)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // so that grep finds what was typed
	err := enc.Encode(x)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, x)
	if e.file == nil || err != nil {
		return
	}
	if _, err := e.file.Write(b.Bytes()); err != nil {
		// Tests prove by an empty file that nothing happened: a lab that cannot log must not go on.
		panic(fmt.Sprintf("pvelab: writing the effects file: %v", err))
	}
}

func (e *effects) all() []Effect {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func (e *effects) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil {
		e.file.Close()
		e.file = nil
	}
}

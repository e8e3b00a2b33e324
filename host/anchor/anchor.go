// Package anchor publishes signed ends of journal chains. They prove later changes of records.
//
// An anchor is a note in the format of golang.org/x/mod/sumdb/note: the lines below and an Ed25519
// signature.
//
//	caponier journal anchor/1
//	time, RFC 3339
//	journal file, number of its last entry, hash of that entry
package anchor

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"golang.org/x/mod/sumdb/note"
)

const (
	format  = "caponier journal anchor/1"
	marker  = "caponier-anchor " // before an anchor in base64, on one line
	maxNote = 64 << 10           // bytes of an anchor, and of a line that may hold one
)

// Anchor is the end of a chain at a time.
type Anchor struct {
	Time time.Time
	Tip  audit.Tip
}

// NewKey returns a new signing key, which is secret, and the key that verifies its signatures. Name
// names the host.
func NewKey(name string) (secret, public string, err error) {
	return note.GenerateKey(rand.Reader, name)
}

// sign returns an anchor as a signed note.
func sign(a Anchor, s note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%s\n%s %d %s\n", format,
		a.Time.UTC().Format(time.RFC3339Nano), a.Tip.File, a.Tip.Seq, a.Tip.Hash)}, s)
}

// parse returns the anchor of a note that one of the keys signed.
func parse(msg []byte, keys note.Verifiers) (a Anchor, err error) {
	n, err := note.Open(msg, keys)
	if err != nil {
		return a, err
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 || lines[0] != format {
		return a, errors.New("is signed, and is not an anchor")
	}
	if a.Time, err = time.Parse(time.RFC3339Nano, lines[1]); err != nil {
		return a, err
	}
	fields := strings.Split(lines[2], " ")
	if len(fields) != 3 {
		return a, fmt.Errorf("names no end of a chain: %q", lines[2])
	}
	a.Tip.File, a.Tip.Hash = fields[0], fields[2]
	a.Tip.Seq, err = strconv.ParseInt(fields[1], 10, 64)
	return a, err
}

// Read returns the anchors in r, which holds notes one after the other, or lines with one note in
// base64 each, as syslog has them, among anything else. It fails at the first anchor that none of
// the public keys signed.
func Read(r io.Reader, keys ...string) (all []Anchor, err error) {
	var known []note.Verifier
	for _, k := range keys {
		v, err := note.NewVerifier(strings.TrimSpace(k))
		if err != nil {
			return nil, fmt.Errorf("the key %.40q is invalid: %w", k, err)
		}
		known = append(known, v)
	}
	verifiers := note.VerifierList(known...)
	add := func(line int, msg []byte) error {
		a, err := parse(msg, verifiers)
		if err != nil {
			return fmt.Errorf("the anchor that ends in line %d: %w", line, err)
		}
		all = append(all, a)
		return nil
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxNote)
	var msg bytes.Buffer // the note that began
	n := 0
	for lines.Scan() {
		n++
		line := lines.Text()
		if _, coded, is := strings.Cut(line, marker); is {
			decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
			if err = errors.Join(err, add(n, decoded)); err != nil {
				return nil, err
			}
			continue
		}
		if line == format {
			if msg.Len() > 0 {
				return nil, fmt.Errorf("the anchor before line %d has no signature", n)
			}
		} else if msg.Len() == 0 {
			continue
		}
		if msg.WriteString(line + "\n"); msg.Len() > maxNote {
			return nil, fmt.Errorf("the anchor in line %d does not end", n)
		}
		if strings.HasPrefix(line, "\u2014 ") {
			if err := add(n, msg.Bytes()); err != nil {
				return nil, err
			}
			msg.Reset()
		}
	}
	if msg.Len() > 0 {
		return nil, fmt.Errorf("the last anchor, in line %d, was cut", n)
	}
	return all, lines.Err()
}

package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	format   = "caponier.audit/1"
	maxLine  = 4 << 20 // bytes of an entry
	maxSeen  = 16
	hashKey  = `,"hash":"`
	tailSize = len(hashKey) + 2*sha256.Size + len(`"}`)
)

// Entry is one line of a journal file: a Record, what a candidate policy answers to the question of
// one, the policy revision that decides from here on, or a Head or Close that says where a file
// begins or ends. Its hash covers the whole line and,
// through Prev, all lines before it.
type Entry struct {
	Host   string        `json:"-"` // whose journal it is in, of several; see Union
	File   string        `json:"-"`
	At     int64         `json:"-"`    // where its line begins in the file, as Records yields it
	Size   int64         `json:"-"`    // of its line, with the line feed; 0 where it cannot be read
	Hash   string        `json:"-"`    // of the line without itself, which is its last key
	Seq    int64         `json:"seq"`  // from 0 for each process, on over its files
	Prev   string        `json:"prev"` // hash of the entry before, "" for the first
	Head   *Head         `json:"head,omitempty"`
	Close  *Close        `json:"close,omitempty"`
	Policy *Kept         `json:"policy,omitempty"`
	Record *terms.Record `json:"record,omitempty"`
	Shadow *Shadow       `json:"shadow,omitempty"`
}

// when is when the entry was made.
func (e Entry) when() time.Time {
	switch {
	case e.Head != nil:
		return e.Head.Time
	case e.Close != nil:
		return e.Close.Time
	case e.Policy != nil:
		return e.Policy.Time
	case e.Record != nil:
		return e.Record.Time
	case e.Shadow != nil:
		return e.Shadow.Time
	}
	return time.Time{}
}

// Head is the first entry of a file.
type Head struct {
	Format string `json:"format"`
	// the file's own name, so that it cannot pass for another
	File  string    `json:"file"`
	Time  time.Time `json:"time"`
	PID   int       `json:"pid"`
	From  string    `json:"from,omitempty"`  // the file that this one continues
	Error string    `json:"error,omitempty"` // why that one was given up
	// it was given up because it was deleted, moved, replaced, cut or appended to
	Changed bool `json:"changed,omitempty"`
	// last hashes of other files: witness against cutting or deleting them later
	Seen map[string]string `json:"seen,omitempty"`
}

// Close is the last entry of a file that was not cut off.
type Close struct {
	Time time.Time `json:"time"`
	Next string    `json:"next,omitempty"` // the file that goes on, "" at the end of the process
}

// Shadow is what a candidate policy answers to the question of an earlier record. It enforces
// nothing.
type Shadow struct {
	Time     time.Time `json:"time"`
	ID       string    `json:"decision_id"`
	CallID   string    `json:"call_id"`
	Revision string    `json:"revision"` // of the candidate
	Allow    bool      `json:"allow"`
	Tier     string    `json:"tier"`
	Failed   []string  `json:"failed"` // checks that do not hold
	// against what is enforced, as package replay names it; "" for none
	Change string `json:"change,omitempty"`
}

// Kept says that the bundle of a policy revision is beside the journal.
type Kept struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision"`
	SHA256   string    `json:"sha256"` // of the bundle
}

// encode returns the line of an entry, with its line feed, and its hash. The hash is over exactly
// the bytes of the line without the hash key.
func encode(e Entry) (line []byte, hash string, err error) {
	if e.Record != nil {
		r := *e.Record
		r.Time = r.Time.UTC()
		e.Record = &r
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, "", fmt.Errorf("encoding a journal entry: %w", err)
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(body)+tailSize > maxLine {
		return nil, "", fmt.Errorf("a journal entry of %d bytes is over the limit of %d", len(body),
			maxLine)
	}
	sum := sha256.Sum256(body)
	hash = hex.EncodeToString(sum[:])
	return append(body[:len(body)-1:len(body)-1], hashKey+hash+"\"}\n"...), hash, nil
}

var errHash = errors.New("its hash does not fit: the line was changed")

// decode reads a line without its line feed.
func decode(line []byte) (Entry, error) {
	var e Entry
	at := len(line) - tailSize
	if at < 1 || !bytes.HasPrefix(line[at:], []byte(hashKey)) ||
		!bytes.HasSuffix(line, []byte(`"}`)) {
		return e, errors.New("is not a journal entry")
	}
	body := append(line[:at:at], '}')
	sum := sha256.Sum256(body)
	e.Hash = hex.EncodeToString(sum[:])
	if e.Hash != string(line[at+len(hashKey):len(line)-2]) {
		return e, errHash
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, fmt.Errorf("is not a journal entry: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return e, errors.New("has more after its entry")
	}
	kinds := 0
	for _, is := range []bool{e.Head != nil, e.Close != nil, e.Policy != nil, e.Record != nil,
		e.Shadow != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 || e.Head != nil && e.Head.Format != format {
		return e, fmt.Errorf("is not an entry of %s", format)
	}
	return e, nil
}

var (
	errTorn = errors.New("ends within an entry")
	errLong = fmt.Errorf("has a line over the limit of %d bytes", maxLine)
)

// readLine returns the next line without its line feed: io.EOF at the end of the file, errTorn when
// the file ends in the middle of a line.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine+1:
			return nil, errLong
		case err == nil:
			return line[:len(line)-1], nil
		case err == io.EOF && len(line) > 0:
			return nil, errTorn
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

var fileName = regexp.MustCompile(`^\d{8}T\d{6}\.\d{6}-\d+-[0-9a-f]{8}\.jsonl$`)

// files lists the journal files of a directory, oldest first.
func files(dir string) (names []string, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	for _, f := range all {
		if fileName.MatchString(f.Name()) {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

// lastHashes returns the hash of the last whole entry of the newest files.
func lastHashes(dir string) (map[string]string, error) {
	names, err := files(dir)
	if err != nil {
		return nil, err
	}
	seen := map[string]string{}
	for _, name := range names[max(0, len(names)-maxSeen):] {
		hash, err := lastHash(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if hash != "" {
			seen[name] = hash
		}
	}
	return seen, nil
}

func lastHash(path string) (string, error) {
	e, err := lastEntry(path)
	return e.Hash, err
}

// lastEntry returns the last whole entry of a file, the zero Entry if it has none.
func lastEntry(path string) (Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	buf := make([]byte, min(info.Size(), 256<<10)) // a longer last entry goes without a witness
	n, err := f.ReadAt(buf, info.Size()-int64(len(buf)))
	if err != nil && err != io.EOF {
		return Entry{}, err
	}
	buf = buf[:n]
	end := bytes.LastIndexByte(buf, '\n')
	if end < 0 {
		return Entry{}, nil
	}
	e, err := decode(buf[bytes.LastIndexByte(buf[:end], '\n')+1 : end])
	if err != nil {
		return Entry{}, nil // verify says what is wrong with it
	}
	return e, nil
}

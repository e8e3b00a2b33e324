// Package blob keeps data that plugins set aside for their callers for a limited time.
package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/host/trusted"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

var _ terms.Executor = (*Blobs)(nil)

// Entry is what the index knows of a blob.
type Entry struct {
	ID, Principal    string
	Name, MIME       string
	Bytes            int64
	SHA256           string
	Created, Expires time.Time
}

// Index lists blobs with their owners. AddBlob must refuse a blob that takes its principal over
// limit bytes; Blob must return a blob only to its owner and before it expires; ExpireBlobs must
// return each expired id to one caller only.
type Index interface {
	AddBlob(ctx context.Context, e Entry, limit int64) error
	Blob(ctx context.Context, principal, id string) (Entry, error)
	ExpireBlobs(ctx context.Context) (ids []string, err error)
}

// ErrNone is the error of an Index that does not contain the blob for that principal.
var ErrNone = errors.New("there is no such blob, or it has expired")

// Options is the table [blob].
type Options struct {
	Dir      string `koanf:"dir" path:"true"` // of the bytes; created as 0700
	MaxBytes int64  `koanf:"max_bytes"`       // of one blob, 10 MiB
	// bytes of all blobs of one principal, 100 MiB
	PerPrincipal int64 `koanf:"per_principal"`
	// of a blob that sets no time, 1h
	TTL time.Duration `koanf:"ttl"`

	Index Index `koanf:"-"`
	// Save writes a new file of a principal's workspace, and never replaces one. Nil: nothing can
	// be copied there.
	Save func(principal, local string, data io.Reader) error `koanf:"-"`
	Now  func() time.Time                                    `koanf:"-"` // nil for time.Now
}

func (o Options) withDefaults() Options {
	o.MaxBytes, o.PerPrincipal = cmp.Or(o.MaxBytes, 10<<20), cmp.Or(o.PerPrincipal, 100<<20)
	o.TTL = cmp.Or(o.TTL, time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Validate returns an error that names the key that is wrong.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.MaxBytes < 0:
		return errors.New("blob.max_bytes: must not be negative")
	case o.PerPrincipal < 0:
		return errors.New("blob.per_principal: must not be negative")
	case o.TTL < time.Second || o.TTL > maxTTL:
		return fmt.Errorf("blob.ttl: %s is not between 1s and %s", o.TTL, maxTTL)
	}
	return nil
}

const (
	maxData = 1 << 20 // bytes of one read or write of a plugin
	maxTTL  = 24 * time.Hour
	scheme  = "blob://"
)

var idForm = regexp.MustCompile(`^[a-z2-7]{26}$`)

// Blobs does blob_write and blob_read. It is safe for concurrent use, also with other processes
// that share directory and index.
type Blobs struct {
	opts Options
	root *os.Root

	mu   sync.Mutex // guards the following
	mine map[string]bool
}

// New creates the directory, and removes files that are older than any blob may be.
func New(o Options) (*Blobs, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o = o.withDefaults(); o.Index == nil || o.Dir == "" {
		return nil, errors.New("blob: New needs an Index and blob.dir")
	}
	if err := cmp.Or(os.MkdirAll(o.Dir, 0o700), trusted.Dir(o.Dir)); err != nil {
		return nil, fmt.Errorf("blob.dir: %w", err)
	}
	if info, err := os.Stat(o.Dir); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("blob.dir: %s can be read by others: chmod 0700 %s (%v)", o.Dir,
			o.Dir, err)
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening blob.dir: %w", err)
	}
	b := &Blobs{opts: o, root: root, mine: map[string]bool{}}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading blob.dir: %w", err), root.Close())
	}
	for _, e := range entries { // what a killed process left behind
		if info, err := e.Info(); err == nil && idForm.MatchString(e.Name()) &&
			o.Now().Sub(info.ModTime()) > maxTTL {
			_ = root.Remove(e.Name())
		}
	}
	return b, nil
}

// Close removes the blobs that were written through b. It may be called more than once.
func (b *Blobs) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mine == nil {
		return nil
	}
	for id := range b.mine {
		_ = b.root.Remove(id) // expired ones are gone already
	}
	b.mine = nil
	return b.root.Close()
}

// Keep sets data aside for a principal for the default time, and returns the id.
func (b *Blobs) Keep(
	ctx context.Context, principal, name, media string, data []byte,
) (id string, err error) {
	e, err := b.keep(ctx, principal, name, media, data, 0)
	return e.ID, err
}

func (b *Blobs) keep(
	ctx context.Context, principal, name, media string, data []byte, ttl time.Duration,
) (Entry, error) {
	kind, _, err := mime.ParseMediaType(media)
	switch ttl = cmp.Or(ttl, b.opts.TTL); {
	case principal == "":
		return Entry{}, terms.Fail("bad_request", "a blob needs an owner")
	case name == "" || utf8.RuneCountInString(name) > 128 || strings.ContainsFunc(name, unfit):
		return Entry{}, terms.Fail("bad_request",
			"name: want 1 to 128 characters that show, without slashes")
	case err != nil || len(media) > 128 || !strings.Contains(kind, "/"):
		return Entry{}, terms.Fail("bad_request", "mime: want a media type such as text/plain")
	case ttl < time.Second || ttl > maxTTL:
		return Entry{}, terms.Fail("bad_request", "ttl_s: want 1 to %d", int(maxTTL.Seconds()))
	case int64(len(data)) > b.opts.MaxBytes:
		return Entry{}, terms.Fail("too_large",
			"%d bytes are more than the %d of one blob (blob.max_bytes)", len(data),
			b.opts.MaxBytes)
	}
	b.expire(ctx)
	now := b.opts.Now()
	e := Entry{ID: newID(), Principal: principal, Name: name, MIME: media, Bytes: int64(len(data)),
		SHA256: digest(data), Created: now, Expires: now.Add(ttl)}
	if err := b.write(e.ID, data); err != nil {
		return Entry{}, terms.Fail("failed", "keeping a blob: %v", err)
	}
	if err := b.opts.Index.AddBlob(ctx, e, b.opts.PerPrincipal); err != nil {
		b.remove(e.ID)
		return Entry{}, terms.Fail("full", "%v", err)
	}
	return e, nil
}

// unfit reports whether a character may not be in the name of a blob.
func unfit(r rune) bool { return !unicode.IsPrint(r) || r == '/' || r == '\\' }

func (b *Blobs) write(id string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mine == nil {
		return errors.New("the host is shutting down")
	}
	f, err := b.root.OpenFile(id, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	b.mine[id] = true
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		delete(b.mine, id)
		_ = b.root.Remove(id)
	}
	return err
}

func (b *Blobs) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mine != nil && idForm.MatchString(id) {
		delete(b.mine, id)
		_ = b.root.Remove(id)
	}
}

// expire removes the bytes of expired blobs. That it fails keeps them longer on disk, not longer
// readable.
func (b *Blobs) expire(ctx context.Context) {
	ids, _ := b.opts.Index.ExpireBlobs(ctx)
	for _, id := range ids {
		b.remove(id)
	}
}

// Lookup has nothing to find out: neither operation is decided as a lookup.
func (b *Blobs) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{}, terms.Fail("bad_request", "blobs have no facts to look up")
}

// Execute writes or reads a blob of the caller. The error is a *terms.OpError.
func (b *Blobs) Execute(
	ctx context.Context, q terms.Question, d terms.Decision,
) (terms.Result, error) {
	if !d.Allow {
		return terms.Result{}, terms.Fail("refused", "%s was not allowed", q.Op.Import())
	}
	who := q.Call.Principal.ID
	switch op := q.Op.(type) {
	case abi.BlobWrite:
		data, err := op.Bytes()
		if err != nil || len(data) > maxData || op.TTLS < 0 || op.TTLS > 1<<31 {
			return terms.Result{}, terms.Fail("bad_request",
				"want at most %d bytes as text or base64, and ttl_s not negative", maxData)
		}
		if err := screened(q, data); err != nil {
			return terms.Result{}, err
		}
		e, err := b.keep(ctx, who, op.Name, op.MIME, data, time.Duration(op.TTLS)*time.Second)
		if err != nil {
			return terms.Result{}, err
		}
		return terms.Result{Value: abi.BlobWriteResponse{Blob: e.ID, URI: scheme + e.ID,
			Bytes: e.Bytes, SHA256: e.SHA256}, Bytes: e.Bytes, SHA256: e.SHA256}, nil
	case abi.BlobRead:
		if op.Local != "" && (b.opts.Save == nil || op.Offset != 0 || op.MaxBytes != 0) {
			return terms.Result{}, terms.Fail("bad_request",
				"a blob is copied to the workspace as a whole, without offset and max_bytes, on a "+
					"host that has one")
		}
		e, data, err := b.load(ctx, who, op)
		if err != nil {
			return terms.Result{}, err
		}
		if op.Local != "" {
			if err := screened(q, data); err != nil {
				return terms.Result{}, err
			}
			return b.copy(e, data, op)
		}
		return part(e, data, op, d.Obligations.MaxBytes), nil
	}
	return terms.Result{}, terms.Fail("bad_request", "%s is not an operation of blobs",
		q.Op.Import())
}

// screened returns why the data must not be handed over.
func screened(q terms.Question, data []byte) error {
	if q.Screen == nil {
		return nil
	}
	_, err := q.Screen.Write(data)
	return cmp.Or(err, q.Screen.Close())
}

// load returns a blob and its bytes: all of them for a copy, else at most maxData from the offset.
// Another principal's, an expired one and none are the same to the caller. The index is shared by
// all hosts, the bytes are not.
func (b *Blobs) load(
	ctx context.Context, principal string, op abi.BlobRead,
) (Entry, []byte, error) {
	id, none := strings.TrimPrefix(op.Blob, scheme), terms.Fail("not_found", "%v", ErrNone)
	if !idForm.MatchString(id) || op.Offset < 0 || op.MaxBytes < 0 {
		return Entry{}, nil, terms.Fail("bad_request",
			"want the id of a blob, and offset and max_bytes that are not negative")
	}
	e, err := b.opts.Index.Blob(ctx, principal, id)
	switch {
	case err != nil && !errors.Is(err, ErrNone):
		return Entry{}, nil, terms.Fail("failed", "%v", err)
	case err != nil || e.ID != id || e.Principal != principal:
		return Entry{}, nil, none
	}
	f, err := b.root.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil, terms.Fail("not_found", "the bytes of blob %s are not on this host: "+
			"they are on the one that made it, until that ends; make it again", id)
	}
	if err != nil {
		return Entry{}, nil, terms.Fail("failed", "reading blob %s: %v", id, err)
	}
	defer f.Close()
	n := max(0, min(cmp.Or(op.MaxBytes, maxData), maxData, e.Bytes-op.Offset))
	if op.Local != "" {
		n = e.Bytes
	}
	data := make([]byte, n)
	got, err := f.ReadAt(data, op.Offset)
	if err != nil && err != io.EOF {
		return Entry{}, nil, terms.Fail("failed", "reading blob %s: %v", id, err)
	}
	// part of a file has no digest
	if int64(got) != n || op.Local != "" && digest(data) != e.SHA256 {
		return Entry{}, nil, terms.Fail("failed",
			"blob %s differs from what was stored: its file in blob.dir "+
				"was cut or changed; make it again", id)
	}
	return e, data, nil
}

// copy writes a whole blob to a new file in its owner's workspace, which outlives the blob.
func (b *Blobs) copy(e Entry, data []byte, op abi.BlobRead) (terms.Result, error) {
	if err := b.opts.Save(e.Principal, op.Local, bytes.NewReader(data)); err != nil {
		return terms.Result{}, err
	}
	return terms.Result{Value: abi.WriteResponse{Bytes: e.Bytes, SHA256: e.SHA256, Local: op.Local},
		Bytes: e.Bytes, SHA256: e.SHA256}, nil
}

// part returns as many of the bytes from the offset as the operation and the decision allow.
func part(e Entry, data []byte, op abi.BlobRead, most int64) terms.Result {
	n := int64(len(data))
	for _, limit := range []int64{op.MaxBytes, most} {
		if limit > 0 {
			n = min(n, limit)
		}
	}
	v := abi.ReadResponse{Bytes: n, EOF: op.Offset+n >= e.Bytes}
	if text := data[:n]; utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		v.Text = string(text)
	} else {
		v.B64 = base64.StdEncoding.EncodeToString(text)
	}
	return terms.Result{Value: v, Bytes: n}
}

// End has nothing to free: a blob outlives its call.
func (b *Blobs) End(context.Context, *terms.Call) {}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// newID is 26 random characters, about 130 bits, and cannot be guessed. The owner is checked too.
func newID() string { return strings.ToLower(rand.Text()) }

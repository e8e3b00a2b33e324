package blob

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// index is a store in memory.
type index struct {
	mu   sync.Mutex
	now  time.Time
	all  map[string]Entry
	full bool
}

func (x *index) AddBlob(_ context.Context, e Entry, limit int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	held := int64(0)
	for _, have := range x.all {
		if have.Principal == e.Principal {
			held += have.Bytes
		}
	}
	if x.full || held+e.Bytes > limit {
		return fmt.Errorf("over the limit of %d", limit)
	}
	x.all[e.ID] = e
	return nil
}

func (x *index) Blob(_ context.Context, principal, id string) (Entry, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.all[id]; ok && e.Principal == principal && e.Expires.After(x.now) {
		return e, nil
	}
	return Entry{}, ErrNone
}

func (x *index) ExpireBlobs(context.Context) (ids []string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, e := range x.all {
		if !e.Expires.After(x.now) {
			ids = append(ids, id)
			delete(x.all, id)
		}
	}
	return ids, nil
}

func lab(t *testing.T, o Options) (*Blobs, *index) {
	x := &index{now: time.Unix(1e9, 0), all: map[string]Entry{}}
	o.Index, o.Now = x, func() time.Time { return x.now }
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "blobs")
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, x
}

func do(b *Blobs, who string, op abi.Op) (terms.Result, error) {
	return b.Execute(context.Background(),
		terms.Question{Call: &terms.Call{Principal: terms.Principal{ID: who}}, Op: op},
		terms.Decision{Allow: true})
}

func wants(t *testing.T, err error, code, words string) {
	t.Helper()
	op := (*terms.OpError)(nil)
	if !errors.As(err, &op) || op.Code != code || !strings.Contains(op.Message, words) {
		t.Errorf("error %v, want code %s with %q", err, code, words)
	}
}

func files(t *testing.T, b *Blobs) (all []fs.FileInfo) {
	t.Helper()
	entries, err := os.ReadDir(b.opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info)
	}
	return all
}

// Hosts share the index. One that lacks the bytes must not say that there is no such blob.
func TestAnotherHostSaysWhereABlobIs(t *testing.T) {
	a, index := lab(t, Options{})
	other, _ := lab(t, Options{})
	other.opts.Index = index
	res, err := do(a, "alice", abi.BlobWrite{Name: "a.txt", MIME: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	id := res.Value.(abi.BlobWriteResponse).Blob
	_, err = do(other, "alice", abi.BlobRead{Blob: id})
	wants(t, err, "not_found", "not on this host")
	_, err = do(other, "mallory", abi.BlobRead{Blob: id})
	wants(t, err, "not_found", "no such blob")
	other.opts.Index = away{index}
	_, err = do(other, "alice", abi.BlobRead{Blob: id})
	wants(t, err, "failed", "the database does not answer")
}

// away is an index that cannot be asked.
type away struct{ Index }

func (away) Blob(context.Context, string, string) (Entry, error) {
	return Entry{}, errors.New("the database does not answer")
}

func TestOnlyTheOwnerCanReadABlob(t *testing.T) {
	b, x := lab(t, Options{})
	res, err := do(b, "alice",
		abi.BlobWrite{Name: "a.txt", MIME: "text/plain", Data: abi.Data{Text: "hello"}, TTLS: 60})
	if err != nil {
		t.Fatal(err)
	}
	w := res.Value.(abi.BlobWriteResponse)
	if w.URI != "blob://"+w.Blob || w.Bytes != 5 ||
		w.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" ||
		res.SHA256 != w.SHA256 {
		t.Errorf("wrote %+v", w)
	}
	if f := files(t, b); len(f) != 1 || f[0].Mode().Perm() != 0o600 {
		t.Errorf("on disk: %v", f)
	}
	for _, name := range []string{w.Blob, w.URI} {
		res, err := do(b, "alice", abi.BlobRead{Blob: name})
		if c, ok := res.Value.(abi.ReadResponse); err != nil || !ok || c.Text != "hello" ||
			!c.EOF ||
			c.Bytes != 5 {
			t.Errorf("reading %s gave %+v, %v", name, res.Value, err)
		}
	}
	_, err = do(b, "mallory", abi.BlobRead{Blob: w.Blob})
	wants(t, err, "not_found", "no such blob")
	for _, id := range []string{"", "../store.db", "/etc/passwd", strings.Repeat("a", 25),
		strings.Repeat("A", 26), w.Blob + "/x"} {
		_, err = do(b, "alice", abi.BlobRead{Blob: id})
		wants(t, err, "bad_request", "id of a blob")
	}
	_, err = do(b, "alice", abi.BlobRead{Blob: strings.Repeat("a", 26)})
	wants(t, err, "not_found", "no such blob")
	x.now = x.now.Add(time.Minute)
	_, err = do(b, "alice", abi.BlobRead{Blob: w.Blob})
	wants(t, err, "not_found", "expired")
	if _, err := do(b, "alice", abi.BlobWrite{Name: "b", MIME: "text/plain"}); err != nil {
		t.Fatal(err)
	}
	if f := files(t, b); len(f) != 1 || f[0].Name() == w.Blob {
		t.Errorf("on disk after the first one expired: %v", f)
	}
	if _, err := b.Execute(context.Background(),
		terms.Question{Call: &terms.Call{},
			Op: abi.BlobRead{Blob: w.Blob}}, terms.Decision{}); err == nil {
		t.Error("what was not allowed was done")
	}
}

func TestABlobIsReadInPieces(t *testing.T) {
	b, _ := lab(t, Options{})
	body := strings.Repeat("0123456789", 250_000) + "\x00\xff"
	id, err := b.Keep(context.Background(), "alice", "response", "application/octet-stream",
		[]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	got, reads := "", 0
	for {
		res, err := do(b, "alice",
			abi.BlobRead{Blob: id, Offset: int64(len(got)), MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		c := res.Value.(abi.ReadResponse)
		data, err := c.Data.Bytes()
		if err != nil || int64(len(data)) != c.Bytes || len(data) > maxData {
			t.Fatalf("a piece of %d bytes, %d said, %v", len(data), c.Bytes, err)
		}
		got, reads = got+string(data), reads+1
		if c.EOF {
			break
		}
	}
	if got != body || reads != 3 {
		t.Errorf("%d bytes in %d reads, want %d in 3", len(got), reads, len(body))
	}
	if res, err := do(b, "alice", abi.BlobRead{Blob: id, Offset: 1 << 40}); err != nil ||
		res.Value.(abi.ReadResponse) != (abi.ReadResponse{EOF: true}) {
		t.Errorf("after the end: %+v, %v", res.Value, err)
	}
}

func TestWritesThatAreRefusedLeaveNothing(t *testing.T) {
	b, x := lab(t, Options{MaxBytes: 10, PerPrincipal: 15})
	ok := abi.BlobWrite{Name: "n", MIME: "text/plain", Data: abi.Data{Text: "0123456789"}}
	with := func(f func(*abi.BlobWrite)) abi.BlobWrite { op := ok; f(&op); return op }
	for name, tt := range map[string]struct {
		op          abi.BlobWrite
		code, words string
	}{
		"no name": {with(func(o *abi.BlobWrite) { o.Name = "" }), "bad_request",
			"name"},
		"a path for a name": {with(func(o *abi.BlobWrite) { o.Name = "../x" }), "bad_request",
			"name"},
		"a name that hides": {with(func(o *abi.BlobWrite) { o.Name = "x\x1b[2J" }),
			"bad_request", "name"},
		"no type": {with(func(o *abi.BlobWrite) { o.MIME = "" }), "bad_request",
			"mime"},
		"a type with a line end": {with(func(o *abi.BlobWrite) { o.MIME = "text/plain\r\nX: y" }),
			"bad_request", "mime"},
		"too long a life": {with(func(o *abi.BlobWrite) { o.TTLS = 86401 }), "bad_request",
			"ttl_s"},
		"a life that would wrap": {with(func(o *abi.BlobWrite) { o.TTLS = 1 << 60 }), "bad_request",
			"ttl_s"},
		"a life below zero": {with(func(o *abi.BlobWrite) { o.TTLS = -1 }), "bad_request",
			"ttl_s"},
		"text and base64": {with(func(o *abi.BlobWrite) { o.B64 = "eA==" }), "bad_request",
			"base64"},
		"base64 that is none": {with(func(o *abi.BlobWrite) { o.Text, o.B64 = "", "*" }),
			"bad_request", "base64"},
		"more than one may have": {with(func(o *abi.BlobWrite) { o.Text += "x" }), "too_large",
			"11 bytes"},
		"more than a request may": {with(func(o *abi.BlobWrite) {
			o.Text, o.B64 = "", base64.StdEncoding.EncodeToString(make([]byte, maxData+1))
		}), "bad_request", "1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(b, "alice", tt.op)
			wants(t, err, tt.code, tt.words)
		})
	}
	_, err := do(b, "", ok)
	wants(t, err, "bad_request", "owner")
	if _, err := do(b, "alice", ok); err != nil {
		t.Fatal(err)
	}
	_, err = do(b, "alice", ok)
	wants(t, err, "full", "limit of 15")
	if _, err := do(b, "bob", ok); err != nil {
		t.Errorf("another's blobs count: %v", err)
	}
	if f := files(t, b); len(f) != 2 || len(x.all) != 2 {
		t.Errorf("%d files and %d entries, want the 2 that were allowed", len(f), len(x.all))
	}
}

func TestBlobsAreGoneAtTheEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	b, _ := lab(t, Options{Dir: dir})
	other, _ := lab(t, Options{Dir: dir})
	for _, each := range []*Blobs{b, other} {
		if _, err := each.Keep(context.Background(), "alice", "n", "text/plain",
			[]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	stale, foreign := filepath.Join(dir, strings.Repeat("z", 26)), filepath.Join(dir, "README")
	for _, f := range []string{stale, foreign} {
		if err := os.WriteFile(f, nil, 0o600); err != nil ||
			os.Chtimes(f, time.Unix(1, 0), time.Unix(1, 0)) != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error("closing again:", err)
	}
	if f := files(t, b); len(f) != 3 {
		t.Errorf("after one of two processes has ended: %v", f)
	}
	_, err := b.Keep(context.Background(), "alice", "n", "text/plain", nil)
	wants(t, err, "failed", "shutting down")
	lab(t, Options{Dir: dir})
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what a killed process left behind is still there")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error("a file that is no blob was removed")
	}
}

func TestADirectoryOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: dir, Index: &index{}}); err == nil ||
		!strings.Contains(err.Error(), "chmod 0700") {
		t.Errorf("error %v, want one that says chmod 0700", err)
	}
	for _, o := range []Options{{}, {Dir: dir}, {Dir: dir, Index: &index{}, TTL: -1},
		{Dir: dir, Index: &index{}, TTL: 25 * time.Hour}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	b, x := lab(t, Options{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			who := fmt.Sprint("p", i%4)
			for j := range 20 {
				res, err := do(
					b,
					who,
					abi.BlobWrite{Name: "n", MIME: "text/plain",
						Data: abi.Data{Text: fmt.Sprint(i, j)}},
				)
				if err != nil {
					t.Error(err)
					return
				}
				res, err = do(b, who, abi.BlobRead{Blob: res.Value.(abi.BlobWriteResponse).Blob})
				if err != nil || res.Value.(abi.ReadResponse).Text != fmt.Sprint(i, j) {
					t.Errorf("read %+v, %v", res.Value, err)
				}
			}
		})
	}
	wg.Wait()
	if len(x.all) != 320 || len(files(t, b)) != 320 {
		t.Errorf("%d entries, %d files", len(x.all), len(files(t, b)))
	}
}

func TestACopyInTheWorkspaceIsWholeAndItsOwners(t *testing.T) {
	saved := map[string]string{}
	b, _ := lab(t, Options{Save: func(principal, local string, data io.Reader) error {
		if local == "taken" {
			return terms.Fail("exists", "there already")
		}
		body, err := io.ReadAll(data)
		saved[principal+" "+local] = string(body)
		return err
	}})
	body := strings.Repeat("0123456789", 200_000) // more than one read gives
	id, err := b.Keep(t.Context(), "alice", "a", "text/plain", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := do(b, "alice", abi.BlobRead{Blob: id, Local: "d/a"})
	if c, ok := res.Value.(abi.WriteResponse); err != nil || !ok || c.Bytes != 2_000_000 ||
		c.Local != "d/a" ||
		c.SHA256 == "" ||
		res.SHA256 != c.SHA256 ||
		saved["alice d/a"] != body {
		t.Errorf("copied %+v, %d bytes, %v", res.Value, len(saved["alice d/a"]), err)
	}
	_, err = do(b, "alice", abi.BlobRead{Blob: id, Local: "taken"})
	wants(t, err, "exists", "there already")
	_, err = do(b, "mallory", abi.BlobRead{Blob: id, Local: "d/b"})
	wants(t, err, "not_found", "no such blob")
	_, err = do(b, "alice", abi.BlobRead{Blob: id, Local: "d/b", Offset: 1})
	wants(t, err, "bad_request", "as a whole")
	none, _ := lab(t, Options{})
	_, err = do(none, "alice", abi.BlobRead{Blob: id, Local: "d/b"})
	wants(t, err, "bad_request", "a host that has one")
	if len(saved) != 1 {
		t.Errorf("saved %d files", len(saved))
	}
}

func TestADamagedBlobIsRefused(t *testing.T) {
	workspace := t.TempDir()
	r, err := remote.New(remote.Options{Workspace: workspace})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, _ := lab(t, Options{Dir: dir, Save: r.Save})
	id, err := b.Keep(t.Context(), "alice", "a", "text/plain", []byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	for name, now := range map[string]string{"cut short": "01234", "empty": "",
		"changed": "012345678x"} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, id), []byte(now), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := do(b, "alice", abi.BlobRead{Blob: id, Local: "d/a"})
			wants(t, err, "failed", "differs from what was stored")
			if left, _ := filepath.Glob(filepath.Join(workspace, "alice", "d", "*")); len(
				left,
			) != 0 {
				t.Errorf("left in the workspace: %v", left)
			}
			if name != "changed" { // part of a file has no digest
				_, err = do(b, "alice", abi.BlobRead{Blob: id})
				wants(t, err, "failed", "differs from what was stored")
			}
		})
	}
}

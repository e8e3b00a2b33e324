package export

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/terms"
)

// kinds are the sinks of every kind, each with its receiver.
func kinds(t *testing.T) map[string]func() (SinkOptions, *receiver) {
	web := func(kind string, take func(*receiver) func([]byte) error) func() (SinkOptions,
		*receiver) {
		return func() (SinkOptions, *receiver) {
			r := newReceiver()
			s := httptest.NewServer(r.serve(take(r)))
			t.Cleanup(s.Close)
			return SinkOptions{Kind: kind, URL: s.URL + "/logs"}, r
		}
	}
	stream := func(secure bool) func() (SinkOptions, *receiver) {
		return func() (SinkOptions, *receiver) {
			r := newReceiver()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			o := SinkOptions{Kind: "syslog", URL: "tcp://" + l.Addr().String()}
			if secure {
				web := httptest.NewTLSServer(nil) // for its certificate
				defer web.Close()
				cert := web.TLS.Certificates[0]
				c, ca := tlsPair(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
					Bytes: cert.Certificate[0]}))
				o.URL, o.CAFile = "tls://"+l.Addr().String(), ca
				l = tls.NewListener(l, c)
			}
			t.Cleanup(func() { l.Close() })
			go r.stream(l)
			return o, r
		}
	}
	return map[string]func() (SinkOptions, *receiver){
		"opa":        web("opa", func(r *receiver) func([]byte) error { return r.opa }),
		"otlp":       web("otlp", func(r *receiver) func([]byte) error { return r.otlp }),
		"syslog tcp": stream(false),
		"syslog tls": stream(true),
		"syslog unix": func() (SinkOptions, *receiver) {
			r := newReceiver()
			return SinkOptions{Kind: "syslog", URL: "unix://" + datagramSocket(t, r.syslog)}, r
		},
		"journald": func() (SinkOptions, *receiver) {
			r := newReceiver()
			return SinkOptions{Kind: "journald", URL: "unix://" + datagramSocket(t, r.journald)}, r
		},
	}
}

func TestEverySinkGetsEveryRecordOfAllProcesses(t *testing.T) {
	for name, open := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			one, other := journal(t, dir), journal(t, dir)
			ids := append(write(t, one, "a", 700), write(t, other, "b", 20)...)
			o, r := open()
			x := exporter(t, dir, o)
			must(t, x.Once(t.Context()))
			r.holds(t, ids)
			must(t, x.Once(t.Context()))
			ids = append(ids, write(t, one, "c", 5)...)
			must(t, exporter(t, dir, o).Once(t.Context())) // another process goes on
			r.holds(t, ids)
			r.mu.Lock()
			defer r.mu.Unlock()
			for id, n := range r.got {
				if n != 1 {
					t.Errorf("%s came %d times from sinks and senders that did not fail", id, n)
				}
			}
			if s := x.States()[0]; s.Events != 1440 || s.Behind != 0 || s.Error != "" ||
				s.Gaps != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestEverySinkGetsWhatACandidateAnswers(t *testing.T) {
	for name, open := range kinds(t) {
		dir := filepath.Join(t.TempDir(), "journal")
		j := journal(t, dir)
		ids := append(write(t, j, "a", 1), "a-0.shadow")
		must(t, j.Shadow(audit.Shadow{ID: "a-0", CallID: "Ca", Revision: "candidate-7",
			Failed: []string{"protected"}, Tier: "yellow", Change: "newly refused"}))
		o, r := open()
		must(t, exporter(t, dir, o).Once(t.Context()))
		r.holds(t, ids)
		for _, part := range []string{"candidate-7", "newly refused"} {
			if !strings.Contains(r.raw.String(), part) {
				t.Errorf("%s: no %q in %s", name, part, r.raw.String())
			}
		}
	}
}

func TestAFileOfLinesMayBeRotatedAndCutOffBySomebodyElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	file := filepath.Join(t.TempDir(), "lines")
	j := journal(t, dir)
	x := exporter(t, dir, SinkOptions{Kind: "jsonl", File: file})
	ids := write(t, j, "a", 3)
	must(t, x.Once(t.Context()))
	must(t, os.Rename(file, file+".1"))
	ids = append(ids, write(t, j, "b", 3)...)
	must(t, x.Once(t.Context()))
	// A process that is killed leaves half a line.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString(`{"half`)
	must(t, errors.Join(err, f.Close()))
	ids = append(ids, write(t, j, "c", 3)...)
	must(t, x.Once(t.Context()))
	r := newReceiver()
	for _, name := range []string{file + ".1", file} {
		info, err := os.Stat(name)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %o", name, info.Mode())
		}
		text, err := os.ReadFile(name)
		must(t, err)
		for line := range bytes.Lines(text) {
			if string(line) != "{\"half\n" {
				r.event(line)
			}
		}
	}
	r.holds(t, ids)
	folder := t.TempDir()
	link, open := filepath.Join(folder, "link"), filepath.Join(folder, "open")
	must(t, os.Symlink(filepath.Join(folder, "target"), link))
	must(t, errors.Join(os.WriteFile(open, nil, 0o600), os.Chmod(open, 0o666)))
	for name, x := range map[string]struct{ file, want string }{
		"a folder":                  {folder, "is a directory"},
		"a device":                  {"/dev/null", "not a regular file"},
		"a link":                    {link, "too many levels of symbolic links"},
		"a file that all may write": {open, "can be written by other users"},
	} {
		dir := filepath.Join(t.TempDir(), "journal")
		write(t, journal(t, dir), "a", 1)
		err := exporter(t, dir, SinkOptions{Kind: "jsonl", File: x.file}).Once(t.Context())
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s takes lines: %v", name, err)
		}
	}
}

// A batch that does not fit leaves nothing: it is sent again as a whole.
func TestAFullFileOfLinesKeepsNoPartOfABatch(t *testing.T) {
	dir, file := filepath.Join(t.TempDir(), "journal"), filepath.Join(t.TempDir(), "lines")
	j := journal(t, dir)
	write(t, j, "a", 1)
	o := SinkOptions{Kind: "jsonl", File: file}
	must(t, exporter(t, dir, o).Once(t.Context()))
	before, err := os.ReadFile(file)
	must(t, err)
	write(t, j, "b", 5)
	// a process of its own: the limit would hold for what the test's process writes of itself too
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EXPORT_TEST_ROLE=full", fmt.Sprint("EXPORT_TEST_ARGS=", dir,
		" ", file, " ", len(before)+700))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out),
		syscall.EFBIG.Error()) {
		t.Errorf("%v: %s", err, out)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%d bytes were added: %v", len(after)-len(before), err)
	}
}

// Whatever a service answers, a record is sent again until it is taken.
func TestASinkThatFailsGetsEverythingLater(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"500": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) },
		"429": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		},
		"401": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/logs?elsewhere", http.StatusTemporaryRedirect)
		},
		"silence": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"a 200 before it has read": func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			must(t, err)
			_, _ = io.WriteString(c,
				"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			time.AfterFunc(5*time.Second, func() { c.Close() })
		},
		"a cut answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
		"a broken connection": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver()
			var good atomic.Bool
			var asked atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				req *http.Request) {
				if asked.Add(1); req.Header.Get("Authorization") != "Bearer s3cret" ||
					req.URL.RawQuery != "" {
					t.Errorf("%s %v", req.URL, req.Header)
				}
				if good.Load() {
					r.serve(r.opa)(w, req)
					return
				}
				if name == "silence" {
					cancel() // nobody waits for it forever
				}
				answer(w, req)
			}))
			defer s.Close()
			dir := filepath.Join(t.TempDir(), "journal")
			j := journal(t, dir)
			ids := write(t, j, "a", 100)
			// more than the kernel keeps of a connection that nobody reads
			for i := range map[bool]int{true: 5}[strings.Contains(name, "before")] {
				big := terms.Record{Type: "intent", Time: time.Now(), ID: fmt.Sprint("big", i),
					Input: noise(3 << 20)}
				must(t, j.Intent(t.Context(), big, false))
				ids = append(ids, big.ID)
			}
			x := exporter(t, dir, SinkOptions{Kind: "opa", URL: s.URL + "/logs", Token: "s3cret",
				MaxBytes: 32 << 20})
			x.to[0].bytes = 32 << 20
			err := x.Once(ctx)
			if err == nil || asked.Load() == 0 || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%d requests: %v", asked.Load(), err)
			}
			good.Store(true)
			must(t, x.Once(t.Context()))
			r.holds(t, ids)
		})
	}
}

// noise is JSON that cannot be compressed much.
func noise(n int) []byte {
	text := []byte(`"`)
	state := uint32(1)
	for len(text) < n {
		state = state*1664525 + 1013904223
		text = append(text,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[state>>26])
	}
	return append(text, '"')
}

func TestWhatASinkDoesNotTakeAtOnceIsSentInPartsAndThenWithoutInput(t *testing.T) {
	for name, o := range map[string]struct{ most, events int }{
		"its own limit": {1 << 30, 1}, "413": {40 << 10, 1 << 30}} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver()
			largest := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				req *http.Request) {
				if int(req.ContentLength) > o.most {
					w.WriteHeader(http.StatusRequestEntityTooLarge)
					return
				}
				largest = max(largest, int(req.ContentLength))
				r.serve(r.opa)(w, req)
			}))
			defer s.Close()
			dir := filepath.Join(t.TempDir(), "journal")
			j := journal(t, dir)
			ids := write(t, j, "a", 1000)
			for _, id := range []string{"big1", "big2"} {
				must(t, j.Intent(t.Context(),
					terms.Record{Type: "intent", Time: time.Now(), Kind: "call", ID: id,
						Input: noise(200 << 10)}, false))
				ids = append(ids, id)
			}
			sink := SinkOptions{Kind: "opa", URL: s.URL}
			if o.events > 1 {
				sink.MaxBytes = 8 << 20
			}
			x := exporter(t, dir, sink)
			must(t, x.Once(t.Context()))
			r.holds(t, ids)
			if s := x.States()[0]; s.Omitted != 2 || largest > 40<<10 || largest < 1<<10 {
				t.Errorf("%+v, the largest body had %d bytes", s, largest)
			}
			if !strings.Contains(r.raw.String(), `"erased":["/input"]`) {
				t.Error("an event does not say that its input was left out")
			}
		})
	}
}

func TestAReceiverThatDropsEventsIsReported(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w,
			`{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"too old"}}`)
	}))
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "journal")
	write(t, journal(t, dir), "a", 10)
	x := exporter(t, dir, SinkOptions{Kind: "otlp", URL: s.URL})
	must(t, x.Once(t.Context()))
	if s := x.States()[0]; s.Dropped != 3 {
		t.Errorf("%+v", s)
	}
}

// A syslog server has read everything only when it closes after the end.
func TestASyslogServerThatEndsEarlyGetsEverythingAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	r := newReceiver()
	ended := make(chan struct{})
	go func() {
		for range 3 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 100)) // and is killed: the kernel resets the rest
			_ = c.Close()
		}
		close(ended)
		r.stream(l)
	}()
	dir := filepath.Join(t.TempDir(), "journal")
	ids := write(t, journal(t, dir), "a", 100)
	x := exporter(t, dir, SinkOptions{Kind: "syslog", URL: "tcp://" + l.Addr().String()})
	for range 3 {
		if err := x.Once(t.Context()); err == nil {
			t.Error("a server that read 100 bytes took everything")
		}
	}
	<-ended
	must(t, x.Once(t.Context()))
	r.holds(t, ids)
}

func TestBackoffGrowsAndIsNeverTheSameForAll(t *testing.T) {
	d := delivery{first: time.Second, longest: 5 * time.Minute}
	for _, c := range []struct {
		failures     int
		err          error
		least, most_ time.Duration
	}{
		{0, io.EOF, 500 * time.Millisecond, time.Second},
		{3, io.EOF, 4 * time.Second, 8 * time.Second},
		{1000, io.EOF, 150 * time.Second, 300 * time.Second},
		{0, fmt.Errorf("x: %w", later{io.EOF, time.Minute}), time.Minute, time.Minute},
		{0, later{io.EOF, time.Hour}, 5 * time.Minute, 5 * time.Minute},
		{5, later{io.EOF, -time.Hour}, 16 * time.Second, 32 * time.Second},
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			got := d.backoff(c.failures, c.err)
			if seen[got] = true; got < c.least || got > c.most_ {
				t.Errorf("after %d failures with %v: %s", c.failures, c.err, got)
			}
		}
		if c.least != c.most_ && len(seen) < 50 {
			t.Errorf("%d waits of 100", len(seen))
		}
	}
}

func TestRunGoesOnAfterFailuresAndFollowsWhatIsWritten(t *testing.T) {
	r := newReceiver()
	var failing atomic.Bool
	failing.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if failing.Load() {
			w.WriteHeader(503)
			return
		}
		r.serve(r.opa)(w, req)
	}))
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "journal")
	j := journal(t, dir)
	x := exporter(t, dir, SinkOptions{Kind: "opa", URL: s.URL})
	x.every, x.to[0].first = 10*time.Millisecond, 10*time.Millisecond
	ids := write(t, j, "a", 10)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); x.Run(ctx) }()
	eventually(t, func() bool { s := x.States()[0]; return s.Failures > 2 && s.Behind > 1000 })
	if s := x.States()[0]; !strings.Contains(s.Error, "503") || s.Since.IsZero() || s.Events != 0 {
		t.Errorf("%+v", s)
	}
	// Another process of the same state directory leaves the sink to this one.
	other := exporter(t, dir, SinkOptions{Kind: "opa", URL: s.URL})
	if err := other.Once(t.Context()); !errors.Is(err, errElsewhere) ||
		!other.States()[0].Elsewhere {
		t.Errorf("%v", err)
	}
	failing.Store(false)
	ids = append(ids, write(t, j, "b", 10)...)
	r.holds(t, ids)
	eventually(t, func() bool { s := x.States()[0]; return s.Error == "" && s.Behind == 0 })
	stop()
	<-done
	must(t, other.Once(t.Context()))
}

func TestTheCursorIsPrivateAndABrokenOneIsNotTakenForNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	write(t, journal(t, dir), "a", 1)
	o := SinkOptions{Kind: "jsonl", File: filepath.Join(t.TempDir(), "lines")}
	must(t, exporter(t, dir, o).Once(t.Context()))
	cursors := filepath.Join(filepath.Dir(dir), "export")
	file := filepath.Join(cursors, "x.json")
	for path, want := range map[string]os.FileMode{cursors: 0o700, file: 0o600, file +
		".lock": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	before, err := os.ReadFile(o.File)
	must(t, err)
	must(t, os.WriteFile(file, []byte(`{"first":`), 0o600))
	if err := exporter(t, dir, o).Once(t.Context()); err == nil ||
		!strings.Contains(err.Error(), file) {
		t.Errorf("a broken cursor: %v", err)
	}
	must(t, errors.Join(os.WriteFile(file, []byte(`{}`), 0o666), os.Chmod(file, 0o666)))
	if err := exporter(t, dir, o).Once(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "chmod") {
		t.Errorf("a cursor that others write: %v", err)
	}
	if after, err := os.ReadFile(o.File); err != nil || !bytes.Equal(before, after) {
		t.Error("something was sent again")
	}
}

// What went away before it was read is told to the sink itself.
func TestAGapIsSentAsAnEvent(t *testing.T) {
	for name, open := range kinds(t) {
		dir := filepath.Join(t.TempDir(), "journal")
		j := journal(t, dir)
		ids := write(t, j, "a", 3)
		o, r := open()
		x := exporter(t, dir, o)
		must(t, x.Once(t.Context()))
		files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		must(t, err)
		must(t, os.Remove(files[0]))
		ids = append(ids, write(t, j, "b", 3)...)
		must(t, x.Once(t.Context()))
		r.holds(t, ids)
		if s := x.States()[0]; s.Gaps != 1 || len(r.gaps) != 1 || !strings.Contains(r.gaps[0],
			filepath.Base(files[0])+" was removed: it was read up to entry 6") {
			t.Errorf("%s: %+v %q", name, s, r.gaps)
		}
		must(t, x.Once(t.Context()))
		if len(r.gaps) != 1 {
			t.Errorf("%s: told %d times", name, len(r.gaps))
		}
	}
}

func TestPrintEscapesWhatDoesNotShow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	r := terms.Record{Type: "refused", ID: "a", Denied: []terms.Reason{{ID: "x",
		Msg: "a\u202e\u009b\u007fb"}}}
	must(t, journal(t, dir).Intent(t.Context(), r, false))
	for _, kind := range []string{"jsonl", "opa", "otlp"} {
		var b bytes.Buffer
		must(t, Print(&b, kind, Options{}, dir, time.Time{}))
		if strings.ContainsAny(b.String(), "\u202e\u009b\u007f") ||
			!strings.Contains(b.String(), `\u202e\u009b\u007fb`) {
			t.Errorf("%s: %q", kind, b.String())
		}
	}
}

// The record of a rule that says much does not hold up those behind it.
func TestAnEventIsCutUntilTheSinkTakesIt(t *testing.T) {
	for name, most := range map[string]int64{"its own limit": 1 << 30, "413": 4 << 10} {
		r := newReceiver()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.ContentLength > most {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			r.serve(r.opa)(w, req)
		}))
		defer s.Close()
		dir := filepath.Join(t.TempDir(), "journal")
		j := journal(t, dir)
		big := terms.Record{Type: "refused", Time: time.Now(), Kind: "call", ID: "big",
			Input:  noise(100 << 10),
			Denied: []terms.Reason{{ID: "chatty", Msg: string(noise(100 << 10))}}}
		must(t, j.Intent(t.Context(), big, false))
		ids := append(write(t, j, "a", 5), big.ID)
		o := SinkOptions{Kind: "opa", URL: s.URL}
		if most < 1<<30 {
			o.MaxBytes = 8 << 20
		}
		x := exporter(t, dir, o)
		must(t, x.Once(t.Context()))
		r.holds(t, ids)
		if s := x.States()[0]; s.Omitted != 1 || !strings.Contains(r.raw.String(),
			`"erased":["/input","/result/deny"]`) || !strings.Contains(r.raw.String(), "chatty") {
			t.Errorf("%s: %+v %.2000s", name, s, r.raw.String())
		}
	}
}

func TestWhatIsNoAnswerOfOTLPIsAFailure(t *testing.T) {
	for answer, good := range map[string]bool{"": true, "{}": true,
		"{\"partialSuccess\":{}}\n": true,
		"null":                      false, "[]": false, "ok": false, "<html>": false,
		"{\"partialSuccess\":": false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(w, answer)
		}))
		defer s.Close()
		dir := filepath.Join(t.TempDir(), "journal")
		write(t, journal(t, dir), "a", 1)
		err := exporter(t, dir, SinkOptions{Kind: "otlp", URL: s.URL}).Once(t.Context())
		if good != (err == nil) || err != nil &&
			!strings.Contains(err.Error(), "no answer of OTLP") {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// A receiver that takes events together by their id keeps each gap, once.
func TestEachGapHasAnIDOfItsOwn(t *testing.T) {
	gap := func(file, text string, at int64) string {
		e, _ := eventOf(audit.Step{Entry: audit.Entry{File: file}, Gap: text,
			Mark: audit.Mark{Bytes: at}}, "x", time.Now())
		raw, err := opa{}.encode(e)
		must(t, err)
		var sent opaEvent
		must(t, json.Unmarshal(raw, &sent))
		if sent.DecisionID != e.ID {
			t.Errorf("OPA's id is %s, and the record's %s", sent.DecisionID, e.ID)
		}
		return e.ID
	}
	one := gap("f", "one", 0)
	if again := gap("f", "one", 0); again != one {
		t.Errorf("sent again as %s, not %s", again, one)
	}
	for _, other := range []string{gap("f", "two", 0), gap("g", "one", 0), gap("f", "one", 7)} {
		if other == one {
			t.Errorf("%s is the id of two", one)
		}
	}
}

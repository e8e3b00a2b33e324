package distribution_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/distribution"
	"github.com/opencontainers/go-digest"
)

// liar is a registry that serves what a test gives it.
type liar struct {
	blobs map[string][]byte // manifests and blobs, by the last part of their path
	odd   map[string]http.HandlerFunc
	read  atomic.Int64 // bytes that were written
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := strings.Split(r.URL.Path, "/")
	name := at[len(at)-1]
	if odd := l.odd[name]; odd != nil {
		odd(w, r)
		return
	}
	data, there := l.blobs[name]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if at[len(at)-2] == "manifests" {
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

func (l *liar) add(data []byte) map[string]any {
	d := digest.FromBytes(data).String()
	l.blobs[d] = data
	return map[string]any{"digest": d, "size": len(data)}
}

func (l *liar) json(v any) string {
	data, _ := json.Marshal(v)
	return l.add(data)["digest"].(string)
}

func with(m map[string]any, more ...any) map[string]any {
	m = maps.Clone(m)
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// good fills the registry with a plugin and returns its manifest and the digest of its module.
func (l *liar) good() (m map[string]any, of string) {
	layer := l.add(module)
	c := l.add([]byte(`{"architecture":"wasm","os":"wasip1","caponier":{"name":"acme"}}`))
	return map[string]any{"schemaVersion": 2, "artifactType": distribution.ArtifactType,
		"mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config":    with(c, "mediaType", "application/vnd.wasm.config.v0+json"),
		"layers":    []any{with(layer, "mediaType", "application/wasm")}}, layer["digest"].(string)
}

func pullFrom(t *testing.T, l *liar, digest string, within time.Duration) error {
	t.Helper()
	s := httptest.NewServer(l)
	defer s.Close()
	defer s.CloseClientConnections() // of handlers that hang
	_, err := distribution.Pull(t.Context(), "oci://"+strings.TrimPrefix(s.URL, "http://")+
		"/acme/look@"+digest, distribution.Options{PlainHTTP: true, Deadline: within})
	return err
}

func TestAManifestThatIsNotAPlugins(t *testing.T) {
	l := &liar{blobs: map[string][]byte{}}
	good, of := l.good()
	layer := good["layers"].([]any)[0].(map[string]any)
	if err := pullFrom(t, l, l.json(good), 0); err != nil {
		t.Fatal(err)
	}
	twice := fmt.Appendf(nil, `{"schemaVersion":2,%s`, l.blobs[l.json(good)][1:])
	for what, x := range map[string]struct {
		m   any
		why string
	}{
		"another artifact": {with(good, "artifactType", "application/x"), "it is no plugin"},
		"no type":          {with(good, "artifactType", ""), "it is no plugin"},
		"another manifest": {with(good, "mediaType", "application/x"), "the manifest is a"},
		"another version":  {with(good, "schemaVersion", 1), "version 1"},
		"another config": {with(good, "config", with(good["config"].(map[string]any),
			"mediaType", "application/x")), "its config is of type"},
		"another layer": {with(good, "layers", []any{with(layer, "mediaType",
			"application/vnd.oci.image.layer.v1.tar")}), "its layer is of type"},
		"two layers": {with(good, "layers", []any{layer, layer}), "has 2 layers"},
		"no layer":   {with(good, "layers", []any{}), "has 0 layers"},
		"1 GB":       {with(good, "layers", []any{with(layer, "size", 1<<30)}), "at most"},
		"below 0":    {with(good, "layers", []any{with(layer, "size", -1)}), "at most"},
		"too short":  {with(good, "layers", []any{with(layer, "size", 3)}), "did not send"},
		"too long":   {with(good, "layers", []any{with(layer, "size", 99)}), "did not send"},
		"MD5": {with(good, "layers", []any{with(layer, "digest", "md5:0123")}),
			"want a SHA-256"},
		"a path": {with(good, "layers", []any{with(layer, "digest", "../../etc")}),
			"want a SHA-256"},
		"a list": {[]any{}, "the manifest"},
	} {
		refused(t, what, pullFrom(t, l, l.json(x.m), 0), x.why)
	}
	refused(t, "a key twice", pullFrom(t, l, l.add(twice)["digest"].(string), 0), "the manifest")
	big := append([]byte(`{"a":"`), make([]byte, 300<<10)...)
	refused(t, "a large manifest", pullFrom(t, l, l.add(big)["digest"].(string), 0), "more than")
	l.blobs[of] = []byte("\x00asm evil now")
	refused(t, "another module", pullFrom(t, l, l.json(good), 0), "did not send")
	m := l.json(good)
	l.blobs[m] = append(l.blobs[m], ' ')
	refused(t, "another manifest", pullFrom(t, l, m, 0), "digest")
}

func TestARegistryThatLies(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	l := &liar{blobs: map[string][]byte{}}
	good, of := l.good()
	m := l.json(good)
	flood := func(w http.ResponseWriter, r *http.Request) { // 1 GB, without saying so
		piece := make([]byte, 1<<20)
		for range 1 << 10 {
			n, err := w.Write(piece)
			if err != nil || r.Method == http.MethodHead {
				return
			}
			l.read.Add(int64(n))
		}
	}
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set("Content-Length", strconv.Itoa(len(l.blobs[path.Base(r.URL.Path)])))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for _, x := range []struct {
		what, at string
		odd      http.HandlerFunc
		why      string
		within   time.Duration
	}{
		{"leads elsewhere", of, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "add --also", 0},
		{"leads to a file", of, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusTemporaryRedirect)
		}, "was not asked for", 0},
		{"leads in a circle", of, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, "redirects more than 3 times", 0},
		{"another digest header", of, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			_, _ = w.Write(module)
		}, "did not send", 0},
		{"a header for another manifest", m, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", m)
			_, _ = w.Write([]byte(`{"schemaVersion":2}`))
		}, "digest", 0},
		{"a 1 GB layer", of, flood, "did not send", 0},
		{"a 1 GB manifest", m, flood, "", 0},
		{"hangs in the module", of, hang, "took longer than", time.Second},
		{"hangs in the manifest", m, hang, "took longer than", time.Second},
		{"hangs before", m, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"took longer than", time.Second},
		{"token elsewhere", m, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere.URL+`"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "add --also", 0},
		{"fails", m, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}, "500", 0},
	} {
		l.odd = map[string]http.HandlerFunc{x.at: x.odd}
		refused(t, x.what, pullFrom(t, l, m, x.within), x.why)
	}
	if n := l.read.Load(); n > 64<<20 {
		t.Errorf("%d bytes of a flood were taken", n)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("another server was asked %d times", n)
	}
}

// What refers to an artifact is the registry's choice.
func TestReferrersThatLie(t *testing.T) {
	l := &liar{blobs: map[string][]byte{}}
	good, _ := l.good()
	m := l.json(good)
	ssh := "application/vnd.caponier.signature.v1+ssh"
	referrer := with(good, "artifactType", ssh, "subject", map[string]any{"digest": m,
		"mediaType": good["mediaType"], "size": len(l.blobs[m])},
		"layers", []any{with(l.add(sshSig), "mediaType", ssh)})
	list := func(all ...any) {
		l.odd = map[string]http.HandlerFunc{m: func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/referrers/") {
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				_, _ = w.Write(l.blobs[m])
				return
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			_ = json.NewEncoder(w).Encode(map[string]any{"schemaVersion": 2, "manifests": all})
		}}
	}
	as := func(r map[string]any) map[string]any {
		d := l.json(r)
		return map[string]any{"artifactType": ssh, "digest": d, "size": len(l.blobs[d])}
	}
	list(as(referrer), map[string]any{"artifactType": "application/other", "digest": "x"})
	if err := pullFrom(t, l, m, 0); err != nil {
		t.Error(err)
	}
	for what, x := range map[string]struct {
		all []any
		why string
	}{
		"of another": {[]any{as(with(referrer, "subject", map[string]any{"digest": "sha256:" +
			strings.Repeat("0", 64)}))}, "does not"},
		"of none":    {[]any{as(good)}, "does not"},
		"two layers": {[]any{as(with(referrer, "layers", []any{1, 2}))}, "manifest"},
		"large": {[]any{as(with(referrer, "layers", []any{map[string]any{"mediaType": ssh,
			"size": 1 << 30, "digest": m}}))}, "at most"},
		"many": {make([]any, 17), "more than 16"},
		"gone": {[]any{map[string]any{"artifactType": ssh,
			"digest": "sha256:" + strings.Repeat("1", 64)}}, "not found"},
		"no digest": {[]any{map[string]any{"artifactType": ssh, "digest": "../x"}}, "SHA-256"},
	} {
		list(x.all...)
		refused(t, what, pullFrom(t, l, m, 0), x.why)
	}
}

package result

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand"
	"strings"
	"testing"
)

const body = "0123456789abcdefghijABCDEFGHIJ./zyxwvutsrqponmlkjihgfedcba9876543210" +
	"ZYXWVUTSRQPONMLKJIHGFEDC"

// planted are secrets, by detector. None is real.
var planted = []struct{ detector, value string }{
	{"private_key", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + body + "\n" +
		strings.Repeat(body+"\n", 900) + "-----END OPENSSH PRIVATE KEY-----"},
	{"private_key", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + body +
		"\n-----END RSA PRIVATE KEY-----"},
	{"private_key", "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n" + body +
		"\nPrivate-MAC: " + strings.Repeat("0a", 32)},
	{"private_key", "AGE-SECRET-KEY-1" + strings.Repeat("Q", 58)},
	{"password_hash", "$6$salt/salt$" + body[:86]},
	{"password_hash", "$5$rounds=5000$salt$" + body[:43]},
	{"password_hash", "$1$salt$" + body[:22]},
	{"password_hash", "$y$j9T$salt/salt$" + body[:43]},
	{"password_hash", "$2b$12$" + body[:53]},
	{"password_hash", "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$" + body[:40]},
	{"token", "ghp_" + strings.Repeat("a1", 18)},
	{"token", "glpat-" + strings.Repeat("b2", 10)},
	{"token", "xoxb-1234567890-abc"},
	{"token", "PVEAPIToken=root@pam!ci=01234567-89ab-cdef-0123-456789abcdef"},
	{"token", "PVE:root@pam:65AB01CD::" + body[:30]},
	{"token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"},
	{"cloud", "AKIAIOSFODNN7EXAMPLE"},
	{"cloud", "AccountKey=" + body[:20] + body[40:68] + "=="},
	{"site", "badge 1234 é"},
}

// noise has no secret, and nothing that could be a part of one at its edges.
var noise = []string{"root:", " é\n", "\xff\xfe ", " $6$ ", "\t{\"a\": 1}", " PRIVATE ", "`",
	"\x80\x80\x80\x80\x80"}

func all(t testing.TB) *Set {
	t.Helper()
	s, err := New(Pattern{"site", `badge [0-9]{4} [^a]`})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func chunked(t testing.TB, s *Set, r *rand.Rand, in []byte) ([]byte, map[string]int) {
	t.Helper()
	var out bytes.Buffer
	m := s.masker(context.Background(), &out)
	for len(in) > 0 {
		n := 1 + r.Intn(min(len(in), 1<<uint(r.Intn(18))))
		if _, err := m.Write(in[:n]); err != nil {
			t.Fatal(err)
		}
		in = in[n:]
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), m.hits
}

// What is expected is built beside the text: noise as it is, a mask for each secret.
func TestPlantedSecretsAreMaskedAndTheRestIsUnchanged(t *testing.T) {
	s := all(t)
	for seed := range int64(300) {
		r := rand.New(rand.NewSource(seed))
		var in, want bytes.Buffer
		hits := map[string]int{}
		escape := func(v string) string { return v }
		if seed%3 == 1 { // JSON, with \/ as some programs write it
			escape = func(v string) string {
				b, _ := json.Marshal(v)
				return strings.ReplaceAll(string(b[1:len(b)-1]), "/", `\/`)
			}
		}
		for range 1 + r.Intn(30) {
			for range 1 + r.Intn(1+r.Intn(3000)) {
				n := noise[r.Intn(len(noise))]
				in.WriteString(n)
				want.WriteString(n)
			}
			p := planted[r.Intn(len(planted))]
			in.WriteString(escape(p.value) + "\n")
			want.WriteString(marker + p.detector + "]\n")
			hits[p.detector]++
		}
		got, found := chunked(t, s, r, in.Bytes())
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("seed %d: the text differs: %d bytes, not %d", seed, len(got), want.Len())
		}
		for d, n := range hits {
			if found[d] != n {
				t.Fatalf("seed %d: %s found %d, not %d", seed, d, found[d], n)
			}
		}
	}
}

// Half of a key is masked to the end of the text.
func TestAKeyWithoutItsEndIsMaskedToTheEnd(t *testing.T) {
	got, _, err := all(t).Mask(context.Background(), []byte("a -----BEGIN PRIVATE KEY-----\nMII"))
	if err != nil || string(got) != "a "+marker+"private_key]" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestUnfinishedAndZeroValuesRefuse(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if b, _, err := all(t).Mask(ctx, []byte("x")); !errors.Is(err, context.Canceled) || b != nil {
		t.Fatalf("beyond the budget: %q, %v", b, err)
	}
	if b, _, err := new(Set).Mask(context.Background(), []byte("x")); !errors.Is(err, errUnready) ||
		b != nil {
		t.Fatalf("the zero value: %q, %v", b, err)
	}
}

func TestPatternsOfASiteAreBounded(t *testing.T) {
	for re, why := range map[string]string{
		"a*": "no bound", "a+": "no bound", "a{2,}": "no bound", "^a": "around", `\ba`: "around",
		"a?": "empty text", "(": "missing", "(?:a{1000}){9}": "", "[a-z]{1000}b{200}": "at most",
		strings.Repeat("a", 513): "513 bytes", "": "empty text",
	} {
		_, err := New(Pattern{"p", re})
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v, not %q", re, err, why)
		}
	}
	if _, err := New(make([]Pattern, 65)...); err == nil {
		t.Error("65 patterns are taken")
	}
	if _, err := New(Pattern{"token", "a"}); err == nil {
		t.Error("the name of a built-in detector is taken")
	}
}

// The oracle is the same text in one piece: no division of a stream changes what is found.
func FuzzChunks(f *testing.F) {
	for _, p := range planted {
		f.Add([]byte("x"+p.value+"y"), int64(1), 30_000)
	}
	s := all(f)
	f.Fuzz(func(t *testing.T, b []byte, seed int64, pad int) {
		if pad < 0 || pad > 40_000 || len(b) > 10_000 {
			return
		}
		in := append(bytes.Repeat([]byte("é "), pad), b...)
		want, _ := chunked(t, s, rand.New(rand.NewSource(seed)), in)
		m := &bytes.Buffer{}
		k := s.masker(context.Background(), m)
		k.buf = in
		k.scan(true)
		if !bytes.Equal(m.Bytes(), want) {
			t.Fatal("a division of the stream changes what is found")
		}
	})
}

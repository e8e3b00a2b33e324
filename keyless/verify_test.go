package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/keyless/sigstoretest"
	"github.com/sigstore/sigstore-go/pkg/testing/data"
)

const (
	issuer  = "https://token.actions.githubusercontent.com"
	subject = "https://github.com/acme/zfs/.github/workflows/release.yml@refs/tags/v1.0.0"
)

var module = []byte("\x00asm\x01\x00\x00\x00")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func instance(t *testing.T) (i *sigstoretest.Instance, trusted string) {
	t.Helper()
	i, err := sigstoretest.New()
	must(t, err)
	root, err := i.TrustedRoot()
	must(t, err)
	return i, string(root)
}

func signing() sigstoretest.Signing {
	return sigstoretest.Signing{Artifact: module, Issuer: issuer, Subject: subject}
}

func TestACertificateNamesWhoSigned(t *testing.T) {
	i, trusted := instance(t)
	for _, who := range []string{subject, "ann@example.org"} {
		s := signing()
		s.Subject = who
		bundle, err := i.Sign(s)
		must(t, err)
		by, name, err := verify(question{trusted, string(bundle), digest(module)})
		if err != nil || by != issuer || name != who {
			t.Errorf("%q of %q, %v; want %q", name, by, err, who)
		}
	}
}

// A bundle that a real Fulcio and a real Rekor made, of sigstore-go's own tests.
func TestABundleOfARealInstance(t *testing.T) {
	bundle, err := json.Marshal(data.Bundle(t, "othername.sigstore.json"))
	must(t, err)
	q := question{trustedRoot(t, "scaffolding.json"), string(bundle),
		"sha256:bc103b4a84971ef6459b294a2b98568a2bfb72cded09d4acd1e16366a401f95b"}
	by, name, err := verify(q)
	if err != nil || by != "http://oidc.local:8080" || name != "foo!oidc.local" {
		t.Errorf("%q of %q, %v", name, by, err)
	}
	q.TrustedRoot = trustedRoot(t, "public-good.json")
	if _, _, err := verify(q); err == nil {
		t.Error("another instance's trusted root was enough")
	}
}

func trustedRoot(t *testing.T, name string) string {
	t.Helper()
	text, err := json.Marshal(data.TrustedRoot(t, name))
	must(t, err)
	return string(text)
}

func TestUnsignedBundlesAreRefused(t *testing.T) {
	i, trusted := instance(t)
	other, err := sigstoretest.NewKey()
	must(t, err)
	with := func(key func(*sigstoretest.Instance) **ecdsa.PrivateKey) *sigstoretest.Instance {
		forger := *i
		*key(&forger) = other
		return &forger
	}
	elsewhere, err := sigstoretest.New()
	must(t, err)
	foreign := *elsewhere
	foreign.CTLog, foreign.Log = i.CTLog, i.Log
	for _, c := range []struct {
		what   string
		by     *sigstoretest.Instance
		change func(*sigstoretest.Signing)
		want   string
	}{
		{"another module", i, func(s *sigstoretest.Signing) { s.Artifact = []byte("x") },
			"artifact does not match digest"},
		{"a certificate of another CA", &foreign, nil, "verify leaf certificate"},
		{"a certificate that another log has logged",
			with(func(i *sigstoretest.Instance) **ecdsa.PrivateKey { return &i.CTLog }), nil,
			"signed certificate timestamp"},
		{"a certificate that is in no log", i,
			func(s *sigstoretest.Signing) { s.WithoutSCT = true }, "signed certificate timestamp"},
		{"a signature that another log has logged",
			with(func(i *sigstoretest.Instance) **ecdsa.PrivateKey { return &i.Log }), nil,
			"log inclusion"},
		{"made after the certificate's end", i, func(s *sigstoretest.Signing) {
			s.Issued = time.Now().Add(-sigstoretest.Lifetime - time.Minute)
		}, "integrated time outside certificate validity"},
		{"made before the certificate", i, func(s *sigstoretest.Signing) {
			s.Logged = time.Now().Add(-time.Minute)
		}, "integrated time outside certificate validity"},
		{"made before the instance was there", i, func(s *sigstoretest.Signing) {
			s.Issued = time.Now().AddDate(-1, 0, 0)
			s.Logged = s.Issued.Add(time.Minute)
		}, "log inclusion"},
		{"a certificate for TLS servers", i,
			func(s *sigstoretest.Signing) { s.ForServers = true }, "verify leaf certificate"},
		{"nobody's", i, func(s *sigstoretest.Signing) { s.Subject = "" },
			"no Subject Alternative Name"},
		{"of no issuer", i, func(s *sigstoretest.Signing) { s.Issuer = "" }, "names no issuer"},
	} {
		s := signing()
		if c.change != nil {
			c.change(&s)
		}
		bundle, err := c.by.Sign(s)
		must(t, err)
		by, name, err := verify(question{trusted, string(bundle), digest(module)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q of %q, %v; want %q", c.what, name, by, err, c.want)
		}
	}
}

// Each value of a bundle is changed, and each is left out: none is a signature any longer.
func TestEachChangedValueOfABundleIsRefused(t *testing.T) {
	i, trusted := instance(t)
	bundle, err := i.Sign(signing())
	must(t, err)
	// what kind of entry it is stands in the entry too, which is what is read
	const free = "/verificationMaterial/tlogEntries/0/kindVersion/"
	tried := 0
	try := func(path string, changed []byte) {
		tried++
		by, name, err := verify(question{trusted, string(changed), digest(module)})
		if err == nil && !strings.HasPrefix(path, free) {
			t.Errorf("%s: held without it, as %q of %q", path, name, by)
		}
	}
	var walk func(path string, at any, set func(any), document func() []byte)
	walk = func(path string, at any, set func(any), document func() []byte) {
		switch v := at.(type) {
		case map[string]any:
			for key, value := range v {
				delete(v, key)
				try(path+"/"+key+" left out", document())
				v[key] = value
				walk(path+"/"+key, value, func(x any) { v[key] = x }, document)
			}
		case []any:
			for n, value := range v {
				walk(fmt.Sprintf("%s/%d", path, n), value, func(x any) { v[n] = x }, document)
			}
			set([]any{})
			try(path+" emptied", document())
			set(v)
		case string:
			for _, other := range changes(v) {
				set(other)
				try(path, document())
			}
			set(v)
		}
	}
	var whole any
	must(t, json.Unmarshal(bundle, &whole))
	walk("", whole, nil, func() []byte {
		out, err := json.Marshal(whole)
		must(t, err)
		return out
	})
	if tried < 200 {
		t.Errorf("%d changes", tried)
	}
}

// changes returns texts that differ from v: of bytes, each with another bit.
func changes(v string) (all []string) {
	if raw, err := base64.StdEncoding.DecodeString(v); err == nil && len(raw) > 30 {
		for n := 0; n < len(raw); n += 1 + len(raw)/40 {
			other := bytes.Clone(raw)
			other[n] ^= 1
			all = append(all, base64.StdEncoding.EncodeToString(other))
		}
		return all
	}
	return []string{v + "1", "", "7"}
}

func TestOnlyAModulesSignatureByACertificateIsRead(t *testing.T) {
	i, trusted := instance(t)
	whole, err := i.Sign(signing())
	must(t, err)
	bundle := string(whole)
	swap := func(old, with string) string {
		t.Helper()
		if !strings.Contains(bundle, old) {
			t.Fatalf("there is no %s", old)
		}
		return strings.Replace(bundle, old, with, 1)
	}
	const version = "bundle.v0.3+json"
	attestation, err := json.Marshal(data.Bundle(t, "dsse.sigstore.json"))
	must(t, err)
	key, err := json.Marshal(data.Bundle(t, "public-key-validity.sigstore.json"))
	must(t, err)
	for _, c := range []struct{ what, root, bundle, digest, want string }{
		{"an older version", trusted, swap(version, "bundle+json;version=0.2"), digest(module),
			"want version 0.3"},
		{"a newer version", trusted, swap(version, "bundle.v0.9+json"), digest(module),
			"unsupported media type"},
		{"an attestation", trusted, string(attestation), digest(module), "want version 0.3"},
		{"a key", trusted, string(key), digest(module), "it is signed with a key"},
		{"a field that nobody knows", trusted, swap(`{"mediaType"`, `{"more":1,"mediaType"`),
			digest(module), "unknown field"},
		{"a field twice", trusted, swap(`{"mediaType"`, `{"mediaType":"x","mediaType"`),
			digest(module), "duplicate field"},
		{"no bundle", trusted, "x", digest(module), "reading the bundle"},
		{"no trusted root", "{}", bundle, digest(module), "reading the trusted root"},
		{"no digest", trusted, bundle, "sha256:00", "is no digest"},
		{"another kind of digest", trusted, bundle, "sha512:00", "is no digest"},
	} {
		_, _, err := verify(question{c.root, c.bundle, c.digest})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

func TestAQuestionHasThreeParts(t *testing.T) {
	for _, c := range []struct{ question, want string }{
		{``, "unexpected end"},
		{`{}`, "want trusted_root, bundle and digest"},
		{`{"trusted_root":"a","bundle":"b"}`, "want trusted_root"},
		{`{"trusted_root":"a","bundle":"b","digest":""}`, "want trusted_root"},
		{`{"trusted_root":"a","bundle":"b","digest":"c","more":"d"}`, "want trusted_root"},
		{strings.Repeat(" ", maxQuestion+1), "has more than"},
	} {
		var out strings.Builder
		err := run(strings.NewReader(c.question), &out)
		if err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%.40q: %v %q, want %q", c.question, err, out.String(), c.want)
		}
	}
	var out strings.Builder
	must(t, run(strings.NewReader(`{"trusted_root":"{}","bundle":"b","digest":"c"}`), &out))
	if want := `{"error":"\"c\" is no digest`; !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

// Nothing that can be written into a bundle or a trusted root names somebody who has not signed, or
// ends the program.
func FuzzVerify(f *testing.F) {
	i, err := sigstoretest.New()
	if err != nil {
		f.Fatal(err)
	}
	root, err := i.TrustedRoot()
	if err != nil {
		f.Fatal(err)
	}
	bundle, err := i.Sign(signing())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(bundle))
	f.Fuzz(func(t *testing.T, text string) {
		by, name, err := verify(question{string(root), text, digest(module)})
		if err == nil && (by != issuer || name != subject) {
			t.Errorf("%q of %q", name, by)
		}
	})
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// No page of docs/ needs a checkout: what it links to is in the archive.
func TestArchiveHoldsWhatTheDocsLinkTo(t *testing.T) {
	t.Chdir("../..")
	have := map[string]bool{}
	for _, e := range sources() {
		for name := e.name; name != "."; name = path.Dir(name) {
			have[name] = true
		}
	}
	for _, name := range []string{"policies/capabilities.json", "policies/core/call.rego",
		"policies/schemas/input.schema", "sdk/go.mod", "plugins/jq/main.go",
		"examples/lab/site/data.yaml", "packaging/node/caponier-gate", "Makefile"} {
		if !have[name] {
			t.Errorf("the archive lacks %s", name)
		}
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	link := regexp.MustCompile(`\]\(([^)#: ]+)[)#]`)
	for _, p := range pages {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if to := path.Join(path.Dir(p), m[1]); !have[to] {
				t.Errorf("%s links to %s, which the archive lacks", p, to)
			}
		}
	}
}

func TestPageOfTheManual(t *testing.T) {
	help := "Say how it is. It's short\n\nUsage:\n  caponier say [flags]\n\nExamples:\n" +
		"  caponier say --x 'a\\b'\n.hidden\n\nFlags:\n      --x X   what\n"
	want := `.TH CAPONIER\-SAY 1 "" "Caponier 1.2.3" "Caponier"
.SH NAME
caponier\-say \- Say how it is. It's short
.SH SYNOPSIS
.nf
  caponier say [flags]
.fi
.SH EXAMPLES
.nf
  caponier say \-\-x 'a\eb'
\&.hidden
.fi
.SH FLAGS
.nf
      \-\-x X   what
.fi
`
	if got := page("caponier-say", "1.2.3", help); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestArchiveIsTheSameTwiceAndKeepsModes(t *testing.T) {
	all := []entry{{name: "build/p", data: []byte("x"), exec: true}, {name: "p", link: "build/p"}}
	one := tarball("top", all)
	if !bytes.Equal(one, tarball("top", all)) {
		t.Error("two archives differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name+" "+h.Linkname)
	}
	if want := "-rwxr-xr-x top/build/p |Lrwxrwxrwx top/p build/p"; strings.Join(got, "|") != want {
		t.Errorf("got %q", got)
	}
}

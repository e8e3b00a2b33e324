package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"strings"
)

// tarball is the archive to unpack anywhere, with everything in one folder.
func tarball(top string, all []entry) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	check(err)
	t := tar.NewWriter(z)
	for _, e := range all {
		h := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     top + "/" + e.name,
			Size:     int64(len(e.data)),
			Mode:     mode(e),
			ModTime:  when,
			Format:   tar.FormatUSTAR,
		}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		check(t.WriteHeader(h))
		_, err := t.Write(e.data)
		check(err)
	}
	check(t.Close())
	check(z.Close())
	return b.Bytes()
}

// bundle is the archive as a desktop client installs it: what the program needs to run, under
// server/, with a manifest.
func bundle(all []entry, manifest []byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	add := func(name string, e entry) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: when}
		h.SetMode(fs.FileMode(mode(e)))
		w, err := z.CreateHeader(h)
		check(err)
		_, err = w.Write(e.data)
		check(err)
	}
	add("manifest.json", entry{data: manifest})
	for _, e := range all {
		_, page, _ := strings.Cut(e.name, "policies/site/")
		switch {
		case e.name == "build/caponier":
			add("server/caponier", e)
		case strings.HasPrefix(e.name, "build/plugins/"), page != "", e.name == "plugins.lock",
			e.name == "config.toml", e.name == "LICENSE":
			add("server/"+e.name, e)
		}
	}
	check(z.Close())
	return b.Bytes()
}

func mode(e entry) int64 {
	if e.exec {
		return 0o755
	}
	return 0o644
}

package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// connect writes caponier-connect for a system, as a program that is there to be started.
func (r *release) connect(system string) {
	goos, arch, _ := strings.Cut(system, "/")
	name := r.connectName(goos, arch)
	file := filepath.Join(r.stage, name)
	goBuild(file, "./client/cmd/connect", "-s -w -X main.version="+r.version, "GOOS="+goos,
		"GOARCH="+arch)
	r.write(name, read(file))
}

func (r *release) connectName(goos, arch string) string {
	name := fmt.Sprintf("caponier-connect-%s-%s-%s", r.version, goos, arch)
	if goos == "windows" {
		name += ".exe"
	}
	return name
}

// connectBundle writes caponier-connect as desktop clients of three systems install it. It runs on
// both processors of macOS; Windows runs it on arm64 too.
func (r *release) connectBundle() {
	made := func(goos, arch string) []byte {
		return read(filepath.Join(r.out, r.connectName(goos, arch)))
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range []entry{
		{name: "manifest.json", data: r.fill("packaging/connect.json")},
		{name: "server/LICENSE", data: read("LICENSE")},
		{name: "server/caponier-connect", exec: true,
			data: universal(made("darwin", "amd64"), made("darwin", "arm64"))},
		{name: "server/caponier-connect-linux", data: made("linux", "amd64"), exec: true},
		{name: "server/caponier-connect.exe", data: made("windows", "amd64"), exec: true},
	} {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when}
		h.SetMode(fs.FileMode(mode(e)))
		w, err := z.CreateHeader(h)
		check(err)
		_, err = w.Write(e.data)
		check(err)
	}
	check(z.Close())
	r.write("caponier-connect-"+r.version+".mcpb", b.Bytes())
}

// universal puts the programs for both processors of macOS into one file, as its lipo does.
func universal(amd64, arm64 []byte) []byte {
	const align = 14 // pages of 16 KiB
	head := []uint32{0xcafebabe, 2}
	var body []byte
	at := 1 << align
	for _, p := range []struct {
		cpu, sub uint32
		data     []byte
	}{{0x01000007, 3, amd64}, {0x0100000c, 0, arm64}} {
		head = append(head, p.cpu, p.sub, uint32(at+len(body)), uint32(len(p.data)), align)
		body = append(body, p.data...)
		body = append(body, make([]byte, -len(body)&(1<<align-1))...)
	}
	var b bytes.Buffer
	check(binary.Write(&b, binary.BigEndian, head))
	b.Write(make([]byte, at-b.Len()))
	b.Write(body)
	return b.Bytes()
}

var digests = regexp.MustCompile(`\{\{sha256 ([^}]+)\}\}`)

// entries writes what names other files by their digests: where one of them was not asked for,
// nothing.
func (r *release) entries(files ...string) {
	for _, file := range files {
		whole := true
		text := digests.ReplaceAllFunc(r.fill(file), func(m []byte) []byte {
			name := string(digests.FindSubmatch(m)[1])
			if _, err := os.Stat(filepath.Join(r.out, name)); err != nil {
				whole = false
				return nil
			}
			return fmt.Appendf(nil, "%x", sha256.Sum256(read(filepath.Join(r.out, name))))
		})
		if whole {
			r.write(filepath.Base(file), text)
		}
	}
}

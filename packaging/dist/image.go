package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// owned is a file or a directory of an image.
type owned struct {
	entry
	dir   bool
	perm  int64
	owner int // and group
}

// stage is the last stage of packaging/Dockerfile: its files, and its configuration as OCI has it.
type stage struct {
	files  map[string]owned // by path, without the first slash
	config map[string]any
}

// image is the last stage of packaging/Dockerfile as an OCI image, in a tar that container engines
// load: an image layout, which also has the list that older engines want (manifest.json).
func image(version, arch, dockerfile string, roots []byte, all []entry) []byte {
	s := stage{map[string]owned{"tmp": {dir: true, perm: 0o1777}}, map[string]any{}}
	_, last, _ := strings.Cut(dockerfile, "\nFROM scratch\n")
	for line := range strings.Lines(last) {
		s.instruction(strings.TrimSpace(line), roots, all)
	}
	layer := s.layer()
	zip := zipped(layer)
	blobs := map[string][]byte{}
	add := func(kind string, data []byte) map[string]any {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		blobs["blobs/sha256/"+sum] = data
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind,
			"digest": "sha256:" + sum, "size": len(data)}
	}
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		check(err)
		return data
	}
	made := when.Format(time.RFC3339)
	config := add("config.v1+json", encode(map[string]any{
		"created": made, "architecture": arch, "os": "linux", "config": s.config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{
			fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		"history": []any{map[string]any{"created": made, "created_by": "packaging/dist"}},
	}))
	content := add("layer.v1.tar+gzip", zip)
	manifest := add("manifest.v1+json", encode(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []any{content}}))
	manifest["platform"] = map[string]string{"architecture": arch, "os": "linux"}
	manifest["annotations"] = map[string]string{"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name": "caponier:" + version}
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	blobs["index.json"] = encode(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{manifest}})
	place := func(of map[string]any) string {
		return "blobs/sha256/" + strings.TrimPrefix(of["digest"].(string), "sha256:")
	}
	blobs["manifest.json"] = encode([]any{map[string]any{"Config": place(config),
		"RepoTags": []string{"caponier:" + version}, "Layers": []string{place(content)}}})
	files := map[string]owned{}
	for name, data := range blobs {
		files[name] = owned{entry: entry{data: data}, perm: 0o644}
	}
	return stage{files: files}.layer()
}

// instruction takes a line of the Dockerfile. One that it does not know ends the program.
func (s stage) instruction(line string, roots []byte, all []entry) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "":
	case "COPY":
		s.copy(strings.Fields(rest), roots, all)
	case "USER":
		s.config["User"] = rest
	case "WORKDIR":
		s.config["WorkingDir"] = rest
	case "VOLUME":
		s.config["Volumes"] = map[string]any{rest: struct{}{}}
	case "EXPOSE":
		s.config["ExposedPorts"] = map[string]any{rest + "/tcp": struct{}{}}
	case "ENTRYPOINT":
		s.config["Entrypoint"] = words(rest)
	case "CMD":
		s.config["Cmd"] = words(rest)
	case "HEALTHCHECK": // of no OCI specification, but engines read it
		flags, command, _ := strings.Cut(rest, " CMD ")
		health := map[string]any{"Test": append([]string{"CMD"}, words(command)...)}
		for _, flag := range strings.Fields(flags) {
			key, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
			d, err := time.ParseDuration(value)
			check(err)
			health[map[string]string{"interval": "Interval", "timeout": "Timeout",
				"start-period": "StartPeriod"}[key]] = d
		}
		s.config["Healthcheck"] = health
	default:
		log.Fatalf("packaging/Dockerfile: %q is not understood", line)
	}
}

func words(list string) (all []string) {
	check(json.Unmarshal([]byte(list), &all))
	return all
}

// copy adds what a COPY names: a file of the archive, a directory of it, or one that is empty.
func (s stage) copy(args []string, roots []byte, all []entry) {
	owner, perm := 0, int64(-1)
	for ; strings.HasPrefix(args[0], "--"); args = args[1:] {
		key, value, _ := strings.Cut(args[0], "=")
		var err error
		switch key {
		case "--from":
		case "--chown":
			value, _, _ = strings.Cut(value, ":")
			owner, err = strconv.Atoi(value)
		case "--chmod":
			perm, err = strconv.ParseInt(value, 8, 16)
		default:
			log.Fatalf("packaging/Dockerfile: COPY %s is not understood", key)
		}
		check(err)
	}
	from, to := args[0], strings.TrimPrefix(args[1], "/")
	in, ok := strings.CutPrefix(from, "/image/")
	if !ok {
		s.put(to+path.Base(from), owned{entry: entry{data: roots}, perm: 0o644})
		return
	}
	found := false
	for _, e := range all {
		below, is := strings.CutPrefix(e.name+"/", in+"/")
		if is {
			found = true
			s.put(path.Join(to, below), owned{entry: e, perm: mode(e), owner: owner})
		}
	}
	if !found {
		s.put(to, owned{dir: true, perm: perm, owner: owner})
	}
}

// put adds a file, and the directories that it is in.
func (s stage) put(name string, f owned) {
	s.files[name] = f
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := s.files[dir]; !ok {
			s.files[dir] = owned{dir: true, perm: 0o755}
		}
	}
}

// layer is the tar of the files, in the order of their names.
func (s stage) layer() []byte {
	var names []string
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, name := range names {
		f := s.files[name]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(f.data)), Mode: f.perm,
			Uid: f.owner, Gid: f.owner, ModTime: when, Format: tar.FormatUSTAR}
		if f.dir {
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		check(t.WriteHeader(h))
		_, err := t.Write(f.data)
		check(err)
	}
	check(t.Close())
	return b.Bytes()
}

// roots are the certificates of Mozilla's list, which the image trusts.
func roots() []byte {
	return run(exec.Command("go", "-C", "packaging/tools", "run", "./roots"))
}

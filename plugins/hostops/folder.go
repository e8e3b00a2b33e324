package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

func folderTool() sdk.Tool {
	return sdk.NewTool(
		"proxmox_download_directory_from_host",
		"Copy a directory of the Proxmox host, with all files below it, to your workspace. Links "+
			"and special files are left out and counted, as is each file that policy refuses. For "+
			"one file use proxmox_download_file_from_host. Example: "+
			"{\"host_dir\":\"/var/log/pve\",\"local_dir\":\"pve-log\"}",
		sdk.Hints{
			Title:   "Download a directory from the host",
			Imports: []string{"sftp_list", "sftp_get"},
			Budget:  10 * time.Minute,
			Runs:    "SFTP list of each directory, read of each file",
		},
		downloadFolder,
	)
}

type folderIn struct {
	HostDir   string `json:"host_dir" target:"remote_dir"`
	LocalDir  string `json:"local_dir" target:"local_dir"`
	Overwrite bool   `json:"overwrite,omitempty" doc:"Replace local files that are there"`
	MaxFiles  int    `json:"max_files" min:"1" max:"4000" default:"1000"`
	MaxBytes  int64  `json:"max_bytes" min:"1" max:"10737418240" default:"104857600"`
	Format    string `json:"response_format" doc:"Text form" default:"text" enum:"text,json"`
	Node      string `json:"node,omitempty" doc:"Its node, if not the default" target:"node"`
}

// Docs describes what does not fit into a tag.
func (folderIn) Docs() map[string]string {
	return map[string]string{
		"host_dir":  "Absolute path of a directory on the host",
		"local_dir": "Directory it goes to, relative to your workspace",
		"max_files": "Refuse a directory with more files, before any is copied",
		"max_bytes": "Refuse a directory with more bytes, before any is copied",
	}
}

type movedFolder struct {
	pve.Reply
	Node     string `json:"node"`
	HostDir  string `json:"host_dir"`
	LocalDir string `json:"local_dir"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	// Manifest is the SHA-256 of what sha256sum prints of all files in the order of their names.
	Manifest string    `json:"manifest_sha256,omitempty"`
	LeftOut  int       `json:"left_out"`
	Why      []leftOut `json:"left_out_first,omitempty"` // the first of them
}

type leftOut struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// The bounds of a walk.
const (
	maxDirs    = 2_000
	maxDepth   = 32
	maxEntries = 10_000 // of one directory
	maxWhy     = 20     // reasons in a result
	maxRefused = 100    // then the rest is not tried
	atOnce     = 128    // files of one list, in both directions
)

// walk is what is below a directory of a node.
type walk struct {
	call    *sdk.Call
	node    string
	top     string
	files   []sdk.FileInfo // Name is the path below top
	bytes   int64
	leftOut []leftOut
}

func (w *walk) leave(name, why string) { w.leftOut = append(w.leftOut, leftOut{name, why}) }

// look finds all files. Nothing is copied before it ends.
func (w *walk) look(in folderIn) error {
	dirs := []string{""}
	for seen := 0; len(dirs) > 0; seen++ {
		dir := dirs[0]
		dirs = dirs[1:]
		full := path.Join(w.top, dir)
		if seen == maxDirs || strings.Count(dir, "/") >= maxDepth {
			return w.tooMuch(fmt.Sprintf("more than %d directories, or %d in one another", maxDirs,
				maxDepth), "Copy a directory below it.")
		}
		list, err := sdk.SFTPList(w.call, w.node, full, maxEntries)
		switch why := passable(err); {
		case why != "" && dir != "":
			w.leave(dir+"/", why)
			continue
		case err != nil:
			return explain(pve.Lost(err, "listing "+full+" on "+w.node), "Check host_dir.", "")
		case list.Truncated:
			return w.tooMuch(fmt.Sprintf("%s alone has more than %d entries", full,
				len(list.Entries)), "Copy single files, or pack them on the host.")
		}
		slices.SortFunc(list.Entries, func(a, b sdk.FileInfo) int {
			return strings.Compare(a.Name, b.Name)
		})
		for _, f := range list.Entries {
			dirs = w.entry(dirs, path.Join(dir, f.Name), f)
		}
		if len(w.files) > in.MaxFiles || w.bytes > in.MaxBytes {
			return w.tooMuch(fmt.Sprintf("more than max_files %d, or max_bytes %d", in.MaxFiles,
				in.MaxBytes), "Set max_files or max_bytes higher, or copy a directory below it.")
		}
	}
	slices.SortFunc(w.files, func(a, b sdk.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// entry takes one entry of a directory, and returns the directories still to be looked at.
func (w *walk) entry(dirs []string, name string, f sdk.FileInfo) []string {
	switch {
	case !sound(f.Name):
		w.leave(strings.ToValidUTF8(name, "?"), "its name cannot be one in your workspace")
	case f.Type == "dir":
		return append(dirs, name)
	case f.Type == "file":
		f.Name = name
		w.files = append(w.files, f)
		w.bytes += f.Size
	default:
		w.leave(name, "it is a "+f.Type)
	}
	return dirs
}

// sound reports whether the host takes a name for a local file.
func sound(name string) bool {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }
	return utf8.ValidString(name) && !strings.ContainsFunc(name, odd) &&
		!strings.HasPrefix(name, ".caponier-partial-") && len(name) < 256
}

func (w *walk) tooMuch(what, suggestion string) error {
	return &sdk.Error{Code: "too_large", Message: fmt.Sprintf(
		"copying %s from %s: it has %s; nothing was copied", w.top, w.node, what),
		Suggestion: suggestion}
}

// passable says why the walk goes on without what an operation failed at, or "" if it does not.
func passable(err error) string {
	refused, op := (*sdk.Refused)(nil), (*sdk.OpError)(nil)
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &op) && slices.Contains([]string{"not_found", "permission", "changed",
		"not_a_file"}, op.Code):
		return op.Message
	}
	return ""
}

// fetch copies the files, a list of them at a time, and reports whether that is only planned.
func (w *walk) fetch(in folderIn, out *movedFolder) (planned bool, err error) {
	sums, refused := sha256.New(), 0
	for at := 0; at < len(w.files); {
		sdk.Progress(w.call, float64(at), float64(len(w.files)), "copied from "+w.node)
		some := w.files[at:min(at+atOnce, len(w.files))]
		at += len(some)
		all, err := w.get(in, some, in.MaxBytes-out.Bytes, w.files[at:])
		if err != nil {
			return false, w.stopped(in, some[0].Name, out.Files, err)
		}
		var stop error
		failed := ""
		for i, got := range all {
			name := some[i].Name
			if why := passable(got.Err); why != "" && refused < maxRefused {
				refused++
				w.leave(name, why)
				continue
			}
			if got.Err != nil {
				if stop == nil {
					stop, failed = got.Err, name
				}
				continue
			}
			if planned = planned || got.Planned; got.Planned {
				got.Bytes = some[i].Size
			}
			out.Files++
			out.Bytes += got.Bytes
			fmt.Fprintf(sums, "%s  %s\n", got.SHA256, name)
		}
		if stop != nil {
			return false, w.stopped(in, failed, out.Files, stop)
		}
	}
	out.Manifest = hex.EncodeToString(sums.Sum(nil))
	return planned, nil
}

// get copies some files, which may have left bytes together with those that follow. Files may have
// grown since they were listed: what is left over is shared among these, and one that needs more
// than its share is copied alone.
func (w *walk) get(in folderIn, some []sdk.FileInfo, left int64, following []sdk.FileInfo,
) ([]sdk.Fetched, error) {
	over := left
	for _, f := range slices.Concat(some, following) {
		over -= f.Size
	}
	want := make([]sdk.Fetch, len(some))
	for i, f := range some {
		want[i] = sdk.Fetch{Path: path.Join(w.top, f.Name), Local: path.Join(in.LocalDir, f.Name),
			FileOptions: sdk.FileOptions{Overwrite: in.Overwrite, Timeout: copying,
				MaxBytes: max(f.Size+over/int64(len(some)), 1)}}
	}
	all, err := sdk.SFTPGetAll(w.call, w.node, want)
	for _, got := range all {
		left -= got.Bytes
	}
	for i, got := range all {
		if op := (*sdk.OpError)(nil); errors.As(got.Err, &op) && op.Code == "too_large" &&
			left > want[i].MaxBytes {
			want[i].MaxBytes = left
			all[i].Written, all[i].Err = sdk.SFTPGet(w.call, w.node, want[i].Path, want[i].Local,
				want[i].FileOptions)
			left -= all[i].Bytes
		}
	}
	return all, err
}

func downloadFolder(c *sdk.Call, in folderIn) (movedFolder, error) {
	w := walk{call: c, node: pve.On(c, in.Node).Name, top: in.HostDir}
	if err := w.look(in); err != nil {
		return movedFolder{}, err
	}
	out := movedFolder{Node: w.node, HostDir: in.HostDir, LocalDir: in.LocalDir}
	planned, err := w.fetch(in, &out)
	if err != nil {
		return movedFolder{}, err
	}
	out.LeftOut, out.Why = len(w.leftOut), w.leftOut[:min(maxWhy, len(w.leftOut))]
	if out.Files == 0 && out.LeftOut > 0 {
		return movedFolder{}, &sdk.Error{Code: "nothing_copied", Message: fmt.Sprintf(
			"copying %s from %s: none of the %d entries could be copied; %s: %s", w.top, w.node,
			out.LeftOut, out.Why[0].Path, out.Why[0].Why),
			Suggestion: "The message has the first reason. Choose another directory, or ask who " +
				"writes the site's policy."}
	}
	did := "Downloaded"
	if planned {
		did = "This would download"
		out.Manifest = ""
	}
	text := fmt.Sprintf("%s %s from %s to %s: %d files, %d bytes.", did, in.HostDir, w.node,
		in.LocalDir, out.Files, out.Bytes)
	if out.LeftOut > 0 {
		text += fmt.Sprintf(" Left out: %d, such as %s: %s.", out.LeftOut, out.Why[0].Path,
			strings.TrimSuffix(out.Why[0].Why, "."))
	}
	out.Reply = pve.Say(in.Format, out, text)
	return out, nil
}

// stopped says how far the copying came.
func (w *walk) stopped(in folderIn, at string, done int, err error) error {
	doing := fmt.Sprintf("copying %s from %s: %d of %d files are in %s; then %s", w.top, w.node,
		done, len(w.files), in.LocalDir, at)
	err = explain(pve.Lost(err, doing), "Check host_dir.",
		"Set overwrite to replace the files in your workspace, or choose another local_dir.")
	if refused := (*sdk.Refused)(nil); errors.As(err, &refused) {
		return &sdk.Error{Code: "refused", Message: doing + ": " + cmp.Or(refused.Error(),
			"refused"), Suggestion: "Policy refuses too many of its files: choose a directory " +
			"below it."}
	}
	return err
}

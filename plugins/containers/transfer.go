package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type downloadIn struct {
	VMID          int    `json:"vmid" doc:"Container" min:"100" max:"999999999" target:"vmid"`
	ContainerPath string `json:"container_path" target:"guest_path"`
	LocalPath     string `json:"local_path" doc:"Relative to your workspace" target:"local_path"`
	Overwrite     bool   `json:"overwrite,omitempty" doc:"Replace a local file"`
	MaxBytes      int64  `json:"max_bytes" min:"1" max:"1073741824" default:"10485760"`
	Format        string `json:"response_format" default:"text" enum:"text,json"`
	Node          string `json:"node,omitempty" target:"node"`
}

// Docs describes what does not fit into a tag.
func (downloadIn) Docs() map[string]string {
	return map[string]string{
		"container_path":  "Absolute path of a regular file",
		"max_bytes":       "Refuse a larger file",
		"response_format": "Form of the text",
		"node":            "Node it is on, if not the default",
	}
}

type uploadIn struct {
	VMID          int    `json:"vmid" doc:"Container" min:"100" max:"999999999" target:"vmid"`
	LocalPath     string `json:"local_path" doc:"Relative to your workspace" target:"local_path"`
	ContainerPath string `json:"container_path" target:"guest_path"`
	Permissions   string `json:"permissions" doc:"Octal" pattern:"^[0-7]{3,4}$" default:"644"`
	Overwrite     bool   `json:"overwrite,omitempty" doc:"Replace a file in the container"`
	MaxBytes      int64  `json:"max_bytes" min:"1" max:"1073741824" default:"10485760"`
	Format        string `json:"response_format" default:"text" enum:"text,json"`
	Node          string `json:"node,omitempty" target:"node"`
	Confirmed     bool   `json:"confirmed,omitempty" doc:"The user agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (uploadIn) Docs() map[string]string {
	return map[string]string{
		"container_path":  "Absolute; its directory must exist",
		"max_bytes":       "Refuse a larger file",
		"response_format": "Form of the text",
		"node":            "Node it is on, if not the default",
	}
}

type moved struct {
	pve.Reply
	VMID          int    `json:"vmid"`
	Node          string `json:"node"`
	ContainerPath string `json:"container_path"`
	LocalPath     string `json:"local_path"`
	Bytes         int64  `json:"bytes"`
	SHA256        string `json:"sha256" doc:"The same on both sides"`
	Permissions   string `json:"permissions,omitempty"`
	Replaced      bool   `json:"replaced,omitempty" doc:"There was a file in the container"`
}

// copying is the deadline of pct push and pull: a container's root can put a FIFO in the way, which
// never ends.
const copying = 2 * time.Minute

func download(c *sdk.Call, in downloadIn) (moved, error) {
	ct := at(c, in.Node, in.VMID)
	doing := fmt.Sprintf("downloading %s from container %d on %s", in.ContainerPath, in.VMID,
		ct.Name)
	f, err := ct.stat(doing, in.ContainerPath)
	switch {
	case err != nil:
		return moved{}, err
	case !f.exists:
		return moved{}, &sdk.Error{
			Code:       "not_found",
			Message:    doing + ": there is no such file",
			Suggestion: "Look with proxmox_container_exec_command: ls -la on its directory.",
		}
	case !f.regular():
		return moved{}, f.notRegular(doing, "container_path")
	case f.size > in.MaxBytes:
		return moved{}, tooLarge(doing, f.size, in.MaxBytes)
	}
	staged, err := stage(ct)
	if err != nil {
		return moved{}, err
	}
	r, err := ct.pct(copying, "pull", "--", in.ContainerPath, staged)
	if e := (*sdk.Error)(nil); errors.As(err, &e) && e.Code == "timeout" {
		e.Suggestion = "The file did not end within two minutes: is it still a regular file? pct " +
			"pull may still be running on the node."
	}
	if err := ct.copied(doing, r, err); err != nil {
		return moved{}, err
	}
	info, err := sdk.SFTPStat(c, ct.Name, staged)
	if err != nil {
		return moved{}, pve.Lost(err, doing)
	}
	if info.Size > in.MaxBytes {
		return moved{}, tooLarge(doing, info.Size, in.MaxBytes)
	}
	sum, err := ct.sha256(doing, in.ContainerPath)
	if err != nil {
		return moved{}, err
	}
	// Compared before anything is written to the workspace, where overwrite would give up a good
	// file for a bad one.
	r, err = ct.Run(sdk.ExecOptions{Timeout: hashing, MaxBytes: 64 << 10}, "sha256sum", "--",
		staged)
	if err != nil {
		return moved{}, err
	}
	arrived, err := digest(doing+": sha256sum on the node", r)
	if err != nil {
		return moved{}, err
	}
	if arrived != sum {
		return moved{}, &sdk.Error{
			Code: "incomplete",
			Message: fmt.Sprintf(
				"%s: SHA-256 in the container is %s, of the %d bytes that arrived on the node %s; "+
					"nothing was downloaded",
				doing,
				sum,
				info.Size,
				arrived,
			),
			Suggestion: "The file changed while it was copied, or the node's disk is full. For a " +
				"log that grows, copy it to a quiet place in the container first.",
		}
	}
	got, err := sdk.SFTPGet(c, ct.Name, staged, in.LocalPath,
		sdk.FileOptions{Overwrite: in.Overwrite, MaxBytes: in.MaxBytes, Timeout: copying})
	if err != nil {
		return moved{}, local(pve.Lost(err, doing), in.LocalPath)
	}
	if got.SHA256 != sum {
		return moved{}, &sdk.Error{
			Code: "incomplete",
			Message: fmt.Sprintf(
				"%s: SHA-256 in the container is %s, of the %d bytes that arrived here %s: do not "+
					"use %s",
				doing,
				sum,
				got.Bytes,
				got.SHA256,
				in.LocalPath,
			),
			Suggestion: "The file was changed on its way, on the node: find out by whom before " +
				"you call again with overwrite.",
		}
	}
	out := moved{
		VMID:          in.VMID,
		Node:          ct.Name,
		ContainerPath: in.ContainerPath,
		LocalPath:     in.LocalPath,
		Bytes:         got.Bytes,
		SHA256:        sum,
	}
	out.Reply = pve.Say(
		in.Format,
		out,
		fmt.Sprintf("Downloaded %s of container %d to %s: %d bytes, sha256 %s.", in.ContainerPath,
			in.VMID, in.LocalPath, out.Bytes, sum),
	)
	return out, nil
}

func upload(c *sdk.Call, in uploadIn) (moved, error) {
	ct := at(c, in.Node, in.VMID)
	doing := fmt.Sprintf("uploading %s to %s in container %d on %s", in.LocalPath, in.ContainerPath,
		in.VMID, ct.Name)
	f, err := ct.stat(doing, in.ContainerPath)
	switch {
	case err != nil:
		return moved{}, err
	case f.exists && !f.regular():
		return moved{}, f.notRegular(doing, "container_path")
	case f.exists && !in.Overwrite:
		return moved{}, &sdk.Error{
			Code:       "exists",
			Message:    fmt.Sprintf("%s: there is a file of %d bytes already", doing, f.size),
			Suggestion: "Set overwrite to replace it, or choose another container_path.",
		}
	}
	staged, err := stage(ct)
	if err != nil {
		return moved{}, err
	}
	put, err := sdk.SFTPPut(c, ct.Name, in.LocalPath, staged,
		sdk.FileOptions{Mode: "0600", Timeout: copying})
	if err != nil {
		return moved{}, local(pve.Lost(err, doing), in.LocalPath)
	}
	if put.Bytes > in.MaxBytes {
		return moved{}, tooLarge(doing, put.Bytes, in.MaxBytes)
	}
	mode := pve.Mode(in.Permissions)
	r, err := ct.pct(copying, "push", "--perms", mode, "--user", "0", "--group", "0", "--", staged,
		in.ContainerPath)
	if err := ct.copied(doing, r, err); err != nil {
		return moved{}, err
	}
	sum, err := ct.sha256(doing, in.ContainerPath)
	if err != nil {
		return moved{}, err
	}
	if sum != put.SHA256 {
		return moved{}, ct.incomplete(doing, in.ContainerPath, put, f, sum)
	}
	out := moved{
		VMID:          in.VMID,
		Node:          ct.Name,
		ContainerPath: in.ContainerPath,
		LocalPath:     in.LocalPath,
		Bytes:         put.Bytes,
		SHA256:        sum,
		Permissions:   mode,
		Replaced:      f.exists,
	}
	out.Reply = pve.Say(
		in.Format,
		out,
		fmt.Sprintf("Uploaded %s to %s in container %d: %d bytes, mode %s, sha256 %s.",
			in.LocalPath, in.ContainerPath, in.VMID, out.Bytes, mode, sum),
	)
	return out, nil
}

// incomplete says what a push has left behind that wrote something else than it was given, as it
// does without a word when the container's disk is full. Nothing can put back what was there, so it
// says exactly what is there now and how to get rid of it.
func (ct container) incomplete(doing, path string, put sdk.Written, before file, sum string) error {
	now, err := ct.stat(doing, path)
	left := fmt.Sprintf("%d of the %d bytes are there", now.size, put.Bytes)
	suggestion := "The container's disk is full, which pct push does not say: free space there " +
		"(df -h), then call again with overwrite. "
	switch {
	case err != nil || !now.exists:
		left, suggestion = fmt.Sprintf("%d bytes were sent, and what is there could not be read",
			put.Bytes), "Look at it with proxmox_container_exec_command before anything uses it. "
	case now.size >= put.Bytes:
		left, suggestion = fmt.Sprintf(
			"%d bytes are there that are not those that were sent",
			now.size,
		), "Something in the container writes to the same file: stop that first, then call again "+
			"with overwrite. "
	}
	was := "there was none before"
	if before.exists {
		was = fmt.Sprintf("the one of %d bytes that was there before is lost", before.size)
	}
	return &sdk.Error{
		Code: "incomplete",
		Message: fmt.Sprintf("%s: it is an INCOMPLETE file now: %s (SHA-256 %s, sent was %s); %s",
			doing, left, sum, put.SHA256, was),
		Suggestion: suggestion + "Until then it must not be used; to remove it, run with " +
			"proxmox_container_exec_command: rm -- '" + strings.ReplaceAll(path, "'", `'\''`) + "'",
	}
}

// stage gives the path of a file that does not exist yet, in a directory that nobody else can
// reach: pct pull would empty a file that is there, and follow a link.
func stage(ct container) (string, error) {
	dir, err := sdk.Stage(ct.Call, ct.Name)
	return dir + "/file", pve.Lost(err, "making a directory for the transfer on "+ct.Name)
}

// copied judges pct push and pull, which exit 0 when they fail: whatever they print to stderr is an
// error. Silence is no success either; the digest decides.
func (ct container) copied(doing string, r sdk.ExecResult, err error) error {
	switch {
	case err != nil:
		return err
	case r.Exit != 0 || pve.Complaint(r) != "":
		return ct.FailGuest(doing, ct.vmid, "lxc", r)
	}
	return nil
}

type file struct {
	exists bool
	kind   string
	size   int64
}

func (f file) regular() bool { return strings.HasPrefix(f.kind, "regular ") }

func (f file) notRegular(doing, arg string) error {
	e := &sdk.Error{
		Code:       "bad_parameter",
		Message:    fmt.Sprintf("%s: it is a %s, not a regular file", doing, f.kind),
		Suggestion: "Give the path of a regular file in " + arg + ".",
	}
	if f.kind == "symbolic link" {
		e.Suggestion = "Give the path that the link points to (readlink -f in the container): " +
			"links are not followed."
	}
	return e
}

// stat describes a path in the container without following a link.
func (ct container) stat(doing, path string) (file, error) {
	r, err := ct.exec(helper, "stat", "-c", "%F %s", "--", path)
	if err != nil {
		return file{}, err
	}
	if err := ct.unable("looking into", r); err != nil {
		return file{}, err
	}
	f, ok := parseStat(string(r.Stdout))
	switch {
	case r.Exit == 0 && ok:
		return f, nil
	case r.Exit == 1 && strings.Contains(string(r.Stderr), "No such file or directory"):
		return file{}, nil
	}
	return file{}, pve.Fail(doing+": stat in the container", r)
}

// parseStat reads what stat prints for %F %s, where the type may be of several words.
func parseStat(text string) (file, bool) {
	text = strings.TrimSuffix(text, "\n")
	i := strings.LastIndexByte(text, ' ')
	size, err := strconv.ParseInt(text[i+1:], 10, 64)
	return file{true, text[:max(i, 0)], size}, i > 0 && err == nil && size >= 0
}

// sha256 hashes a file in the container.
func (ct container) sha256(doing, path string) (string, error) {
	r, err := ct.exec(hashing, "sha256sum", "--", path)
	if err != nil {
		return "", err
	}
	if err := ct.unable("looking into", r); err != nil {
		return "", err
	}
	return digest(doing+": sha256sum in the container", r)
}

// digest reads what sha256sum printed. A backslash before the hash says that the name which follows
// is escaped.
func digest(doing string, r sdk.ExecResult) (string, error) {
	sum, _, _ := strings.Cut(strings.TrimPrefix(string(r.Stdout), `\`), " ")
	if r.Exit != 0 || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		e := pve.Fail(doing, r)
		e.Code, e.Suggestion = "unknown_outcome", "The copy could not be verified: look at the "+
			"file before you use it. sha256sum must be installed there."
		return "", e
	}
	return sum, nil
}

func tooLarge(doing string, size, limit int64) error {
	return &sdk.Error{
		Code:       "too_large",
		Message:    fmt.Sprintf("%s: it has %d bytes, the limit is %d", doing, size, limit),
		Suggestion: "Set max_bytes higher, as far as policy allows, or take a part of the file.",
	}
}

// local explains errors that are about the file in the workspace.
func local(err error, path string) error {
	e := (*sdk.Error)(nil)
	if errors.As(err, &e) {
		switch e.Code {
		case "exists":
			e.Suggestion = fmt.Sprintf(
				"Set overwrite to replace %s in your workspace, or choose another local_path.",
				path,
			)
		case "not_found":
			e.Suggestion = fmt.Sprintf(
				"local_path %s is relative to your workspace on the machine where caponier runs: "+
					"check that it is there.",
				path,
			)
		case "too_large":
			e.Suggestion = "The site's policy or max_bytes limits the size."
		}
	}
	return err
}

package main

import (
	"errors"
	"fmt"
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
		"response_format": "Text form",
		"node":            "Its node, if not the default",
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
	Confirmed     bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (uploadIn) Docs() map[string]string {
	return map[string]string{
		"container_path":  "Absolute; its directory must exist",
		"max_bytes":       "Refuse a larger file",
		"response_format": "Text form",
		"node":            "Its node, if not the default",
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

// copying is the limit of pct push and pull. Root in the container can replace the file with a
// FIFO, which never ends.
const copying = 2 * time.Minute

func download(c *sdk.Call, in downloadIn) (moved, error) {
	ct := at(c, in.Node, in.VMID)
	doing := fmt.Sprintf("downloading %s from container %d on %s", in.ContainerPath, in.VMID,
		ct.Name)
	if err := ct.readable(doing, in); err != nil {
		return moved{}, err
	}
	staged, size, err := ct.pull(doing, in)
	if err != nil {
		return moved{}, err
	}
	sum, err := ct.arrived(doing, in, staged, size)
	if err != nil {
		return moved{}, err
	}
	got, err := sdk.SFTPGet(c, ct.Name, staged, in.LocalPath,
		sdk.FileOptions{Overwrite: in.Overwrite, MaxBytes: in.MaxBytes, SHA256: sum,
			Timeout: copying})
	if e := (*sdk.OpError)(nil); errors.As(err, &e) && e.Code == "changed" {
		return moved{}, &sdk.Error{
			Code:    "incomplete",
			Message: doing + ": " + e.Message,
			Suggestion: "The file was changed on the node during the transfer: find out by whom " +
				"before you call again.",
		}
	}
	if err != nil {
		return moved{}, local(pve.Lost(err, doing), in.LocalPath)
	}
	out := moved{VMID: in.VMID, Node: ct.Name, ContainerPath: in.ContainerPath,
		LocalPath: in.LocalPath, Bytes: got.Bytes, SHA256: got.SHA256}
	if got.Planned {
		out.Reply = pve.Say(in.Format, out, fmt.Sprintf(
			"%s of container %d would be downloaded to %s.", in.ContainerPath, in.VMID,
			in.LocalPath))
		return out, nil
	}
	out.Reply = pve.Say(in.Format, out,
		fmt.Sprintf("Downloaded %s of container %d to %s: %d bytes, sha256 %s.",
			in.ContainerPath, in.VMID, in.LocalPath, out.Bytes, sum))
	return out, nil
}

// readable returns an error unless the path names a regular file within the limit.
func (ct container) readable(doing string, in downloadIn) error {
	f, err := ct.stat(doing, in.ContainerPath)
	switch {
	case err != nil || f.planned:
		return err
	case !f.exists:
		return &sdk.Error{
			Code:       "not_found",
			Message:    doing + ": there is no such file",
			Suggestion: "Look with proxmox_container_exec_command: ls -la on its directory.",
		}
	case !f.regular():
		return f.notRegular(doing, "container_path")
	case f.size > in.MaxBytes:
		return tooLarge(doing, f.size, in.MaxBytes)
	}
	return nil
}

// pull copies the file to a staged path on the node. It returns that path and the size in bytes.
func (ct container) pull(doing string, in downloadIn) (string, int64, error) {
	staged, err := stage(ct)
	if err != nil {
		return "", 0, err
	}
	r, err := ct.pct(copying, "pull", "--", in.ContainerPath, staged)
	if e := (*sdk.Error)(nil); errors.As(err, &e) && e.Code == "timeout" {
		e.Suggestion = "The file did not end within two minutes: is it still a regular file? pct " +
			"pull may still be running on the node."
	}
	if err := ct.copied(doing, r, err); err != nil || r.Planned {
		return staged, 0, err
	}
	info, err := sdk.SFTPStat(ct.Call, ct.Name, staged)
	if err != nil {
		return "", 0, pve.Lost(err, doing)
	}
	if info.Size > in.MaxBytes {
		return "", 0, tooLarge(doing, info.Size, in.MaxBytes)
	}
	return staged, info.Size, nil
}

// arrived compares the staged copy with the file in the container and returns their SHA-256. It
// must succeed before the workspace is written, since overwrite would lose a good file.
func (ct container) arrived(doing string, in downloadIn, staged string,
	size int64) (string, error) {
	sum, err := ct.sha256(doing, in.ContainerPath)
	if err != nil || ct.Call.Planned() {
		return "", err
	}
	r, err := ct.Run(sdk.ExecOptions{Timeout: hashing, MaxBytes: 64 << 10}, "sha256sum", "--",
		staged)
	if err != nil {
		return "", err
	}
	arrived, err := digest(doing+": sha256sum on the node", r)
	if err != nil {
		return "", err
	}
	if arrived != sum {
		return "", &sdk.Error{
			Code: "incomplete",
			Message: fmt.Sprintf("%s: SHA-256 in the container is %s, of the %d bytes that "+
				"arrived on the node %s; nothing was downloaded", doing, sum, size, arrived),
			Suggestion: "The file changed during the copy, or the node's disk is full. If it is " +
				"a log that grows, copy it within the container first and download the copy.",
		}
	}
	return sum, nil
}

func upload(c *sdk.Call, in uploadIn) (moved, error) {
	ct := at(c, in.Node, in.VMID)
	doing := fmt.Sprintf("uploading %s to %s in container %d on %s", in.LocalPath, in.ContainerPath,
		in.VMID, ct.Name)
	before, err := ct.writable(doing, in)
	if err != nil {
		return moved{}, err
	}
	mode := pve.Mode(in.Permissions)
	put, err := ct.push(doing, mode, in)
	if err != nil {
		return moved{}, err
	}
	sum, err := ct.sha256(doing, in.ContainerPath)
	if err != nil {
		return moved{}, err
	}
	if !put.Planned && sum != put.SHA256 {
		return moved{}, ct.incomplete(doing, in.ContainerPath, put, before, sum)
	}
	out := moved{VMID: in.VMID, Node: ct.Name, ContainerPath: in.ContainerPath,
		LocalPath: in.LocalPath, Bytes: put.Bytes, SHA256: sum, Permissions: mode,
		Replaced: before.exists}
	if put.Planned {
		out.SHA256 = put.SHA256
		out.Reply = pve.Say(in.Format, out, fmt.Sprintf(
			"%s would be uploaded to %s in container %d: %d bytes, mode %s.", in.LocalPath,
			in.ContainerPath, in.VMID, out.Bytes, mode))
		return out, nil
	}
	out.Reply = pve.Say(in.Format, out,
		fmt.Sprintf("Uploaded %s to %s in container %d: %d bytes, mode %s, sha256 %s.",
			in.LocalPath, in.ContainerPath, in.VMID, out.Bytes, mode, sum))
	return out, nil
}

// writable returns what is at the path, or an error unless the upload may write there.
func (ct container) writable(doing string, in uploadIn) (file, error) {
	f, err := ct.stat(doing, in.ContainerPath)
	switch {
	case err != nil || f.planned:
		return f, err
	case f.exists && !f.regular():
		return f, f.notRegular(doing, "container_path")
	case f.exists && !in.Overwrite:
		return f, &sdk.Error{
			Code:       "exists",
			Message:    fmt.Sprintf("%s: there is a file of %d bytes already", doing, f.size),
			Suggestion: "Set overwrite to replace it, or choose another container_path.",
		}
	}
	return f, nil
}

// push stages the file on the node, copies it into the container and returns what was sent.
func (ct container) push(doing, mode string, in uploadIn) (sdk.Written, error) {
	staged, err := stage(ct)
	if err != nil {
		return sdk.Written{}, err
	}
	put, err := sdk.SFTPPut(ct.Call, ct.Name, in.LocalPath, staged,
		sdk.FileOptions{Mode: "0600", Timeout: copying})
	if err != nil {
		return put, local(pve.Lost(err, doing), in.LocalPath)
	}
	if put.Bytes > in.MaxBytes {
		return put, tooLarge(doing, put.Bytes, in.MaxBytes)
	}
	r, err := ct.pct(copying, "push", "--perms", mode, "--user", "0", "--group", "0", "--", staged,
		in.ContainerPath)
	return put, ct.copied(doing, r, err)
}

// incomplete returns the error of a push that wrote other bytes than were sent. pct push reports
// nothing when the container's disk is full. The file that was there before is lost, so the error
// says what is there now and how to remove it.
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

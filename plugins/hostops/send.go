package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

func sendTool() sdk.Tool {
	return sdk.NewTool(
		"proxmox_upload_directory_to_host",
		"Copy a directory of your workspace, with all files below it, to the Proxmox host. "+
			"Missing directories are made. Links and special files are left out and counted. "+
			"After a file that is refused or fails, no other begins: plan it first. For one file "+
			"use proxmox_upload_file_to_host. Example: "+
			"{\"local_dir\":\"site\",\"host_dir\":\"/srv/site\"}",
		sdk.Hints{
			Title:       "Upload a directory to the host",
			Destructive: true,
			Imports:     []string{"sftp_put"},
			Budget:      10 * time.Minute,
			Runs:        "SFTP write of each file under a partial name, then rename",
		},
		sendFolder,
	)
}

type sendIn struct {
	LocalDir    string `json:"local_dir" target:"local_dir"`
	HostDir     string `json:"host_dir" target:"remote_dir"`
	Permissions string `json:"permissions" pattern:"^[0-7]{3,4}$" default:"644"`
	Overwrite   bool   `json:"overwrite,omitempty" doc:"Replace files of the host"`
	Format      string `json:"response_format" doc:"Text form" default:"text" enum:"text,json"`
	Node        string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
	Confirm     bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (sendIn) Docs() map[string]string {
	return map[string]string{
		"local_dir":   "Directory to copy, relative to your workspace; at most 1000 files",
		"host_dir":    "Absolute path on the host; its files get the same names below it",
		"permissions": "Of files: octal, three or four digits. New directories get 755",
	}
}

// sending is an upload under way.
type sending struct {
	call  *sdk.Call
	in    sendIn
	out   movedFolder
	sums  []byte // what sha256sum prints of the files so far
	where string
}

// planned reports whether the files were only recorded.
func (s *sending) planned() bool { return s.call.Planned() }

func sendFolder(c *sdk.Call, in sendIn) (movedFolder, error) {
	node := pve.On(c, in.Node).Name
	s := &sending{call: c, in: in,
		out:   movedFolder{Node: node, HostDir: in.HostDir, LocalDir: in.LocalDir},
		where: fmt.Sprintf("%s to %s on %s", in.LocalDir, in.HostDir, node)}
	left := walk{}
	var files []sdk.LocalFile
	for _, f := range c.LocalFiles {
		if !strings.HasPrefix(f.Path, in.LocalDir+"/") || f.SHA256 == "" {
			left.leave(f.Path, "it is a link, a special file, too large or oddly named")
			continue
		}
		files = append(files, f)
	}
	for some := range slices.Chunk(files, atOnce) {
		sdk.Progress(c, float64(s.out.Files), float64(len(files)), "copied to "+node)
		if err := s.send(some); err != nil {
			return movedFolder{}, err
		}
	}
	s.out.LeftOut, s.out.Why = len(left.leftOut), left.leftOut[:min(maxWhy, len(left.leftOut))]
	if s.out.Files == 0 {
		return movedFolder{}, &sdk.Error{Code: "nothing_copied", Message: fmt.Sprintf(
			"copying %s: there is no file below it that can be uploaded", s.where),
			Suggestion: "Check that local_dir is a directory in your workspace with files in it."}
	}
	did := "Uploaded"
	if s.planned() {
		did = "This would upload"
	}
	sum := sha256.Sum256(s.sums)
	s.out.Manifest = hex.EncodeToString(sum[:])
	text := fmt.Sprintf("%s %s: %d files, %d bytes, sha256 of the sums %s.", did, s.where,
		s.out.Files, s.out.Bytes, s.out.Manifest)
	if s.out.LeftOut > 0 {
		text += fmt.Sprintf(" Left out: %d, such as %s.", s.out.LeftOut, s.out.Why[0].Path)
	}
	s.out.Reply = pve.Say(in.Format, s.out, text)
	return s.out, nil
}

// send copies some files by one list.
func (s *sending) send(some []sdk.LocalFile) error {
	puts := make([]sdk.Fetch, len(some))
	for i, f := range some {
		puts[i] = sdk.Fetch{Local: f.Path, Path: path.Join(s.in.HostDir, s.name(f)),
			FileOptions: sdk.FileOptions{Mode: pve.Mode(s.in.Permissions),
				Overwrite: s.in.Overwrite, Parents: true, Timeout: copying}}
	}
	all, err := sdk.SFTPPutAll(s.call, s.out.Node, puts)
	if err != nil {
		return s.stopped(s.name(some[0]), err)
	}
	failed := 0 // the one that the error tells of
	for i, put := range all {
		if put.Err == nil {
			s.out.Files++
			s.out.Bytes += put.Bytes
			s.sums = fmt.Appendf(s.sums, "%s  %s\n", some[i].SHA256, s.name(some[i]))
		} else if weight(put) > weight(all[failed]) {
			failed = i
		}
	}
	if err := all[failed].Err; err != nil {
		return s.stopped(s.name(some[failed]), err)
	}
	return nil
}

// name is the path of a file below the directory.
func (s *sending) name(f sdk.LocalFile) string {
	return strings.TrimPrefix(f.Path, s.in.LocalDir+"/")
}

// weight says how much the error of a copy matters. The tool tells of the first with the most.
func weight(put sdk.Fetched) int {
	op := (*sdk.OpError)(nil)
	switch {
	case put.Err == nil:
		return 0
	case put.NotBegun():
		return 1
	case errors.As(put.Err, &op) && op.Unknown:
		return 3
	}
	return 2
}

// stopped says how far the copying came.
func (s *sending) stopped(at string, err error) error {
	done := fmt.Sprintf("%d of %d files were copied", s.out.Files, len(s.call.LocalFiles))
	if s.planned() {
		done = "nothing was copied"
	}
	doing := fmt.Sprintf("copying %s: %s; %s", s.where, done, at)
	if refused := (*sdk.Refused)(nil); errors.As(err, &refused) {
		return &sdk.Error{Code: "refused", Message: doing + ": " + refused.Error(),
			Suggestion: "Upload a directory without this file, or to where the site allows it."}
	}
	return explain(pve.Lost(err, doing), "Check host_dir.",
		"Set overwrite to replace files of the host, or choose another host_dir.")
}

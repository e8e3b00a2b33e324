// Command hostops is the plugin that runs commands on Proxmox hosts themselves and moves files to
// and from them; a site has to switch it on.
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	sdk.Serve("hostops", "1.0.0",
		sdk.NewTool(
			"proxmox_host_exec_command",
			"Run commands on the Proxmox host itself, not in a guest. The text is split into "+
				"simple commands joined by | && || ;, each is held against the site's command "+
				"table, and only those "+
				"words are sent: no expansion, substitution, redirection or glob. Example: "+
				"{\"command\":\"pvecm status\"}",
			sdk.Hints{
				Title:       "Run a command on the host",
				Destructive: true,
				OpenWorld:   true,
				Imports:     []string{"ssh_script"},
				Commands:    []string{"*"},
				Budget:      310 * time.Second,
				Runs:        "COMMAND, every word quoted",
			},
			runCommand,
		),
		sdk.NewTool(
			"proxmox_download_file_from_host",
			"Copy one file from the Proxmox host to a path relative to your workspace. Example: "+
				"{\"host_path\":\"/var/log/pveproxy/access.log\",\"local_path\":\"access.log\"}",
			sdk.Hints{
				Title:   "Download a file from the host",
				Imports: []string{"sftp_stat", "sftp_get"},
				Budget:  5 * time.Minute,
				Runs:    "SFTP stat and read",
			},
			download,
		),
		folderTool(),
		sdk.NewTool(
			"proxmox_upload_file_to_host",
			"Copy one file of your workspace to the Proxmox host. Nothing is replaced unless "+
				"overwrite is true. Example: "+
				"{\"local_path\":\"a.iso\",\"host_path\":\"/var/lib/vz/template/iso/a.iso\"}",
			sdk.Hints{
				Title:       "Upload a file to the host",
				Destructive: true,
				Imports:     []string{"sftp_put"},
				Budget:      5 * time.Minute,
				Runs:        "SFTP write under a partial name, then rename",
			},
			upload,
		),
		sendTool(),
	)
}

type execIn struct {
	Command string `json:"command" minlen:"1" maxlen:"10000" target:"command"`
	Timeout int    `json:"timeout" doc:"Seconds to wait for it" min:"1" max:"300" default:"30"`
	Format  string `json:"response_format" doc:"Text form" default:"text" enum:"text,json"`
	Node    string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
	Confirm bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (execIn) Docs() map[string]string {
	return map[string]string{
		"command": "Simple commands joined by | && || ;, at most 10000 bytes",
	}
}

func runCommand(c *sdk.Call, in execIn) (pve.Ran, error) {
	return pve.Script(c, in.Node, in.Command, in.Format, time.Duration(in.Timeout)*time.Second)
}

type downloadIn struct {
	HostPath  string `json:"host_path" target:"remote_path"`
	LocalPath string `json:"local_path" target:"local_path"`
	Overwrite bool   `json:"overwrite,omitempty" doc:"Replace the local file if there is one"`
	MaxBytes  int64  `json:"max_bytes" min:"1" max:"1073741824" default:"10485760"`
	Format    string `json:"response_format" doc:"Text form" default:"text" enum:"text,json"`
	Node      string `json:"node,omitempty" doc:"Its node, if not the default" target:"node"`
}

// Docs describes what does not fit into a tag.
func (downloadIn) Docs() map[string]string {
	return map[string]string{
		"host_path":  "Absolute path of a regular file on the host",
		"local_path": "Where it goes, relative to your workspace",
		"max_bytes":  "Refuse a larger file",
	}
}

type uploadIn struct {
	LocalPath   string `json:"local_path" target:"local_path"`
	HostPath    string `json:"host_path" target:"remote_path"`
	Permissions string `json:"permissions" pattern:"^[0-7]{3,4}$" default:"644"`
	Overwrite   bool   `json:"overwrite,omitempty"`
	Format      string `json:"response_format" default:"text" enum:"text,json"`
	Node        string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
	Confirm     bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (uploadIn) Docs() map[string]string {
	return map[string]string{
		"local_path":      "File to copy, relative to your workspace",
		"host_path":       "Absolute path of the file on the host; its directory must exist",
		"permissions":     "Octal, three or four digits",
		"overwrite":       "Replace the file on the host if there is one",
		"response_format": "Text form",
	}
}

type moved struct {
	pve.Reply
	Node        string `json:"node"`
	HostPath    string `json:"host_path"`
	LocalPath   string `json:"local_path"`
	Bytes       int64  `json:"bytes"`
	SHA256      string `json:"sha256"`
	Permissions string `json:"permissions,omitempty"`
}

const copying = 4 * time.Minute

func download(c *sdk.Call, in downloadIn) (moved, error) {
	n := pve.On(c, in.Node)
	doing := fmt.Sprintf("downloading %s from %s", in.HostPath, n.Name)
	f, err := sdk.SFTPStat(c, n.Name, in.HostPath)
	switch {
	case err != nil:
		return moved{}, explain(pve.Lost(err, doing), "Check host_path.", "")
	case f.Type != "file":
		return moved{}, &sdk.Error{
			Code:       "bad_parameter",
			Message:    fmt.Sprintf("%s: it is a %s, not a regular file", doing, f.Type),
			Suggestion: "Give the path of a regular file in host_path.",
		}
	case f.Size > in.MaxBytes:
		return moved{}, &sdk.Error{
			Code: "too_large",
			Message: fmt.Sprintf("%s: it has %d bytes, the limit is %d", doing, f.Size,
				in.MaxBytes),
			Suggestion: "Set max_bytes higher, as far as policy allows, or look at a part of it " +
				"with tail.",
		}
	}
	// Size 0 proves nothing (/proc): the cap holds on the stream.
	got, err := sdk.SFTPGet(c, n.Name, in.HostPath, in.LocalPath,
		sdk.FileOptions{Overwrite: in.Overwrite, MaxBytes: in.MaxBytes, Timeout: copying})
	if err != nil {
		return moved{}, explain(pve.Lost(err, doing), "Check host_path.",
			"Set overwrite to replace the file in your workspace, or choose another local_path.")
	}
	out := moved{Node: n.Name, HostPath: in.HostPath, LocalPath: in.LocalPath, Bytes: got.Bytes,
		SHA256: got.SHA256}
	if got.Planned {
		out.Bytes = f.Size
		out.Reply = pve.Say(in.Format, out, fmt.Sprintf(
			"%s of %s would be downloaded to %s: %d bytes.", in.HostPath, n.Name, in.LocalPath,
			f.Size))
		return out, nil
	}
	out.Reply = pve.Say(in.Format, out,
		fmt.Sprintf("Downloaded %s from %s to %s: %d bytes, sha256 %s.", in.HostPath, n.Name,
			in.LocalPath, got.Bytes, got.SHA256))
	return out, nil
}

func upload(c *sdk.Call, in uploadIn) (moved, error) {
	n := pve.On(c, in.Node)
	doing := fmt.Sprintf("uploading %s to %s on %s", in.LocalPath, in.HostPath, n.Name)
	mode := pve.Mode(in.Permissions)
	put, err := sdk.SFTPPut(c, n.Name, in.LocalPath, in.HostPath,
		sdk.FileOptions{Mode: mode, Overwrite: in.Overwrite, Timeout: copying})
	if err != nil {
		return moved{}, explain(
			pve.Lost(err, doing),
			"Check that local_path is in your workspace, and that the directory of host_path "+
				"exists.",
			"Set overwrite to replace the file on the host, or choose another host_path.",
		)
	}
	out := moved{Node: n.Name, HostPath: in.HostPath, LocalPath: in.LocalPath, Bytes: put.Bytes,
		SHA256: put.SHA256, Permissions: mode}
	if put.Planned {
		out.Reply = pve.Say(in.Format, out, fmt.Sprintf(
			"%s would be uploaded to %s on %s: %d bytes, mode %s.", in.LocalPath, in.HostPath,
			n.Name, put.Bytes, mode))
		return out, nil
	}
	out.Reply = pve.Say(in.Format, out,
		fmt.Sprintf("Uploaded %s to %s on %s: %d bytes, mode %s, sha256 %s.", in.LocalPath,
			in.HostPath, n.Name, put.Bytes, mode, put.SHA256))
	return out, nil
}

// explain suggests what helps against a file that is missing, or there already.
func explain(err error, missing, there string) error {
	if e := (*sdk.Error)(nil); errors.As(err, &e) {
		switch e.Code {
		case "not_found":
			e.Suggestion = missing
		case "exists":
			e.Suggestion = there
		case "too_large":
			e.Suggestion = "The site's policy or max_bytes limits the size."
		}
	}
	return err
}

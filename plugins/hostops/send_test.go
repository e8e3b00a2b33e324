package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/plugins/internal/pvetest"
	"github.com/caponier-mcp/caponier/sdk"
)

// sender returns a host with these local files, and what was uploaded to its nodes.
func sender(t *testing.T, put func(path string) error, files ...string) (*pvetest.Node, *[]string) {
	n, sent := pvetest.New(t, nil), &[]string{}
	for _, name := range files {
		f := sdk.LocalFile{Path: name, SHA256: "ab"}
		if strings.HasSuffix(name, "!") {
			f.SHA256 = ""
		}
		n.LocalFiles = append(n.LocalFiles, f)
	}
	n.SFTPPut = func(node, local, path string, o sdk.FileOptions) (sdk.Written, error) {
		if put != nil {
			if err := put(path); err != nil {
				return sdk.Written{}, err
			}
		}
		if !o.Parents || o.Mode != "0644" {
			t.Errorf("%s: %+v", path, o)
		}
		*sent = append(*sent, local+" "+path)
		return sdk.Written{Bytes: 5, SHA256: "ab"}, nil
	}
	return n, sent
}

const sendAll = `{"local_dir":"site","host_dir":"/srv/site"}`

func TestADirectoryIsUploadedWithAllFilesBelow(t *testing.T) {
	n, sent := sender(t, nil, "site/a", "site/b/c", "site/link!", "other/x")
	_, m := n.Do("proxmox_upload_directory_to_host", sendAll)
	want := []string{"site/a /srv/site/a", "site/b/c /srv/site/b/c"}
	sums := sha256.Sum256([]byte("ab  a\nab  b/c\n"))
	if !slices.Equal(*sent, want) || m["files"] != 2.0 || m["bytes"] != 10.0 ||
		m["left_out"] != 2.0 || m["manifest_sha256"] != fmt.Sprintf("%x", sums) {
		t.Errorf("%q %v", *sent, m)
	}
}

func TestAnUploadStopsAtTheFirstFileThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"refused": {&sdk.Refused{Deny: []sdk.Reason{{ID: "file", Msg: "elsewhere"}}}, "refused"},
		"there":   {&sdk.OpError{Code: "exists", Message: "it is there"}, "exists"},
		"unknown": {&sdk.OpError{Code: "unconfirmed", Message: "lost", Unknown: true},
			"unknown_outcome"},
	} {
		n, sent := sender(t, func(path string) error {
			if path == "/srv/site/b" {
				return c.err
			}
			return nil
		}, "site/a", "site/b", "site/c")
		out, _ := n.Do("proxmox_upload_directory_to_host", sendAll)
		if out.Error == nil || out.Error.Code != c.code || len(*sent) != 1 ||
			!strings.Contains(out.Error.Message, "1 of 3 files were copied; b: ") {
			t.Errorf("%s: %+v, sent %q", name, out.Error, *sent)
		}
	}
}

func TestADirectoryWithoutFilesIsAnError(t *testing.T) {
	for _, files := range [][]string{nil, {"site/link!"}} {
		n, _ := sender(t, nil, files...)
		out, _ := n.Do("proxmox_upload_directory_to_host", sendAll)
		if out.Error == nil || out.Error.Code != "nothing_copied" {
			t.Errorf("%q: %+v", files, out.Error)
		}
	}
}

// Of several files of a list that did not succeed, the tool tells of the one that matters most.
func TestAnUnknownOutcomeIsToldBeforeAFailure(t *testing.T) {
	var order []int
	for _, err := range []error{nil, &sdk.OpError{Code: "not_begun"},
		&sdk.OpError{Code: "exists"}, &sdk.OpError{Code: "lost", Unknown: true}} {
		order = append(order, weight(sdk.Fetched{Err: err}))
	}
	if !slices.Equal(order, []int{0, 1, 2, 3}) ||
		weight(sdk.Fetched{Err: &sdk.Refused{}}) != 2 {
		t.Error(order)
	}
}

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

// stage returns the path of a new file in a directory that only the login user can read. pct pull
// would truncate an existing file and follow a link.
func stage(ct container) (string, error) {
	dir, err := sdk.Stage(ct.Call, ct.Name)
	return dir + "/file", pve.Lost(err, "making a directory for the transfer on "+ct.Name)
}

// copied returns the error of pct push or pull. They exit with 0 when they fail, so any text on
// stderr is an error. No text is no success: the digest decides.
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
	exists  bool
	kind    string
	size    int64
	planned bool // it was not looked at, and all else is zero
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
	if r.Planned {
		return file{planned: true}, nil
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

// parseStat reads the output of stat for %F %s. The type may have several words.
func parseStat(text string) (file, bool) {
	text = strings.TrimSuffix(text, "\n")
	i := strings.LastIndexByte(text, ' ')
	size, err := strconv.ParseInt(text[i+1:], 10, 64)
	return file{exists: true, kind: text[:max(i, 0)], size: size}, i > 0 && err == nil && size >= 0
}

// sha256 hashes a file in the container. The hash is "" when the call is only planned.
func (ct container) sha256(doing, path string) (string, error) {
	r, err := ct.exec(hashing, "sha256sum", "--", path)
	if err != nil || r.Planned {
		return "", err
	}
	if err := ct.unable("looking into", r); err != nil {
		return "", err
	}
	return digest(doing+": sha256sum in the container", r)
}

// digest reads the output of sha256sum. A backslash before the hash means that the file name after
// it is escaped.
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

// local adds a suggestion to an error about the file in the workspace.
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

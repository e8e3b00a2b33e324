package audit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/caponier-mcp/caponier/host/trusted"
)

var revisionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:._+-]{0,127}$`)

// ending is the ending of the name of a bundle's file.
func ending(bundle []byte) string {
	if json.Valid(bundle) {
		return ".json"
	}
	return ".tar"
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// keep writes a whole file or none.
func keep(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := trusted.Replace(path, data, 0o600, dir); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

// Policy returns the bundle of a revision that decided something. The error wraps fs.ErrNotExist
// when it was not kept.
func Policy(dir, rev string) ([]byte, error) {
	base, err := policyBase(dir, rev)
	if err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(base + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		bundle, err = os.ReadFile(base + ".tar")
	}
	if err != nil {
		return nil, fmt.Errorf("its bundle: %w", err)
	}
	return bundle, nil
}

func policyBase(dir, rev string) (string, error) {
	if !revisionForm.MatchString(rev) {
		return "", fmt.Errorf("policy revision %q: want 1 to 128 of A-Z a-z 0-9 : . _ + -", rev)
	}
	return filepath.Join(dir, "policies", strings.ReplaceAll(rev, ":", "-")), nil
}

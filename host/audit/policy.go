package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// KeepPolicy keeps the bundle of a policy revision beside the journal, so that what it decided can
// be explained later, and its digest in the chain. It returns when the bundle is on the disk.
// Another bundle under the same revision is an error.
func (j *Journal) KeepPolicy(rev string, bundle []byte) error {
	if err := j.keepPolicy(rev, bundle); err != nil {
		return fmt.Errorf("keeping policy revision %s: %w", rev, err)
	}
	return nil
}

func (j *Journal) keepPolicy(rev string, bundle []byte) error {
	base, err := policyBase(j.opt.Dir, rev)
	if err != nil {
		return err
	}
	kept, err := Policy(j.opt.Dir, rev)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = keep(base+ending(bundle), bundle)
	case err == nil && !bytes.Equal(kept, bundle):
		err = fmt.Errorf("another bundle with that revision is already in %s", filepath.Dir(base))
	}
	if err != nil {
		return err
	}
	_, _, err = j.add(Entry{Policy: &Kept{Time: j.now(), Revision: rev, SHA256: digest(bundle)}})
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.revision, j.bundle = rev, bundle
	}
	return err
}

// keepAgain keeps the policy that decides now in a directory that replaced the journal's. If that
// fails, its decisions cannot be explained later, and Verify warns of it. It needs mu.
func (j *Journal) keepAgain() {
	_, err := Policy(j.opt.Dir, j.revision)
	if j.revision == "" || !errors.Is(err, fs.ErrNotExist) {
		return
	}
	base, err := policyBase(j.opt.Dir, j.revision)
	if err == nil && keep(base+ending(j.bundle), j.bundle) == nil {
		_ = j.write(Entry{Policy: &Kept{Time: j.now(), Revision: j.revision,
			SHA256: digest(j.bundle)}})
	}
}

// ending is the ending of the name of a bundle's file.
func ending(bundle []byte) string {
	if json.Valid(bundle) {
		return ".json"
	}
	return ".tar"
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

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

// Package needs is how a test is skipped where what it needs is missing. Where CI=true nothing may
// be missing, and the test fails instead: .ci/run installs it.
package needs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Skip skips the test, or fails it where CI=true. The reason says what the test needs.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("under CI=true no test may skip: " + reason)
	}
	t.Skip(reason)
}

// Program skips the test unless one of these programs is installed, and returns its path.
func Program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Skip(t, "none of these programs is installed: "+strings.Join(names, ", "))
	return ""
}

// Minutes skips the test with -short, but where CI=true. It says how long the test takes.
func Minutes(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip(reason)
	}
}

// Share returns n with -short, as in CI, and 1 without, as in `make thorough`. A test whose cases
// are alike and take minutes together tries each n-th of them.
func Share(n int) int {
	if testing.Short() {
		return n
	}
	return 1
}

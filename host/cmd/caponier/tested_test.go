package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What a host remembers of a site's tests holds for exactly the same, and for a file that nobody
// else could write.
func TestTestsOfASiteAreRememberedForExactlyTheSame(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(dir, 0o700))
	file := filepath.Join(dir, "tested")
	one := tested{file: file, program: "1.0", lock: "L"}
	if one.has("R") {
		t.Error("it remembers what it was not told")
	}
	one.keep("R")
	if !one.has("R") {
		t.Fatal("it does not remember")
	}
	for what, other := range map[string]tested{
		"another program": {file: file, program: "1.1", lock: "L"},
		"another lock":    {file: file, program: "1.0", lock: "M"},
		"no version":      {file: file, lock: "L"},
		"another file":    {file: filepath.Join(dir, "x"), program: "1.0", lock: "L"},
	} {
		if other.has("R") {
			t.Errorf("%s: it remembers", what)
		}
	}
	if one.has("S") {
		t.Error("another revision: it remembers")
	}
	unnamed := tested{file: filepath.Join(dir, "dev"), lock: "L"}
	unnamed.keep("R")
	if _, err := os.Stat(unnamed.file); err == nil {
		t.Error("a build without a version writes")
	}
	good, err := os.ReadFile(file)
	must(err)
	for what, spoil := range map[string]func() error{
		"longer": func() error {
			return os.WriteFile(file, append(good, '\n'), 0o600)
		},
		"shorter":                    func() error { return os.WriteFile(file, good[:63], 0o600) },
		"empty":                      func() error { return os.WriteFile(file, nil, 0o600) },
		"written by others":          func() error { return os.Chmod(file, 0o666) },
		"a folder that others write": func() error { return os.Chmod(dir, 0o777) },
	} {
		must(os.WriteFile(file, good, 0o600))
		if !one.has("R") {
			t.Fatalf("before %s: it does not remember", what)
		}
		must(spoil())
		if one.has("R") {
			t.Errorf("%s: it remembers", what)
		}
		must(os.Chmod(dir, 0o700))
		must(os.Chmod(file, 0o600))
	}
}

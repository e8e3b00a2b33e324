package shell

import "testing"

// What lowering costs: it is on the way of every command.
func BenchmarkScript(b *testing.B) {
	for b.Loop() {
		if !(Lowerer{}).Script(
			"systemctl status pveproxy.service --no-pager | grep 'a b' && df -h",
		).Parsed {
			b.Fatal("not parsed")
		}
	}
}

func BenchmarkArgv(b *testing.B) {
	argv := []string{
		"pct",
		"exec",
		"101",
		"--keep-env",
		"0",
		"--",
		"timeout",
		"-k",
		"2",
		"30",
		"sh",
		"-c",
		"df -h | tail -1",
	}
	for b.Loop() {
		if !(Lowerer{}).Argv(argv).Parsed {
			b.Fatal("not parsed")
		}
	}
}

package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain is also the child of DescribeInSubprocess, and of the ways in which a child can fail.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "apart" {
		goleak.VerifyTestMain(m)
		return
	}
	var err error
	switch os.Args[2] {
	case "well":
		err = ServeDescribe(context.Background(), os.Stdin, os.Stdout, "")
	case "greedy":
		if err = confine(256 << 20); err == nil {
			b := make([]byte, 1<<30)
			fmt.Println(b[len(b)-1])
		}
	case "endless":
		for err == nil {
			_, err = os.Stdout.Write(make([]byte, 1<<16))
		}
	case "silent":
	case "environment":
		fmt.Printf(`{"error":"%d variables"}`, len(os.Environ()))
	case "lying":
		fmt.Print(`{"describe":"e30=","imports":["none"]}`)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func childAs(mode string) []string { return []string{os.Args[0], "apart", mode} }

func TestDescribeInSubprocessSaysWhatDescribeSays(t *testing.T) {
	wasm := goModule(t, "echo")
	want, imports, err := describeModule(t.Context(), wasm, "")
	if err != nil {
		t.Fatal(err)
	}
	got, also, err := DescribeInSubprocess(t.Context(), childAs("well"), wasm)
	if err != nil || !bytes.Equal(got, want) || !slices.Equal(also, imports) {
		t.Errorf("got %.100s with %v, %v; want %.100s with %v", got, also, err, want, imports)
	}
}

// bomb is a module that is admitted and that the compiler needs long for.
func bomb() []byte { return module{more: slices.Repeat([][]byte{bombBody()}, 9)}.bytes() }

func bombBody() []byte {
	return body(op(repeat([]byte{0x02, 0x40}, 3900), repeat([]byte{0x0b}, 3900)))
}

func TestACompileBombIsKilledAtItsDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, _, err := DescribeInSubprocess(ctx, childAs("well"), bomb())
	took := time.Since(began)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v after %s", err, took)
	}
	if took > 20*time.Second {
		t.Errorf("it was killed after %s", took)
	}
}

func TestAFailingChildIsAnError(t *testing.T) {
	plain := module{}.bytes()
	for mode, says := range map[string]string{
		"greedy": noMemory, "endless": "over 4194304 bytes", "silent": "no answer",
		"environment": "0 variables", "lying": "imports",
	} {
		t.Run(mode, func(t *testing.T) {
			if _, _, err := DescribeInSubprocess(t.Context(), childAs(mode), plain); err == nil ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want an error that says %q", err, says)
			}
		})
	}
	if _, _, err := DescribeInSubprocess(t.Context(), childAs("well"),
		module{call: op(0xfd, 12)}.bytes()); err == nil ||
		!strings.Contains(err.Error(), "SIMD") {
		t.Errorf("the child's reason did not arrive: %v", err)
	}
	if _, _, err := DescribeInSubprocess(t.Context(), []string{"/nonexistent"},
		[]byte("no module")); err == nil ||
		!strings.Contains(err.Error(), "not a WebAssembly") {
		t.Errorf("what the gate refuses needs no process: %v", err)
	}
}

// TestAChildEndsWithItsParent closes the pipe of a child that compiles for seconds.
func TestAChildEndsWithItsParent(t *testing.T) {
	cmd := exec.Command(os.Args[0], "apart", "well")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wasm := bomb()
	if _, err := io.Copy(in,
		bytes.NewReader(
			append(binary.LittleEndian.AppendUint32(nil, uint32(len(wasm))),
				wasm...))); err != nil {
		t.Fatal(err)
	}
	in.Close()
	began := time.Now()
	if err := cmd.Wait(); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("it ended after %s with %v", time.Since(began), err)
	}
}

// What was compiled to describe a module is not compiled again to run it, nor to describe it again.
func TestAModuleIsCompiledOnceToBeDescribedAndRun(t *testing.T) {
	wasm, dir := goModule(t, "echo"), filepath.Join(t.TempDir(), "cache")
	want, imports, err := describeModule(t.Context(), wasm, dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{Warm: -1, CacheDir: dir, Compiling: func() func() {
		t.Error("the module is compiled again")
		return func() {}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	m, rewritten, err := load(wasm, imports, s.o.MemoryMax)
	if err != nil || m == nil {
		t.Fatal(err)
	}
	if _, err := s.compile(t.Context(), rewritten, func() {}); err != nil {
		t.Fatal(err)
	}
	// a folder that cannot hold it costs time, and no answer
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := describeModule(t.Context(), wasm, file); err != nil ||
		!bytes.Equal(got, want) {
		t.Errorf("%.100s %v", got, err)
	}
}

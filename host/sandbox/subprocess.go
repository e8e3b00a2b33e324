package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	subprocessMemory = 2 << 30 // bytes that the process for one module may have
	subprocessOutput = 2 * maxDescribe
)

// described is the child's answer. It is as trustworthy as the module.
type described struct {
	Describe []byte `json:"describe,omitempty"`
	Error    string `json:"error,omitempty"`
}

// DescribeInSubprocess describes a module in a process of its own, since neither the compiler's
// time nor its memory can be bounded from inside: command must end up in [ServeDescribe]. The
// process has no environment, and is killed when ctx ends. Only the description is the child's
// word: the imports are read here.
func DescribeInSubprocess(
	ctx context.Context, command []string, wasm []byte,
) (describe []byte, imports []string, err error) {
	m, err := admit(wasm, abi.Operations())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := capped{max: subprocessOutput, full: cancel}
	complaints := capped{max: maxNote}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, os.TempDir(), time.Second
	cmd.Stdout, cmd.Stderr = &out, &complaints
	stdin, err := cmd.StdinPipe() // which stays open: the child ends when its parent does
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting a process for the module: %w", err)
	}
	_, err = stdin.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(wasm))), wasm...))
	err = errors.Join(cmd.Wait(), err)
	switch {
	case out.over:
		return nil, nil, fmt.Errorf("the module's description is over %d bytes", maxDescribe)
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("the module was not compiled and described in time, and its "+
			"process was killed: %w", context.Cause(ctx))
	case err != nil:
		return nil, nil, fmt.Errorf("the process that compiled the module ended (it may have %d "+
			"MiB): %w: %s", subprocessMemory>>20, err,
			clean(cmp.Or(complaints.firstLine(), "it wrote nothing"), 200))
	}
	var answer described
	if err := abi.DecodeInto(out.buf.Bytes(), subprocessOutput, &answer); err != nil {
		return nil, nil, fmt.Errorf("the process that compiled the module gave no answer: %w", err)
	}
	if answer.Error != "" {
		return nil, nil, errors.New(clean(answer.Error, 1000))
	}
	return answer.Describe, operations(m), nil
}

// ServeDescribe is the child of [DescribeInSubprocess]: it reads a module from in, writes its
// description to out, and ends the process when in ends. It sets limits of the whole process. Cache
// is as in [Options].
func ServeDescribe(ctx context.Context, in io.Reader, out io.Writer, cache string) error {
	debug.SetMemoryLimit(subprocessMemory / 4 * 3)
	if err := confine(subprocessMemory); err != nil {
		return fmt.Errorf("limiting the memory of this process: %w", err)
	}
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return err
	}
	wasm := make([]byte, min(binary.LittleEndian.Uint32(size[:]), meter.MaxModule+1))
	if _, err := io.ReadFull(in, wasm); err != nil {
		return err
	}
	go func() { // the parent is gone, or wants no more; whatever runs here must not outlive it
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	var answer described
	describe, _, err := describeModule(ctx, wasm, cache)
	if answer.Describe = describe; err != nil {
		answer = described{Error: err.Error()}
	}
	return json.NewEncoder(out).Encode(answer)
}

// capped keeps the first max bytes that are written to it, and reports whether there were more. The
// buffer is not embedded: its ReadFrom would know no maximum.
type capped struct {
	buf  bytes.Buffer
	max  int
	over bool
	full func() // nil for none
}

func (c *capped) Write(b []byte) (int, error) {
	left := c.max - c.buf.Len()
	c.buf.Write(b[:min(left, len(b))])
	if len(b) > left {
		if c.over = true; c.full != nil {
			c.full()
		}
	}
	return len(b), nil
}

func (c *capped) firstLine() string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(c.buf.Bytes()), []byte("\n"))
	return string(line)
}

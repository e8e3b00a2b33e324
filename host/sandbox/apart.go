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

	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	apartMemory = 2 << 30 // bytes that the process for one module may have
	apartOutput = 2 * maxDescribe
)

// apart is what the child says. It is as trustworthy as the module.
type apart struct {
	Describe []byte `json:"describe,omitempty"`
	Error    string `json:"error,omitempty"`
}

// DescribeApart is [Describe] in a process of its own, since neither the compiler's time nor its
// memory can be bounded from inside: command must end up in [ServeApart]. The process has no
// environment, and is killed when ctx ends. Only the description is the child's word: the imports
// are read here.
func DescribeApart(
	ctx context.Context,
	command []string,
	wasm []byte,
) (describe []byte, imports []string, err error) {
	m, err := check(wasm, abi.Operations())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out, complaints capped
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = []string{}, os.TempDir(), &out, &complaints, time.Second
	stdin, err := cmd.StdinPipe() // which stays open: the child ends when its parent does
	if err != nil {
		return nil, nil, err
	}
	out.max, complaints.max, out.full = apartOutput, maxNote, cancel
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting a process for the module: %w", err)
	}
	_, err = stdin.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(wasm))), wasm...))
	err = errors.Join(cmd.Wait(), err)
	var said apart
	switch {
	case out.over:
		return nil, nil, fmt.Errorf("the module's description is over %d bytes", maxDescribe)
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf(
			"the module was not compiled and described in time, and its process was killed: %w",
			context.Cause(ctx),
		)
	case err != nil:
		return nil, nil, fmt.Errorf(
			"the process that compiled the module ended (it may have %d MiB): %w: %s",
			apartMemory>>20,
			err,
			clean(cmp.Or(complaints.firstLine(), "it said nothing"), 200),
		)
	}
	if err := abi.DecodeInto(out.buf.Bytes(), apartOutput, &said); err != nil {
		return nil, nil, fmt.Errorf("the process that compiled the module gave no answer: %w", err)
	}
	if said.Error != "" {
		return nil, nil, errors.New(clean(said.Error, 1000))
	}
	return said.Describe, m.operations(), nil
}

// ServeApart is the child of [DescribeApart]: it describes the module that it reads from in, says
// what came out, and ends when in does.
func ServeApart(ctx context.Context, in io.Reader, out io.Writer) error {
	debug.SetMemoryLimit(apartMemory / 4 * 3)
	if err := confine(apartMemory); err != nil {
		return fmt.Errorf("limiting the memory of this process: %w", err)
	}
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return err
	}
	wasm := make([]byte, min(binary.LittleEndian.Uint32(size[:]), maxModule+1))
	if _, err := io.ReadFull(in, wasm); err != nil {
		return err
	}
	go func() { // the parent is gone, or wants no more; whatever runs here must not outlive it
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	var said apart
	describe, _, err := Describe(ctx, wasm)
	if said.Describe = describe; err != nil {
		said = apart{Error: err.Error()}
	}
	return json.NewEncoder(out).Encode(said)
}

// capped keeps the first max bytes that are written to it, and says when there are more. The buffer
// is not embedded: its ReadFrom would know no maximum.
type capped struct {
	buf  bytes.Buffer
	max  int
	over bool
	full func() // nil for none
}

func (c *capped) Write(b []byte) (int, error) {
	if left := c.max - c.buf.Len(); len(b) > left {
		c.buf.Write(b[:left])
		if c.over = true; c.full != nil {
			c.full()
		}
		return len(b), nil
	}
	return c.buf.Write(b)
}

func (c *capped) firstLine() string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(c.buf.Bytes()), []byte("\n"))
	return string(line)
}

package sandbox

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// wasiModule is what toolchains expect of an operating system. Here that is time, randomness and an
// output for errors: no files, no sockets, no environment.
const wasiModule = "wasi_snapshot_preview1"

// Error numbers of WASI.
const errnoBadf, errnoFault, errnoInval, errnoNosys uint32 = 8, 21, 28, 52

const (
	maxIovecs = 1024
	maxPolls  = 64
)

func wasiFuncs() map[string]hostFunc {
	funcs := map[string]hostFunc{
		"args_get":          answer(ii, 0),
		"args_sizes_get":    {ii, i, (*call).noStrings},
		"environ_get":       answer(ii, 0),
		"environ_sizes_get": {ii, i, (*call).noStrings},
		"clock_res_get":     {ii, i, (*call).clockRes},
		"clock_time_get":    {i + long + i, i, (*call).clockTime},
		"fd_write":          {iiii, i, (*call).fdWrite},
		"poll_oneoff":       {iiii, i, (*call).pollOneoff},
		"random_get":        {ii, i, (*call).randomGet},
		"sched_yield":       answer(noArgs, 0),
		"proc_exit":         {i, noArgs, (*call).procExit},
	}
	for name, params := range map[string]string{ // there is no such file
		"fd_advise": i + long + long + i, "fd_allocate": i + long + long, "fd_close": i,
		"fd_datasync": i, "fd_fdstat_get": ii, "fd_fdstat_set_flags": ii,
		"fd_filestat_get": ii, "fd_filestat_set_size": i + long,
		"fd_filestat_set_times": i + long + long + i, "fd_pread": iii + long + i,
		"fd_prestat_dir_name": iii, "fd_prestat_get": ii, "fd_pwrite": iii + long + i,
		"fd_read": iiii, "fd_readdir": iii + long + i, "fd_renumber": ii,
		"fd_seek": i + long + ii, "fd_sync": i, "fd_tell": ii,
	} {
		funcs[name] = answer(params, errnoBadf)
	}
	for name, params := range map[string]string{ // there is no file system
		"path_create_directory": iii, "path_filestat_get": iiiii,
		"path_filestat_set_times": iiii + long + long + i, "path_link": iiiii + ii,
		"path_open": iiiii + long + long + ii, "path_readlink": iiiii + i,
		"path_remove_directory": iii, "path_rename": iiiii + i, "path_symlink": iiiii,
		"path_unlink_file": iii,
	} {
		funcs[name] = answer(params, errnoNosys)
	}
	return funcs
}

func answer(params string, errno uint32) hostFunc {
	do := func(*call, context.Context, api.Memory, arguments) uint32 { return errno }
	return hostFunc{params, i, do}
}

func (c *call) procExit(_ context.Context, _ api.Memory, a arguments) uint32 {
	code := a.i32(0)
	c.exit = &code
	panic(errExited)
}

// noStrings answers that there are no arguments and no environment.
func (c *call) noStrings(_ context.Context, mem api.Memory, a arguments) uint32 {
	if !mem.WriteUint32Le(a.i32(0), 0) || !mem.WriteUint32Le(a.i32(1), 0) {
		return errnoFault
	}
	return 0
}

func (c *call) clockRes(_ context.Context, mem api.Memory, a arguments) uint32 {
	return putTime(mem, a.i32(0), a.i32(1), 1)
}

func (c *call) clockTime(_ context.Context, mem api.Memory, a arguments) uint32 {
	return putTime(mem, a.i32(0), a.i32(2), uint64(c.env.now().UnixNano()))
}

func putTime(mem api.Memory, clock, ptr uint32, v uint64) uint32 {
	switch {
	case clock > 1: // neither realtime nor monotonic
		return errnoInval
	case !mem.WriteUint64Le(ptr, v):
		return errnoFault
	}
	return 0
}

// fdWrite keeps the beginning of what the module writes to stdout and stderr.
func (c *call) fdWrite(_ context.Context, mem api.Memory, a arguments) uint32 {
	fd, iovs, n := a.i32(0), a.i32(1), a.i32(2)
	switch {
	case fd != 1 && fd != 2:
		return errnoBadf
	case n > maxIovecs:
		return errnoInval
	}
	table, ok := mem.Read(iovs, n*8)
	total := uint64(0)
	for ; ok && len(table) > 0; table = table[8:] {
		var text []byte
		size := binary.LittleEndian.Uint32(table[4:])
		text, ok = mem.Read(binary.LittleEndian.Uint32(table), size)
		total += uint64(size)
		c.stderr = append(c.stderr, text[:min(len(text), maxStderr-len(c.stderr))]...)
	}
	if !ok || total > 1<<31 || !mem.WriteUint32Le(a.i32(3), uint32(total)) {
		return errnoFault
	}
	return 0
}

func (c *call) randomGet(ctx context.Context, mem api.Memory, a arguments) uint32 {
	view, ok := mem.Read(a.i32(0), a.i32(1))
	for ; ok && len(view) > 0; c.check(ctx) {
		piece := view[:min(len(view), 1<<16)]
		_, err := io.ReadFull(c.env.random, piece)
		view, ok = view[len(piece):], err == nil
		c.charge(len(piece))
		c.settle(ctx)
	}
	if !ok {
		return errnoFault
	}
	return 0
}

// pollOneoff waits for clocks. A file is ready at once, with the error that there is no such file.
func (c *call) pollOneoff(ctx context.Context, mem api.Memory, a arguments) uint32 {
	n := a.i32(2)
	if n == 0 || n > maxPolls {
		return errnoInval
	}
	subs, ok := c.take(mem, a.i32(0), n*48)
	events, ok2 := mem.Read(a.i32(1), n*32)
	if !ok || !ok2 {
		return errnoFault
	}
	const never = time.Duration(1<<63 - 1)
	wait, waits := never, make([]time.Duration, n)
	for k := range waits {
		s := subs[k*48:]
		if s[8] == 0 { // a clock
			t := binary.LittleEndian.Uint64(s[24:])
			if binary.LittleEndian.Uint16(s[40:])&1 != 0 { // an absolute time
				t -= min(t, uint64(max(c.env.now().UnixNano(), 0)))
			}
			waits[k] = time.Duration(min(t, uint64(never)))
		}
		wait = min(wait, waits[k])
	}
	if wait > 0 {
		if c.limit > 0 { // a start: it is stopped soon after
			wait = min(wait, max(time.Duration(c.limit-c.spent()), 0)+1)
			c.slept += int64(wait)
		}
		c.meanwhile(ctx, func() { c.env.sleep(ctx, wait) })
		c.check(ctx)
	}
	count := uint32(0)
	for k, w := range waits {
		if w > wait {
			continue
		}
		s, e := subs[k*48:], events[count*32:][:32]
		clear(e)
		copy(e, s[:8])
		if e[10] = s[8]; s[8] != 0 {
			e[8] = byte(errnoBadf)
		}
		count++
	}
	if !mem.WriteUint32Le(a.i32(3), count) {
		return errnoFault
	}
	return 0
}

// sleep waits until d is over or the call is.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

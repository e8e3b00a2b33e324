package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// image is the memory that instances start from. Instances map it copy-on-write: each pays only for
// the pages that it touches.
type image struct {
	fd    int
	size  uint64
	bytes []byte // the same, to read from
}

// seal makes sure that from here on nothing can change what every call starts from. EBUSY means
// that the kernel itself holds a page for a moment, as when it moves or scans memory (mm/memfd.c,
// memfd_wait_for_pins), and passes.
func seal(fd int) (err error) {
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	for tries := range 20 {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != unix.EBUSY {
			return err
		}
		time.Sleep(time.Duration(tries) * 5 * time.Millisecond)
	}
	return err
}

// newImage makes an image of the bytes, which may be shorter than size.
func newImage(data []byte, size uint64) (*image, error) {
	fd, err := unix.MemfdCreate("caponier-instance", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making a memory image: %w", err)
	}
	err = unix.Ftruncate(fd, int64(size))
	for at := 0; err == nil && at < len(data); {
		var n int
		n, err = unix.Pwrite(fd, data[at:], int64(at))
		at += n
	}
	if err == nil {
		err = seal(fd)
	}
	i := &image{fd: fd, size: size}
	// private: many kernels before 6.7 refuse every shared mapping of what is sealed
	if err == nil && size > 0 {
		i.bytes, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("writing a memory image of %d bytes: %w", size, err)
	}
	return i, nil
}

func (i *image) Close() error {
	if i.bytes != nil {
		_ = unix.Munmap(i.bytes)
	}
	return unix.Close(i.fd)
}

const freeStep = 1 << 20 // bytes given back at a time

// memory is the linear memory of one instance: address space of its whole limit, of which only
// touched pages are real.
type memory struct {
	image   *image
	max     uint64
	used    uint64
	base    unsafe.Pointer
	refused bool // a growth was
	quota   quota

	// pages that restore copies; with entries, a buffer that one call leaves for the next
	own     []uint32
	entries []byte
}

// Allocate implements experimental.MemoryAllocator for the one memory of one instance.
func (m *memory) Allocate(_, max uint64) experimental.LinearMemory {
	m.max = min(m.max, max)
	return m
}

// Reallocate never moves the memory. nil is a refused growth; at the first call it makes wazero
// panic, which instantiation turns into an error.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.max || !m.quota.grow(size-m.used) || m.base == nil && !m.reserve() {
		m.refused = true
		return nil
	}
	m.used = size
	return unsafe.Slice((*byte)(m.base), size)
}

func (m *memory) reserve() bool {
	if m.max == 0 {
		return false
	}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(m.max), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return false
	}
	if m.base = base; !m.remap() {
		m.Free()
	}
	return m.base != nil
}

// restore brings back what the image covers. Pages that were written to are copied from the image,
// which costs a tenth of mapping it anew, with its zapping, flushing and faulting in again. It is
// mapped anew when the kernel does not tell which pages those are, and when they are so many that
// an instance that waits should not keep them.
func (m *memory) restore() bool {
	f := pagemap()
	if f == nil || m.image.size > m.max || !m.written(f) {
		return m.remap()
	}
	size := uint64(os.Getpagesize())
	for _, page := range m.own {
		at := uint64(page) * size
		copy(unsafe.Slice((*byte)(unsafe.Add(m.base, at)), size), m.image.bytes[at:at+size])
	}
	return true
}

// maxOwn is how many pages an instance that waits may keep: 1 MiB of 4 KiB each.
const maxOwn = 256

// written lists the pages of the image's range that are this instance's own and no longer the
// image's: all that were written to since it was mapped, and what the kernel moves just now, which
// may be. It reports false when they are too many, or the kernel does not tell.
func (m *memory) written(f *os.File) bool {
	// Linux, Documentation/admin-guide/mm/pagemap.rst
	const present, swapped, file = 1 << 63, 1 << 62, 1 << 61
	size := uint64(os.Getpagesize())
	if m.entries == nil {
		m.entries = make([]byte, 8*(m.image.size/size)) // pages of WebAssembly are whole pages here
	}
	if _, err := f.ReadAt(m.entries, int64(8*(uint64(uintptr(m.base))/size))); err != nil {
		return false
	}
	m.own = m.own[:0]
	for k := 0; k < len(m.entries); k += 8 {
		entry := binary.NativeEndian.Uint64(m.entries[k:])
		if entry&swapped != 0 || entry&present != 0 && entry&file == 0 {
			if m.own = append(m.own, uint32(k/8)); len(m.own) > maxOwn {
				return false
			}
		}
	}
	return true
}

// pagemap reports of each page of this process whether it is a file's; nil where it is missing, or
// does not answer as expected. Unlike most of /proc it needs no right for one's own process.
var pagemap = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	if !tells(f) {
		f.Close()
		return nil
	}
	return f
})

// tells tries it out: of three pages, the first written to and the second only read, the first
// alone must be reported as written.
func tells(f *os.File) bool {
	size := os.Getpagesize()
	i, err := newImage([]byte("image"), uint64(3*size))
	if err != nil {
		return false
	}
	defer i.Close()
	m := &memory{image: i, max: i.size}
	defer m.Free()
	view := m.Reallocate(i.size)
	if view == nil || !m.written(f) || len(m.own) > 0 {
		return false
	}
	view[0] = view[size] + 1
	return m.written(f) && slices.Equal(m.own, []uint32{0})
}

// remap replaces the part that the image covers by the image, and with it all that was written
// there.
func (m *memory) remap() bool {
	n := min(m.image.size, m.max)
	if n == 0 {
		return true
	}
	_, err := unix.MmapPtr(m.image.fd, 0, m.base, uintptr(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err == nil
}

// Free gives the memory back. Nothing may hold a view of it. It is done in pieces: one call for all
// that a bomb has touched would take the processor, and the lock on the address space, from the
// others for milliseconds.
func (m *memory) Free() {
	if m.base == nil {
		return
	}
	for at := uint64(0); at < m.used; at += freeStep {
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(m.base, at)), min(freeStep, m.used-at)),
			unix.MADV_DONTNEED)
		runtime.Gosched()
	}
	unix.MunmapPtr(m.base, uintptr(m.max))
	m.base = nil
}

// confine bounds what this process may map beyond what it has mapped already, from now on and for
// good, and lets it leave no core.
func confine(bytes uint64) error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return fmt.Errorf("/proc/self/statm: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0,
		unix.RLIMIT_AS: pages*uint64(os.Getpagesize()) + bytes}
	for what, n := range limits {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	return nil
}

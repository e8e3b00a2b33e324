//go:build !linux

package sandbox

import "github.com/tetratelabs/wazero/experimental"

// image is the memory that instances start from: each copies it.
type image struct {
	data []byte
	size uint64
}

func newImage(data []byte, size uint64) (*image, error) { return &image{data, size}, nil }

func (*image) Close() error { return nil }

// memory is the linear memory of one instance.
type memory struct {
	image   *image
	max     uint64
	used    uint64
	bytes   []byte
	refused bool // a growth was
	quota   quota
}

// Allocate implements experimental.MemoryAllocator for the one memory of one instance.
func (m *memory) Allocate(_, max uint64) experimental.LinearMemory {
	m.max = min(m.max, max)
	return m
}

// Reallocate returns nil for a refused growth.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.max || !m.quota.grow(size-m.used) {
		m.refused = true
		return nil
	}
	if m.bytes == nil {
		m.bytes = make([]byte, max(m.image.size, size))
		copy(m.bytes, m.image.data)
	}
	if size > uint64(len(m.bytes)) {
		m.bytes = append(m.bytes, make([]byte, size-uint64(len(m.bytes)))...)
	}
	m.used = size
	return m.bytes[:size]
}

// restore brings back what the image covers.
func (m *memory) restore() bool {
	clear(m.bytes[copy(m.bytes, m.image.data):])
	return true
}

// remap has nothing to do: all of the memory was copied.
func (*memory) remap() bool { return true }

// Free gives the memory back.
func (m *memory) Free() { m.bytes = nil }

// confine does nothing here: Go's own limit, which is soft, is all there is.
func confine(uint64) error { return nil }

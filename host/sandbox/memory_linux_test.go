package sandbox

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
)

// TestMemoryIsTheImageAgain writes and reads anywhere in between, and restores by copying and by
// mapping anew.
func TestMemoryIsTheImageAgain(t *testing.T) {
	random := rand.New(rand.NewChaCha8([32]byte{}))
	const size = 4 << 20
	data := make([]byte, size)
	for k := range size / 2 { // the rest is zeros, which the file does not have yet
		data[k] = byte(random.Uint32())
	}
	i, err := newImage(data[:size/2], size)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	m := &memory{image: i, max: 2 * size}
	defer m.Free()
	view := m.Reallocate(size)
	page := os.Getpagesize()
	copied, mapped := 0, 0
	for n := range 300 {
		writes := []int{0, 1, 5, 50, maxOwn / 2, 2 * maxOwn}[n%6]
		for range writes {
			view[random.IntN(size)] ^= 0xff
			_ = view[random.IntN(size)]
		}
		switch n % 7 {
		case 0:
			view[0]++
			view[size-1]++
		case 1:
			clear(view[size/2-page : size/2+page])
		}
		before := len(m.own)
		m.own = m.own[:0]
		if !m.restore() {
			t.Fatal("memory could not be restored")
		}
		if len(m.own) > maxOwn {
			mapped++
		} else if copied++; before > maxOwn && n%6 == 0 && len(m.own) > 3 {
			t.Errorf("%d pages are its own after it was mapped anew", len(m.own))
		}
		if !bytes.Equal(view, data) {
			t.Fatalf("round %d with %d writes: the memory is not the image", n, writes)
		}
	}
	if pagemap() == nil {
		t.Log(
			"the kernel does not tell which pages were written to: memory was mapped each time")
	} else if copied < 100 || mapped < 40 {
		t.Errorf("it was copied %d times and mapped anew %d times, so that this shows little",
			copied, mapped)
	}
	if !bytes.Equal(i.bytes, data) {
		t.Error("the image has changed")
	}
}

// TestNoMappingOfAnImageIsShared is for Linux 5.10, which refuses shared ones, so that no plugin
// would run.
func TestNoMappingOfAnImageIsShared(t *testing.T) {
	i, err := newImage([]byte("image"), meter.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		untold(t)
	}
	found := 0
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:caponier-instance") {
			if found++; strings.Fields(line)[1][3] != 'p' {
				t.Error("a mapping is shared: ", line)
			}
		}
	}
	if found == 0 {
		t.Error("the image is not mapped")
	}
}

// TestNoPrincipalSeesWhichPagesAnotherWroteTo closes a side channel: an instance can time its own
// writes.
func TestNoPrincipalSeesWhichPagesAnotherWroteTo(t *testing.T) {
	var writes []byte
	for page := int64(1); page < 64; page++ {
		writes = op(writes, c32(page*4096), c32(7), 0x36, 2, 0)
	}
	h := newHost(t, Options{Warm: 1})
	tool := h.add(
		module{
			memory: []byte{1, 1, 4, 4}, imports: []imported{output}, call: op(writes, ok()),
		}.bytes(),
	)
	p := h.plugin(tool)
	h.ready(tool)
	for _, c := range []struct {
		before, now string
		kept        bool
	}{{"a", "a", true}, {"a", "b", false}, {"b", "b", true}, {"b", "a", false}} {
		want(t, h.callAs(c.before, tool), "")
		soon(t, "an instance waits", func() bool { return len(p.warm) == 1 })
		in, err := p.take(t.Context(), c.now)
		if err != nil || !in.memory.written(pagemap()) {
			t.Fatal("the pages of an instance cannot be told: ", err)
		}
		if kept := len(in.memory.own) > 10; kept != c.kept || !c.kept && len(in.memory.own) > 0 {
			t.Errorf("%d pages of a call of %s are there in one of %s", len(in.memory.own),
				c.before, c.now)
		}
		p.giveBack(in, true)
	}
}

// TestAPagemapThatDoesNotTellIsNotUsed uses a file of zeros, as an emulated /proc may have: it
// would say that nothing was ever written.
func TestAPagemapThatDoesNotTellIsNotUsed(t *testing.T) {
	for name, path := range map[string]string{
		"zeros": "/dev/zero", "nothing": "/dev/null", "something else": "/proc/self/exe",
	} {
		f, err := os.Open(path)
		if err != nil {
			untold(t)
		}
		if tells(f) {
			t.Errorf("%s is taken for a pagemap", name)
		}
		f.Close()
	}
}

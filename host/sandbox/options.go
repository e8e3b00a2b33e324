package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
)

// Options of a Sandbox. A zero field means its default.
type Options struct {
	// Bytes of memory of one instance, rounded down to 64 KiB; 64 MiB. The instances of one
	// principal together may grow by four times as much.
	MemoryMax int64 `koanf:"memory_max"`
	// Directory of compiled plugins, which is native code: it must belong to this user alone.
	// Empty keeps none.
	CacheDir string `koanf:"cache_dir" path:"true"`
	// Instances kept ready for each plugin; 2, negative for none.
	Warm int `koanf:"-"`
	// Calls that run at once, and half as many of one plugin. A principal may have half of either.
	// Others wait. 32
	MaxInstances int `koanf:"-"`

	MaxOutput    int           `koanf:"-"` // bytes of output of a call; 16 MiB
	StartTimeout time.Duration `koanf:"-"` // that a plugin's own start may compute or sleep; 5s
	RetryAfter   time.Duration `koanf:"-"` // to the next try of a failed start, then doubled; 1s
	BreakAfter   int           `koanf:"-"` // broken calls in a row; see breaker. 10
	BreakFor     time.Duration `koanf:"-"` // 30s
	Log          *slog.Logger  `koanf:"-"` // slog.Default()

	// Said returns what is shown in place of what a module writes beside its output: progress, log
	// lines, its standard error. Nil: the text itself.
	Said func(context.Context, string) string `koanf:"-"`

	// Called before each compilation; the function that it returns is called after it. Compilations
	// do not overlap. Nil for none.
	Compiling func() (done func()) `koanf:"-"`
}

const maxMemory = 4<<30 - meter.PageSize // one page more, and wazero would give its size as 0

// Validate reports the first option that cannot be used.
func (o Options) Validate() error {
	if o.MemoryMax != 0 && (o.MemoryMax < meter.PageSize || o.MemoryMax > maxMemory) {
		return fmt.Errorf("sandbox.memory_max: %d bytes; set it to 65536 to %d",
			o.MemoryMax, int64(maxMemory))
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MemoryMax = cmp.Or(o.MemoryMax, 64<<20) / meter.PageSize * meter.PageSize
	o.Warm = max(cmp.Or(o.Warm, 2), 0)
	o.MaxInstances = cmp.Or(o.MaxInstances, 32)
	o.MaxOutput = cmp.Or(o.MaxOutput, 16<<20)
	o.StartTimeout = cmp.Or(o.StartTimeout, 5*time.Second)
	o.RetryAfter = cmp.Or(o.RetryAfter, time.Second)
	o.BreakAfter = cmp.Or(o.BreakAfter, 10)
	o.BreakFor = cmp.Or(o.BreakFor, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}

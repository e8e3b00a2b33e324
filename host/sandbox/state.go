package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// Sandbox runs the plugins that were added to it. It is safe for concurrent use.
type Sandbox struct {
	o      Options
	rt     wazero.Runtime
	cache  *cache // nil without CacheDir
	env    environment
	slots  *fair.Shares // one for each call that runs
	memory *fair.Shares // pages by which instances have grown
	work   sync.WaitGroup
	// ends with Close: the only use of a stored context is to stop what Add began
	ctx  context.Context
	stop context.CancelFunc

	compiling sync.Mutex // held by the one that compiles

	mu        sync.Mutex // guards the following, and wanted and queued of each plugin
	closed    bool
	plugins   map[string]*plugin // by digest
	preparing int                // how many plugins
	changed   *sync.Cond         // on mu: preparing or what is wanted has changed
}

// plugin is a module in service: its template, the instances that are ready, and how it fared.
type plugin struct {
	terms.Plugin
	imports []string // operations that are granted
	s       *Sandbox
	size    int // bytes of the module, or 0 before it was opened
	log     *moduleLog
	warm    chan *instance
	share   *fair.Shares // one slot for each call that has an instance, or waits for one of all
	breaker breaker
	filling sync.Mutex     // held by the one that makes instances ahead
	users   sync.WaitGroup // calls, and what they and Add began

	wanted, queued bool // a call waits for it; it waits to be prepared: guarded by s.mu

	mu    sync.Mutex    // guards the following
	first func()        // prepares it; nil when that has begun
	tried chan struct{} // closed when the attempt to prepare or start it has ended
	tmpl  *template     // nil until a start succeeded
	err   error         // of the last attempt
	// what a failed start is tried again with; nil when that is no use, or not needed
	source *source
	fails  int
	again  time.Time // no earlier
}

var errClosed = errors.New("the sandbox is closed")

// ErrPreparing is the state of a plugin that is being compiled or started.
var ErrPreparing = errors.New("the plugin is being compiled or started")

// compile compiles a rewritten module, or finds it in the cache. announce is called before a
// compilation, which takes up to some seconds.
func (s *Sandbox) compile(
	ctx context.Context, rewritten []byte, announce func(),
) (wazero.CompiledModule, error) {
	f := func() (wazero.CompiledModule, error) {
		return s.rt.CompileModule(experimental.WithCompilationWorkers(ctx, 2), rewritten)
	}
	key := ""
	if s.cache != nil {
		key = fmt.Sprintf("%x", sha256.Sum256(rewritten))
		if compiled := s.cache.load(key, f); compiled != nil {
			return compiled, nil
		}
	}
	s.compiling.Lock()
	defer s.compiling.Unlock()
	announce()
	if s.o.Compiling != nil {
		defer s.o.Compiling()()
	}
	compiled, err := f()
	if err != nil {
		return nil, fmt.Errorf("compiling the module: %w", err)
	}
	if s.cache != nil {
		s.cache.store(key)
	}
	return compiled, nil
}

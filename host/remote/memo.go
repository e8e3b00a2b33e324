package remote

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	memoEntries = 64
	memoBytes   = 256 << 10 // the largest answer that is kept
)

// memo answers the repeat of a green command by the same principal for a short while. Every
// operation above green empties it, when it starts and when it ends: what was read before a change
// must not be taken for what is there after it.
type memo struct {
	ttl time.Duration

	mu    sync.Mutex // guards the following
	epoch int
	seen  map[string]remembered
}

type remembered struct {
	result gate.Result
	until  time.Time
}

// key is empty for what may not be remembered.
func (m *memo) key(q gate.Question, d gate.Decision, op abi.SSHExec, limit int64) string {
	if m.ttl <= 0 || !d.Allow || d.Tier != gate.Green || op.Stdin != "" || op.StdinB64 != "" ||
		q.Call == nil ||
		q.Call.Principal.ID == "" {
		return ""
	}
	return strings.Join(
		[]string{q.Call.Principal.ID, op.Node, strconv.FormatInt(limit, 10), q.Cmd.Rendered},
		"\x00",
	)
}

// get returns the epoch with which to put the answer if there is none yet.
func (m *memo) get(key string, now time.Time) (gate.Result, int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, is := m.seen[key]
	return r.result, m.epoch, is && key != "" && now.Before(r.until)
}

// put keeps a complete, successful answer, unless something above green began after epoch.
func (m *memo) put(key string, epoch int, e ended, r gate.Result, asked time.Time) {
	if key == "" || e.exit != 0 || e.truncated || r.Bytes > memoBytes {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.epoch != epoch {
		return
	}
	if len(m.seen) >= memoEntries {
		clear(m.seen)
	}
	m.seen[key] = remembered{r, asked.Add(m.ttl)} // its age counts from before the node was asked
}

func (m *memo) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	clear(m.seen)
}

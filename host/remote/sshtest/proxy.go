package sshtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Weather is what a Proxy does to the bytes that pass.
type Weather struct {
	Latency   time.Duration // added to each chunk, in both directions
	CutAfter  int64         // bytes of both directions of one connection, then it is reset; 0 never
	BlackHole bool          // takes bytes and passes none on
	Rate      int64         // bytes a second, 0 for no limit
}

// Proxy is a TCP connection to a target that can be made to fail.
type Proxy struct {
	Addr   string
	Bytes  atomic.Int64 // passed on
	target string

	listener net.Listener
	wg       sync.WaitGroup
	done     chan struct{}
	once     sync.Once

	mu      sync.Mutex // guards the following
	weather Weather
	conns   map[net.Conn]bool
}

// NewProxy starts a proxy, which the test's cleanup stops.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr:     l.Addr().String(),
		target:   target,
		listener: l,
		done:     make(chan struct{}),
		conns:    map[net.Conn]bool{},
	}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(p.Close)
	return p
}

// Set changes the weather of connections that are up, too.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
}

func (p *Proxy) now() Weather {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather
}

// Reset resets all connections.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// Close stops the proxy and waits. It may be called more than once.
func (p *Proxy) Close() {
	p.once.Do(func() { close(p.done) })
	p.listener.Close()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) serve(in net.Conn) {
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	p.conns[in], p.conns[out] = true, true
	p.mu.Unlock()
	defer func() {
		in.Close()
		out.Close()
		p.mu.Lock()
		delete(p.conns, in)
		delete(p.conns, out)
		p.mu.Unlock()
	}()
	var passed atomic.Int64
	var both sync.WaitGroup
	reset := func() {
		for _, c := range []net.Conn{in, out} {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}
	pump := func(to, from net.Conn) {
		defer reset()
		buf := make([]byte, 16<<10)
		for {
			k, err := from.Read(buf)
			w := p.now()
			if err != nil {
				return
			}
			if w.BlackHole {
				continue
			}
			if w.Rate > 0 {
				p.sleep(time.Duration(k) * time.Second / time.Duration(w.Rate))
			}
			p.sleep(w.Latency)
			if w.CutAfter > 0 && passed.Add(int64(k)) > w.CutAfter {
				return
			}
			p.Bytes.Add(int64(k))
			if _, err := to.Write(buf[:k]); err != nil {
				return
			}
		}
	}
	both.Go(func() { pump(out, in) })
	both.Go(func() { pump(in, out) })
	both.Wait()
}

func (p *Proxy) sleep(d time.Duration) {
	if d > 0 {
		select {
		case <-p.done:
		case <-time.After(d):
		}
	}
}

package pgtest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a program and a server. It delays, hangs or cuts.
type Proxy struct {
	Port string

	mu    sync.Mutex // guards the following
	delay time.Duration
	hang  chan struct{} // closed when nothing hangs
	cut   bool
	conns map[net.Conn]bool
	trips int
}

// exchange is one connection of a client to the server.
type exchange struct{ asked bool } // the client spoke last

// NewProxy starts a proxy before a port of the loopback.
func NewProxy(t testing.TB, port string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := net.SplitHostPort(l.Addr().String())
	p := &Proxy{Port: at, conns: map[net.Conn]bool{}, hang: make(chan struct{})}
	close(p.hang)
	t.Cleanup(func() { l.Close(); p.Hang(false); p.Cut(true) })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			cut := p.cut
			p.mu.Unlock()
			out, err := net.Dial("tcp", "127.0.0.1:"+port)
			if cut || err != nil {
				in.Close()
				if err == nil {
					out.Close()
				}
				continue
			}
			p.mu.Lock()
			p.conns[in], p.conns[out] = true, true
			p.mu.Unlock()
			x := &exchange{}
			go p.copy(out, in, x, true)
			go p.copy(in, out, x, false)
		}
	}()
	return p
}

// copy copies each piece when its time has come: a delay is one for pieces that follow closely.
func (p *Proxy) copy(to, from net.Conn, x *exchange, delayed bool) {
	type piece struct {
		data []byte
		at   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer to.Close()
		for v := range pieces {
			p.mu.Lock()
			delay, hang := p.delay, p.hang
			p.mu.Unlock()
			if delayed {
				time.Sleep(time.Until(v.at.Add(delay)))
			}
			<-hang
			if _, err := to.Write(v.data); err != nil {
				from.Close()
			}
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			if delayed && !x.asked {
				p.trips++
			}
			x.asked = delayed
			p.mu.Unlock()
			pieces <- piece{b[:n], time.Now()}
		}
		if err != nil {
			if err != io.EOF {
				to.Close()
			}
			return
		}
	}
}

// Delay adds a time to each round trip.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Trips counts round trips: how often a client spoke first or after the server.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Hang keeps what is sent, until it is called with false.
func (p *Proxy) Hang(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.hang:
		if on {
			p.hang = make(chan struct{})
		}
	default:
		if !on {
			close(p.hang)
		}
	}
}

// Cut closes all connections, and new ones until it is called with false.
func (p *Proxy) Cut(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = on
	for c := range p.conns {
		if on {
			c.Close()
			delete(p.conns, c)
		}
	}
}

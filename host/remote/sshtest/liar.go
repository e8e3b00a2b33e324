package sshtest

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/pkg/sftp"
)

// Packet is one SFTP packet. Body is what follows the request id.
type Packet struct {
	Kind byte
	ID   uint32
	Body []byte
}

// Frame returns the packet as it is sent.
func (p Packet) Frame() []byte {
	return Raw(p.Kind, append(numbered(p.ID), p.Body...))
}

// Liar serves the real file system over SFTP, and lies. It is a server of the tests' own: it reads
// and writes what the test's user may. The functions are called for one packet at a time.
type Liar struct {
	// Hide answers a request that the real server then never sees; nil lets the request pass.
	Hide func(request Packet) []byte
	// Lie returns what is sent instead of the truth, nil for nothing at all.
	Lie func(request Packet, truth []byte) []byte
	// Seen is called with each request, before the server gets it.
	Seen func(request Packet)
}

type ends struct {
	io.Reader
	io.WriteCloser
}

// Serve speaks until the client ends.
func (l Liar) Serve(rw io.ReadWriteCloser) {
	rw = &oneWriter{ReadWriteCloser: rw}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	server, err := sftp.NewServer(ends{toServer, fromServer})
	if err != nil {
		rw.Close()
		return
	}
	served := make(chan struct{})
	go func() {
		server.Serve()
		server.Close()
		toServer.Close()
		fromServer.Close()
		close(served)
	}()
	requests := make(chan Packet, 4096) // that the server has, for the answers
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		defer rw.Close()
		defer toClient.Close()
		l.answers(rw, toClient, requests)
	}()
	l.requests(rw, fromClient, requests)
	fromClient.Close()
	toClient.Close()
	<-served
	close(requests)
	<-answered
}

// oneWriter lets one goroutine write at a time.
type oneWriter struct {
	io.ReadWriteCloser
	mu sync.Mutex
}

func (w *oneWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ReadWriteCloser.Write(b)
}

// answers passes on what the server answers, or the lie about it.
func (l Liar) answers(client io.Writer, server io.Reader, requests <-chan Packet) {
	open := map[uint32]Packet{}
	for {
		frame, p, err := readPacket(server)
		if err != nil {
			return
		}
		if p.Kind != Version {
			for _, known := open[p.ID]; !known; _, known = open[p.ID] {
				q := <-requests
				open[q.ID] = q
			}
			if q := open[p.ID]; l.Lie != nil {
				frame = l.Lie(q, frame)
			}
			delete(open, p.ID)
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
}

// requests passes on what the client asks, except what is hidden from the server.
func (l Liar) requests(client io.ReadWriter, server io.Writer, requests chan<- Packet) {
	for {
		frame, p, err := readPacket(client)
		if err != nil {
			return
		}
		if p.Kind != Init {
			if l.Seen != nil {
				l.Seen(p)
			}
			if l.Hide != nil {
				if answer := l.Hide(p); answer != nil {
					if _, err := client.Write(answer); err != nil {
						return
					}
					continue
				}
			}
			requests <- p
		}
		if _, err := server.Write(frame); err != nil {
			return
		}
	}
}

func readPacket(r io.Reader) (frame []byte, p Packet, err error) {
	frame = make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, p, err
	}
	size := binary.BigEndian.Uint32(frame)
	if size < 5 || size > 1<<20 {
		return nil, p, io.ErrUnexpectedEOF
	}
	frame = append(frame, make([]byte, size)...)
	if _, err := io.ReadFull(r, frame[4:]); err != nil {
		return nil, p, err
	}
	return frame, Packet{frame[4], binary.BigEndian.Uint32(frame[5:]), frame[9:]}, nil
}

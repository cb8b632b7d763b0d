//go:build api

package main

import (
	"io"
	"net"
	"sync"
	"testing"
)

// line is a TCP connection to the API server that can be cut and mended.
type line struct {
	to  string
	on  net.Listener
	all sync.WaitGroup

	mutex sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newLine(t *testing.T, to string) *line {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{to: to, on: on, conns: map[net.Conn]bool{}}
	l.all.Go(l.accept)
	t.Cleanup(func() {
		_ = on.Close()
		l.set(true)
		l.all.Wait()
	})
	return l
}

func (l *line) address() string { return l.on.Addr().String() }

func (l *line) accept() {
	for {
		near, err := l.on.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil || !l.keep(near, far) {
			_ = near.Close()
			if err == nil {
				_ = far.Close()
			}
			continue
		}
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			l.all.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}

// keep notes connections, unless the line is cut.
func (l *line) keep(conns ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, c := range conns {
		l.conns[c] = true
	}
	return !l.cut
}

// set cuts the line, with all connections on it, or mends it.
func (l *line) set(cut bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.cut = cut
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

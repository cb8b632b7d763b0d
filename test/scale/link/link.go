// Package link is the network between programs and an API server: it can be slow, and
// it can be cut. What it carries stays encrypted end to end.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// block is the most that is carried at once, waiting how many blocks may be on
	// their way in one direction.
	block   = 32 << 10
	waiting = 256
)

// Link carries TCP connections to one address.
type Link struct {
	to       string
	listener net.Listener
	delay    atomic.Int64

	mu   sync.Mutex
	open map[net.Conn]bool
	done sync.WaitGroup
}

// Start begins to carry connections to an address. Close must be called.
func Start(ctx context.Context, to string) (*Link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("make a link to %s: %w", to, err)
	}
	l := &Link{to: to, listener: listener, open: map[net.Conn]bool{}}
	l.done.Go(l.accept)
	return l, nil
}

// Address is where the link begins.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Delay makes all that is carried from now on take so long in each direction.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Cut ends all connections that are open, and returns how many these were. New ones
// are carried.
func (l *Link) Cut() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Close()
	}
	return len(l.open) / 2 // each has two ends
}

// Close ends the link and all that it carries.
func (l *Link) Close() {
	l.listener.Close()
	for {
		l.Cut()
		ended := make(chan struct{})
		go func() { l.done.Wait(); close(ended) }()
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond): // one came to be meanwhile
		}
	}
}

func (l *Link) accept() {
	for {
		from, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		l.done.Go(func() { l.carry(from) })
	}
}

// carry carries one connection until an end of it is closed.
func (l *Link) carry(from net.Conn) {
	to, err := net.Dial("tcp", l.to)
	if err != nil {
		from.Close()
		return
	}
	l.note(true, from, to)
	defer l.note(false, from, to)
	var both sync.WaitGroup
	both.Go(func() { l.pump(to, from) })
	both.Go(func() { l.pump(from, to) })
	both.Wait()
}

func (l *Link) note(open bool, conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if open {
			l.open[c] = true
		} else {
			delete(l.open, c)
		}
	}
}

// pump carries one direction. Both ends are closed when it is over.
func (l *Link) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	type part struct {
		due  time.Time
		text []byte
	}
	parts := make(chan part, waiting)
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.text); err != nil {
				from.Close() // nothing more is read
			}
		}
	})
	for {
		text := make([]byte, block)
		n, err := from.Read(text)
		if n > 0 {
			parts <- part{time.Now().Add(time.Duration(l.delay.Load())), text[:n]}
		}
		if err != nil && !errors.Is(err, io.ErrShortBuffer) {
			break
		}
	}
	close(parts)
	writing.Wait()
}

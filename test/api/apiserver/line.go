package apiserver

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
)

// Line is a way to an API server that can be cut and mended.
type Line struct {
	to  string
	on  net.Listener
	all sync.WaitGroup

	mutex sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// NewLine is a way to this one, until the test ends.
func (o *One) NewLine() *Line {
	o.t.Helper()
	server, err := url.Parse(o.Config.Host)
	o.must(err)
	on, err := net.Listen("tcp", "127.0.0.1:0")
	o.must(err)
	l := &Line{to: server.Host, on: on, conns: map[net.Conn]bool{}}
	l.all.Go(l.accept)
	o.t.Cleanup(func() {
		_ = on.Close()
		l.Cut()
		l.all.Wait()
	})
	return l
}

// KubeconfigOver is Kubeconfig of one that is there by that way.
func (o *One) KubeconfigOver(l *Line, account string) string {
	o.t.Helper()
	path := o.Kubeconfig(account)
	config, err := os.ReadFile(path)
	o.must(err)
	over := bytes.ReplaceAll(config, []byte(l.to), []byte(l.on.Addr().String()))
	if bytes.Equal(over, config) {
		o.t.Fatalf("the kubeconfig does not lead to %s", l.to)
	}
	o.must(os.WriteFile(path, over, 0o600))
	return path
}

// Cut ends all connections, and lets none come.
func (l *Line) Cut() { l.set(true) }

// Mend lets connections come again.
func (l *Line) Mend() { l.set(false) }

func (l *Line) accept() {
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
func (l *Line) keep(conns ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, c := range conns {
		l.conns[c] = true
	}
	return !l.cut
}

func (l *Line) set(cut bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.cut = cut
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

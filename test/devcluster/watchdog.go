package devcluster

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/reference/softdog"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// Watchdog stands in for the watchdog of a machine. It is outside that machine, as
// hardware is: it runs on while everything in there stands still. In place of a
// reset the machine is powered off, and stays so.
type Watchdog struct {
	// Path is its device, a unix socket that has the same path in every machine.
	Path string
	// Fired is closed when the machine is off by it.
	Fired <-chan struct{}

	end func()
}

// Watchdog gives a machine a watchdog for as long as this process lives, or until
// Stop. It does nothing before it is opened.
func (c *Cluster) Watchdog(ctx context.Context, machine string, failed func(error)) (*Watchdog, error) {
	path := filepath.Join(layout.StateDir, "watchdog-"+machine+".sock")
	listener, err := unixsocket.Listen(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fired, ended := make(chan struct{}), make(chan struct{})
	told := sync.OnceFunc(func() { close(fired) })
	dog := &softdog.Server{Reset: func() {
		if err := c.PowerOff(ctx, machine); err != nil {
			failed(err)
		}
		told()
	}}
	go func() {
		defer close(ended)
		dog.Serve(ctx, listener)
	}()
	return &Watchdog{Path: path, Fired: fired, end: func() { cancel(); <-ended }}, nil
}

// Stop takes the watchdog away, whether it runs or not.
func (w *Watchdog) Stop() { w.end() }

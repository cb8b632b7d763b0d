package hostprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/internal/listen"
)

const (
	// maxPeers bounds the connections: there is one DPU, which may come
	// again before its old connection is known to be dead.
	maxPeers = 8
	// idle ends a connection of a DPU that has gone.
	idle = 30 * time.Second
	// listenRetry is how soon a link that is not there yet is tried again.
	listenRetry = time.Second
)

// Serve is the host's end: it listens on address and sends every beat back,
// which proves that user space runs, and tells probed of each. It returns when ctx ends. An address that
// cannot be used yet, since the link is not up, is tried again and again, and so is one whose
// interface has been made anew.
func Serve(ctx context.Context, address string, probed func()) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("listen for the DPU on %q: give address:port: %w", address, err)
	}
	log := ctrl.LoggerFrom(ctx)
	for told := false; ctx.Err() == nil; told = true {
		err := serveOnce(ctx, address, probed)
		if err == nil {
			continue
		}
		if !told {
			log.Info("cannot listen for the DPU yet; trying again", "address", address, "reason", err.Error())
		}
		timer := time.NewTimer(listenRetry)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// serveOnce is Serve until the listener fails, or its interface is made anew; an error if there is
// none yet.
func serveOnce(ctx context.Context, address string, probed func()) error {
	now, err := numbered(address)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", now)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := whileNumbered(ctx, address, now)
	defer cancel()
	ServeOn(ctx, listener, probed)
	return nil
}

// ServeOn is Serve on a listener, which it closes. It returns when ctx ends, or
// when the listener fails.
func ServeOn(ctx context.Context, listener net.Listener, probed func()) {
	var peers sync.WaitGroup
	defer peers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer listen.CloseWith(ctx, listener)()
	slots := make(chan struct{}, maxPeers)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				ctrl.LoggerFrom(ctx).Error(err, "accept the DPU's connection")
			}
			return
		}
		select {
		case slots <- struct{}{}:
			peers.Go(func() {
				defer func() { <-slots }()
				echo(ctx, conn, probed)
			})
		default:
			_ = conn.Close()
		}
	}
}

// echo sends beats back until the peer goes.
func echo(ctx context.Context, conn net.Conn, probed func()) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var b [beatSize]byte
	for {
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return
		}
		probed()
		if _, err := conn.Write(b[:]); err != nil {
			return
		}
	}
}

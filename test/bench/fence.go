package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/kit"
)

// fence measures the call that takes a namespace from its host while the host
// writes to it: from the call to the answer, after which no write may succeed.
func (b *bench) fence(ctx context.Context) error {
	runs := 1 + b.options.times(20)
	volumes, err := b.create(ctx, runs, plain())
	if err != nil {
		return err
	}
	took := b.series("fence.rpc", results.Millis, results.Median)
	for i, v := range volumes {
		node := b.turn(i)
		d, err := b.fenceOne(ctx, v, node)
		if err != nil {
			return err
		}
		if i > 0 {
			took.add(millis(d))
		}
		if err := b.detach(ctx, v, node); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) fenceOne(ctx context.Context, v volume, node int) (time.Duration, error) {
	dev, err := b.attach(ctx, v, node)
	if err != nil {
		return 0, err
	}
	dpu := b.bed.DPUs()[node]
	snap := kit.SNAP(dpu)
	controller, err := controllerAt(ctx, snap, dev)
	if err != nil {
		return 0, fmt.Errorf("find the controller of %s on %s: %w", v.id, dpu, err)
	}
	w, err := startWriter(ctx, dev.block.Path)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = snap.NvmeControllerDetachNS(ctx, controller, dev.block.NamespaceID)
	end := time.Now()
	last := w.stop()
	if err != nil {
		return 0, fmt.Errorf("detach the namespace of %s on %s: %w", v.id, dpu, err)
	}
	if last.After(end) {
		b.checked(1, 0)
		return 0, fmt.Errorf("a write to %s, begun %s after the namespace was detached, was accepted: this must never happen", v.id, last.Sub(end))
	}
	b.checked(0, 0)
	return end.Sub(begin), nil
}

// controllerAt is the controller of the function that the host sees at the
// device's address.
func controllerAt(ctx context.Context, snap *snaprpc.Client, dev device) (string, error) {
	functions, err := snap.EmulationFunctionList(ctx)
	if err != nil {
		return "", err
	}
	for len(functions) > 0 {
		f := functions[0]
		functions = append(functions[1:], f.VFs...)
		// SNAP gives no domain, and no address to what is not plugged yet.
		address, err := hostdev.NormalizeAddress(f.PCIBDF)
		if err == nil && address == dev.block.Address && f.CtrlID != "" {
			return f.CtrlID, nil
		}
	}
	return "", fmt.Errorf("no function at %s has one", dev.block.Address)
}

// sector is what is written at once: a multiple of any device's block.
const sector = 4096

// writer writes to a device, past the page cache, until a write fails.
type writer struct {
	file *os.File
	// accepted is when the last write that succeeded was begun, in
	// nanoseconds since begin.
	accepted atomic.Int64
	begin    time.Time
	quit     chan struct{}
	done     chan struct{}
}

// startWriter returns when the first write has succeeded.
func startWriter(ctx context.Context, path string) (*writer, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT|os.O_SYNC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the device to write to it: %w", err)
	}
	w := &writer{file: file, begin: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	started := make(chan error, 1)
	go w.run(started)
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		w.stop()
		return nil, fmt.Errorf("write to %s: %w", path, err)
	}
	return w, nil
}

func (w *writer) run(started chan<- error) {
	defer close(w.done)
	block := aligned(sector)
	for i := int64(0); ; i++ {
		select {
		case <-w.quit:
			return
		default:
		}
		at := time.Since(w.begin)
		_, err := w.file.WriteAt(block, i%256*sector)
		if i == 0 {
			started <- err
		}
		if err != nil {
			return
		}
		w.accepted.Store(int64(at))
	}
}

// stop ends the writer, once it has had the time to try in vain, and returns
// when its last accepted write was begun.
func (w *writer) stop() time.Time {
	select {
	case <-w.done:
	case <-time.After(100 * time.Millisecond):
	}
	close(w.quit)
	<-w.done
	_ = w.file.Close()
	return w.begin.Add(time.Duration(w.accepted.Load()))
}

// aligned are n bytes at an address that direct I/O takes.
func aligned(n int) []byte {
	block := make([]byte, n+sector)
	offset := -int(uintptr(unsafe.Pointer(&block[0]))) & (sector - 1)
	return block[offset : offset+n]
}

package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
)

// Path is the data path of a service over a Server.
type Path struct {
	control *rpc.Client
	data    net.Conn
	served  chan struct{}

	// doing is held for reading by each operation.
	doing sync.RWMutex

	mu       sync.Mutex
	backings map[Key]datapath.Backing
}

var _ datapath.Keeper = (*Path)(nil)

const (
	// openPatience is how long Open waits for a server that has not begun.
	openPatience = 30 * time.Second
	openEvery    = 20 * time.Millisecond
)

// Open connects to the server on a socket, and waits for one that has not begun: a DPU starts
// both together. Devices that an earlier service has left wait until they are adopted.
func Open(ctx context.Context, socket string) (*Path, error) {
	p := &Path{served: make(chan struct{}), backings: map[Key]datapath.Backing{}}
	r := rpc.NewServer()
	if err := r.RegisterName("Service", &service{p}); err != nil {
		return nil, err
	}
	conn, err := await(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the functions: %w", err)
	}
	if err := greet(conn, data, true); err != nil {
		return nil, fmt.Errorf("greet the functions on %s: %w", socket, errors.Join(err, conn.Close()))
	}
	var dialer net.Dialer
	calls, err := dialer.DialContext(ctx, "unix", socket)
	if err == nil {
		err = greet(calls, control, false)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the functions: %w", errors.Join(err, conn.Close()))
	}
	p.data, p.control = conn, rpc.NewClient(calls)
	go func() {
		defer close(p.served)
		r.ServeConn(conn)
	}()
	return p, nil
}

// await connects to a socket as soon as it is served.
func await(ctx context.Context, socket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	tick := time.NewTicker(openEvery)
	defer tick.Stop()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

// greet says which connection this is, and waits until the server knows.
func greet(conn net.Conn, kind byte, answered bool) error {
	if _, err := conn.Write([]byte{kind}); err != nil || !answered {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// Close ends the service's part; its devices wait for the next.
func (p *Path) Close() error {
	err := errors.Join(p.control.Close(), p.data.Close())
	<-p.served
	return err
}

// Attach implements datapath.DataPath.
func (p *Path) Attach(_ context.Context, t datapath.Target) (datapath.Device, error) {
	d := &attached{path: p, key: Key{Function: t.Function, NSID: t.NSID}}
	p.set(d.key, t.Backing)
	ask := &Attach{Key: d.key, Name: t.Name, File: t.File, Size: t.Size, ReadOnly: t.ReadOnly}
	if err := p.control.Call("Functions.Attach", ask, &d.number); err != nil {
		p.set(d.key, nil)
		return nil, err
	}
	return d, nil
}

// Kept implements datapath.Keeper.
func (p *Path) Kept() ([]datapath.Kept, error) {
	var keys []Key
	if err := p.control.Call("Functions.Kept", &None{}, &keys); err != nil {
		return nil, err
	}
	var out []datapath.Kept
	for _, key := range keys {
		out = append(out, datapath.Kept{Function: key.Function, NSID: key.NSID, Device: &attached{path: p, key: key}})
	}
	return out, nil
}

func (p *Path) backing(key Key) datapath.Backing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backings[key]
}

func (p *Path) set(key Key, b datapath.Backing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backings[key] = b; b == nil {
		delete(p.backings, key)
	}
}

// attached is a device at the server.
type attached struct {
	path   *Path
	key    Key
	number string
}

func (d *attached) call(what string, c Change) error {
	c.Key = d.key
	return d.path.control.Call("Functions."+what, &c, &None{})
}

// Adopt has the device served by the backing, that first which waits.
func (d *attached) Adopt(b datapath.Backing) error {
	d.path.set(d.key, b)
	return d.path.control.Call("Functions.Adopt", &d.key, &d.number)
}

// Node implements datapath.Device.
func (d *attached) Node(path string) error { return d.call("Node", Change{Path: path}) }

// Number implements datapath.Device.
func (d *attached) Number() string { return d.number }

// Pause implements datapath.Device.
func (d *attached) Pause(paused bool) { _ = d.call("Pause", Change{Paused: paused}) } // else it is gone

// Resize implements datapath.Device.
func (d *attached) Resize(bytes int64) error { return d.call("Resize", Change{Bytes: bytes}) }

// Fence implements datapath.Device. If the server does not confirm it, no operation is served
// here any more, and those that were begun have ended.
func (d *attached) Fence() {
	if d.call("Fence", Change{}) == nil {
		return
	}
	d.path.doing.Lock() // when none is under way
	defer d.path.doing.Unlock()
	d.path.set(d.key, nil)
}

// Detach implements datapath.Device.
func (d *attached) Detach() error {
	defer d.path.set(d.key, nil)
	return d.call("Detach", Change{})
}

package blocktarget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/reference/blocktarget/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rights are Grants in memory, for volumes that are files of one directory.
type rights struct {
	mu     sync.Mutex
	dir    string
	tokens map[[2]string]string
	ro     map[[2]string]bool
	limits admission.Limits
	fenced map[string]int64
	broken error
}

func (r *rights) Grant(volume, node string) (Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return Grant{}, r.broken
	}
	token, ok := r.tokens[[2]string{volume, node}]
	if !ok {
		return Grant{}, fmt.Errorf("%s has no right to volume %s: %w", node, volume, ErrDenied)
	}
	return Grant{File: filepath.Join(r.dir, volume+".img"), TokenHash: HashToken(token), ReadOnly: r.ro[[2]string{volume, node}], Limits: r.limits, Fenced: r.fenced[volume]}, nil
}

// give grants, and returns the name of the export.
func (r *rights) give(volume, node, token string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[[2]string{volume, node}] = token
	return Export{Volume: volume, Node: node, Token: token}.String()
}

// fence says that the epochs below one are over, as the record of a volume does.
func (r *rights) fence(volume string, epoch int64) {
	r.set(func(r *rights) {
		if r.fenced == nil {
			r.fenced = map[string]int64{}
		}
		r.fenced[volume] = max(r.fenced[volume], epoch)
	})
}

func (r *rights) take(volume, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tokens, [2]string{volume, node})
}

func (r *rights) set(change func(*rights)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// log is a Recorder in memory.
type log struct {
	mu     sync.Mutex
	writes []string // who wrote, in order
	reads  []string // and who read
	// stuck, if set, holds every write up in the medium until it is closed.
	stuck chan struct{}
	held  int
}

func (l *log) Append(node string, _, _ int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stuck := l.stuck; stuck != nil {
		l.held++
		l.mu.Unlock()
		<-stuck
		l.mu.Lock()
		l.held--
	}
	l.writes = append(l.writes, node)
	return nil
}

func (l *log) Read(node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads = append(l.reads, node)
	return nil
}

// stick makes the medium hold writes up, until free is called.
func (l *log) stick() (free func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stuck := make(chan struct{})
	l.stuck = stuck
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stuck = nil
		close(stuck)
	})
}

func (l *log) holds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

func (l *log) Close() error { return nil }

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.writes...)
}

// bench is a server with one volume "v" and whatever a test adds.
type bench struct {
	*Server
	t       *testing.T
	rights  *rights
	log     *log
	address string
	max     int
	stop    func()
}

const volumeSize = 16 << 20

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, rights: &rights{dir: t.TempDir(), tokens: map[[2]string]string{}, ro: map[[2]string]bool{}}, log: &log{}}
	b.volume("v")
	address, err := freeport.Address() // it is started again, with the same one
	if err != nil {
		t.Fatal(err)
	}
	b.start(address)
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) file(volume string) string { return filepath.Join(b.rights.dir, volume+".img") }

func (b *bench) volume(name string) {
	b.t.Helper()
	if err := errors.Join(os.WriteFile(b.file(name), nil, 0o600), os.Truncate(b.file(name), volumeSize)); err != nil {
		b.t.Fatal(err)
	}
}

// start runs a server as a new process would: with no memory but the files.
func (b *bench) start(address string) {
	b.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.address = address
	b.Server = NewServer(Options{
		Grants: b.rights, Log: testr.New(b.t), MaxConnections: b.max,
		Record: func(string) (Recorder, error) { return b.log, nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, l) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the server ended: %v", err)
		}
	})
}

// open opens a device at the address until the test ends.
func open(t *testing.T, address, export string, timeout time.Duration) *Device {
	t.Helper()
	d, err := OpenDevice(t.Context(), DeviceOptions{Address: address, Export: export, IOTimeout: timeout, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(2*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// link is a TCP proxy that can be cut: then nothing passes, and neither end is told.
type link struct {
	address string
	mu      sync.Mutex
	heal    chan struct{} // closed while the link is whole
	conns   []net.Conn
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{address: l.Addr().String(), heal: make(chan struct{})}
	close(k.heal)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			k.mu.Lock()
			k.conns = append(k.conns, in, out)
			k.mu.Unlock()
			all.Go(func() { k.pump(out, in) })
			all.Go(func() { k.pump(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		k.join()
		k.drop()
		all.Wait()
	})
	return k
}

func (k *link) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		k.mu.Lock()
		heal := k.heal
		k.mu.Unlock()
		<-heal
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heal = make(chan struct{})
}

func (k *link) join() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !isClosed(k.heal) {
		close(k.heal)
	}
}

// drop hangs up on every connection that passes.
func (k *link) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.Close()
	}
	k.conns = nil
}

var _ io.ReaderAt = (*Device)(nil)

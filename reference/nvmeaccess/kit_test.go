package nvmeaccess

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/nvmeaccess/spdktest"
)

const (
	base = "nqn.2026-01.com.example:moor"
	sub  = "nqn.2026-01.com.example:volume:v"
)

// clock is moved by those who wait for it.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	moved func(time.Duration)
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) wait(ctx context.Context, d time.Duration) error {
	if c.moved != nil {
		c.moved(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return ctx.Err()
}

// bed is a volume "v" at a target, and an Access over it.
type bed struct {
	*Access
	target *spdktest.Target
	caller Caller
	clock  *clock
	dir    string
	stop   func()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{target: spdktest.New(), clock: &clock{now: time.Unix(1, 0)}, dir: t.TempDir()}
	b.target.AddSubsystem(sub, "bdev-v")
	b.caller = serve(t, b)
	b.restart(t)
	if err := b.Create(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	return b
}

func serve(t *testing.T, b *bed) Caller {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	b.stop = sync.OnceFunc(b.target.Serve(l))
	t.Cleanup(func() { b.stop() })
	return Socket(socket, 10*time.Second)
}

func (b *bed) options() Options {
	return Options{
		Dir: b.dir, Base: base, Now: b.clock.Now, Wait: b.clock.wait,
		Exports: func(_ context.Context, volume string) ([]Export, error) {
			if volume != "v" {
				return nil, provisioner.ErrNotFound
			}
			return []Export{{Target: b.caller, Name: "t1", Subsystem: sub}}, nil
		},
	}
}

// restart makes the Access anew, as a process that was killed does.
func (b *bed) restart(t *testing.T) {
	t.Helper()
	a, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	b.Access = a
}

// connected is a host that was admitted at an epoch and is connected.
func (b *bed) connected(t *testing.T, epoch int64) *spdktest.Connection {
	t.Helper()
	name, err := b.Admit(t.Context(), "v", epoch)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.target.Connect(sub, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bed) lie(change func(*spdktest.Lies)) { b.target.Lie(change) }

// once has the next call of a method have a fault.
func (b *bed) once(method string, f spdktest.Fault) {
	b.lie(func(l *spdktest.Lies) {
		if l.Once == nil {
			l.Once = map[string]spdktest.Fault{}
		}
		l.Once["nvmf_"+method] = f
	})
}

func wantNil(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantWords(t *testing.T, what string, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Fatalf("%s: %v; want words %q", what, err, words)
	}
}

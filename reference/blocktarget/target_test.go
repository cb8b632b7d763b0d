package blocktarget

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadsWhatWasWritten(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	if d.Size() != volumeSize || d.ReadOnly() {
		t.Fatalf("size %d, read only %t", d.Size(), d.ReadOnly())
	}
	want := make([]byte, 5<<20+17) // more than one transfer
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(want)
	if n, err := d.WriteAt(want, 4093); n != len(want) || err != nil {
		t.Fatal(n, err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := d.ReadAt(got, 4093); n != len(got) || err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d, %v, equal %t", n, err, bytes.Equal(got, want))
	}
	for _, mode := range []uint32{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE} {
		if err := d.Punch(mode, 8192, 65536); err != nil {
			t.Fatalf("punch %#x: %v", mode, err)
		}
		piece := make([]byte, 65536)
		if _, err := d.ReadAt(piece, 8192); err != nil || !bytes.Equal(piece, make([]byte, 65536)) {
			t.Fatalf("after punch %#x: %v", mode, err)
		}
		if _, err := d.WriteAt(want[:65536], 8192); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(b.file("v")); err != nil || st.Size() != volumeSize {
		t.Fatalf("the file has %d bytes, %v", st.Size(), err)
	}
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if readers := slices.Compact(slices.Clone(b.log.reads)); !slices.Equal(readers, []string{"dpu-1"}) {
		t.Fatalf("on record as readers: %q", readers)
	}
}

func TestRefusedByNumber(t *testing.T) {
	b := newBench(t)
	b.rights.set(func(r *rights) { r.ro[[2]string{"v", "reader"}] = true })
	rw := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	ro := open(t, b.address, b.rights.give("v", "reader", "t2"), 0)
	one := make([]byte, 4096)
	cases := map[string]struct {
		do   func() error
		want syscall.Errno
	}{
		"write beyond the end": {want: syscall.ENOSPC, do: func() error { _, err := rw.WriteAt(one, volumeSize-1); return err }},
		"write far beyond":     {want: syscall.ENOSPC, do: func() error { _, err := rw.WriteAt(one, 1<<62); return err }},
		"read beyond the end":  {want: syscall.EINVAL, do: func() error { _, err := rw.ReadAt(one, volumeSize-1); return err }},
		"negative offset":      {want: syscall.EINVAL, do: func() error { _, err := rw.ReadAt(one, -1); return err }},
		"write read only":      {want: syscall.EPERM, do: func() error { _, err := ro.WriteAt(one, 0); return err }},
		"punch read only":      {want: syscall.EPERM, do: func() error { return ro.Punch(unix.FALLOC_FL_PUNCH_HOLE, 0, 512) }},
		"collapse":             {want: syscall.EOPNOTSUPP, do: func() error { return rw.Punch(unix.FALLOC_FL_COLLAPSE_RANGE, 0, 512) }},
		"unknown command":      {want: syscall.EINVAL, do: func() error { return rw.do(request{command: 99}, nil, nil) }},
		"read too much":        {want: syscall.EINVAL, do: func() error { return rw.do(request{length: maxPayload + 1}, nil, nil) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := c.do(); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
	if !ro.ReadOnly() || len(b.log.all()) != 0 {
		t.Errorf("read only %t, recorded %v", ro.ReadOnly(), b.log.all())
	}
}

func TestWhoMayOpen(t *testing.T) {
	b := newBench(t)
	good := b.rights.give("v", "dpu-1", "t1")
	cases := map[string]struct {
		export string
		denied bool
		words  string
	}{
		"the right one":      {export: good},
		"another token":      {export: "v@dpu-1#t2", denied: true, words: "another token"},
		"another's token":    {export: "v@dpu-2#t1", denied: true, words: "dpu-2 has no right"},
		"no such volume":     {export: "w@dpu-1#t1", denied: true, words: "no right"},
		"no token":           {export: "v@dpu-1#", words: "<volume>@<dpu>#<token>"},
		"no form":            {export: "v", words: "<volume>@<dpu>#<token>"},
		"a name that climbs": {export: "../v@dpu-1#t1", denied: true, words: "no right"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := OpenDevice(t.Context(), DeviceOptions{Address: b.address, Export: c.export})
			if err == nil {
				_ = d.Close()
			}
			if errors.Is(err, ErrDenied) != c.denied || (err == nil) != (c.words == "") {
				t.Fatalf("got %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), c.words) {
				t.Fatalf("got %q, want the words %q", err, c.words)
			}
			if err != nil && strings.Contains(err.Error(), "#t") {
				t.Fatalf("the error tells the token: %v", err)
			}
		})
	}
	b.rights.set(func(r *rights) { r.broken = errors.New("disk on fire") })
	_, err := OpenDevice(t.Context(), DeviceOptions{Address: b.address, Export: good})
	if err == nil || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "disk on fire") {
		t.Fatalf("without knowing the grants: %v", err)
	}
}

func TestAThousandConnections(t *testing.T) {
	b := newBench(t)
	const many = 1000
	devices := make([]*Device, many)
	for i := range devices {
		devices[i] = open(t, b.address, b.rights.give("v", fmt.Sprintf("dpu-%d", i), "t"), 0)
	}
	var all sync.WaitGroup
	for i, d := range devices {
		all.Go(func() {
			if _, err := d.WriteAt(bytes.Repeat([]byte{byte(i)}, 4096), int64(i)*4096); err != nil {
				t.Errorf("device %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if s := b.Stats(); s.Sessions != many || s.Writes != many {
		t.Fatalf("%+v", s)
	}
	if n := b.Revoke("v", ""); n != many {
		t.Fatalf("%d sessions ended", n)
	}
}

func TestTooManyConnections(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.max = 2
	b.start(b.address)
	for i := range 2 {
		open(t, b.address, b.rights.give("v", fmt.Sprintf("dpu-%d", i), "t"), 0)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := OpenDevice(ctx, DeviceOptions{Address: b.address, Export: b.rights.give("v", "dpu-3", "t")}); err == nil {
		t.Fatal("a third connection is taken")
	}
}

func TestInterrupt(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), time.Hour)
	k.cut()
	done := make(chan error, 1)
	go func() { _, err := d.WriteAt([]byte("x"), 0); done <- err }()
	eventually(t, "the write is on its way", func() bool { return waits(d) })
	d.Interrupt()
	if err := <-done; !errors.Is(err, syscall.EIO) || !errors.Is(err, errInterrupted) {
		t.Fatalf("the write ended with %v", err)
	}
	if err := d.Settled(); err == nil {
		t.Fatal("settled, with a write that may arrive yet")
	}
	k.join()
	if _, err := d.WriteAt([]byte("y"), 0); err != nil {
		t.Fatalf("a later write: %v", err)
	}
	if err := d.Settled(); err != nil {
		t.Fatal(err)
	}
}

// waits reports whether a request of the device waits for its answer.
func waits(d *Device) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil {
		return false
	}
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	return len(d.conn.pending) == 1
}

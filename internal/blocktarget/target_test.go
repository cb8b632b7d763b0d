package blocktarget

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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

// writers keep many writes in flight on d until one fails, and return how many
// were acknowledged.
func writers(d *Device, many int, failed func(error)) (acked *atomic.Int64, wait func()) {
	acked = &atomic.Int64{}
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			data := bytes.Repeat([]byte{byte(i + 1)}, 16<<10)
			for n := int64(0); ; n++ {
				copy(data, fmt.Sprint(n)) // so that every write changes the file
				if _, err := d.WriteAt(data, int64(i*len(data))+n%8*(1<<20)); err != nil {
					failed(err)
					return
				}
				acked.Add(1)
			}
		})
	}
	return acked, all.Wait
}

func digestOf(t *testing.T, path string) [32]byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(raw)
}

// revokedUnderLoad takes the right from a device that writes at full speed, and
// proves that nothing of it arrives after that.
func revokedUnderLoad(t *testing.T, b *bench, d *Device, before func()) {
	t.Helper()
	errs := make(chan error, 32)
	acked, wait := writers(d, 32, func(err error) { errs <- err })
	began := time.Now()
	eventually(t, "2000 acknowledged writes", func() bool { return acked.Load() > 2000 })
	t.Logf("%.0f MB/s in writes of 16 KiB", float64(acked.Load())*16384/1e6/time.Since(began).Seconds())
	before()
	b.rights.take("v", "dpu-1")
	revoking := time.Now()
	if n := b.Revoke("v", "dpu-1"); n != 1 {
		t.Fatalf("%d sessions were ended, want 1", n)
	}
	took := time.Since(revoking)
	content, writes := digestOf(t, b.file("v")), len(b.log.all())

	next := open(t, b.address, b.rights.give("v", "dpu-2", "t2"), 0)
	if content != digestOf(t, b.file("v")) || writes != len(b.log.all()) {
		t.Fatal("a write arrived after the right was taken back")
	}
	for range 20 {
		if _, err := next.WriteAt(make([]byte, 8<<20), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, who := range b.log.all()[writes:] {
		if who != "dpu-2" {
			t.Fatalf("write %d after the revocation is of %s", i, who)
		}
	}
	wait()
	if err := <-errs; !errors.Is(err, syscall.EIO) {
		t.Fatalf("the old writer got %v, want EIO", err)
	}
	t.Logf("revoked in %v after %d writes", took, writes)
}

func TestRevokeUnderLoad(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	revokedUnderLoad(t, b, d, func() {})
	_, err := d.ReadAt(make([]byte, 1), 0)
	if !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrDenied) {
		t.Fatalf("a read for ever after: %v", err)
	}
	if err := d.Settled(); err != nil {
		t.Fatalf("after the refusal: %v", err)
	}
	if n := b.Revoke("v", "dpu-1"); n != 0 {
		t.Fatalf("revoked again: %d sessions", n)
	}
}

func TestRevokeBehindACutLink(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), 2*time.Second)
	revokedUnderLoad(t, b, d, k.cut)
	if err := d.Settled(); err == nil {
		t.Error("settled, with writes that nobody answered and a target that cannot be asked")
	}
	writes := len(b.log.all())
	k.join()
	eventually(t, "the old DPU learns of its loss", func() bool { return d.Settled() == nil })
	if _, err := d.WriteAt(make([]byte, 512), 0); !errors.Is(err, ErrDenied) {
		t.Fatalf("write after the link is whole again: %v", err)
	}
	if len(b.log.all()) != writes {
		t.Fatal("a write of the old DPU arrived when the link was whole again")
	}
}

func TestRevokeEveryNode(t *testing.T) {
	b := newBench(t)
	one := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	two := open(t, b.address, b.rights.give("v", "dpu-2", "t2"), 0)
	b.rights.take("v", "dpu-1")
	b.rights.take("v", "dpu-2")
	if n := b.Revoke("v", ""); n != 2 {
		t.Fatalf("%d sessions ended", n)
	}
	for _, d := range []*Device{one, two} {
		if _, err := d.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) {
			t.Errorf("write: %v", err)
		}
	}
}

func TestIOWaitsForALinkThatComesBack(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), 20*time.Second)
	k.cut()
	done := make(chan error, 1)
	go func() { _, err := d.WriteAt([]byte("late"), 0); done <- err }()
	eventually(t, "the write is on its way", func() bool { return waits(d) })
	select {
	case err := <-done:
		t.Fatalf("answered over a cut link: %v", err)
	default:
	}
	k.drop() // the kernel gives up
	k.join()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(b.file("v"))
	if err != nil || string(raw[:4]) != "late" {
		t.Fatalf("%q, %v", raw[:4], err)
	}
}

func TestIOFailsWhenTheLinkStaysCut(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), 200*time.Millisecond)
	k.cut()
	for name, do := range map[string]func() error{
		"write": func() error { _, err := d.WriteAt([]byte("x"), 0); return err },
		"read":  func() error { _, err := d.ReadAt(make([]byte, 1), 0); return err },
		"flush": d.Sync,
	} {
		if err := do(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want EIO", name, err)
		}
	}
	k.join()
	eventually(t, "I/O works again", func() bool { return d.Sync() == nil })
	if err := d.Settled(); err != nil {
		t.Fatal(err)
	}
}

// TestNoOldWriteAfterANewConnection: what hung on a lost connection must not
// overwrite what was written on the next one.
func TestNoOldWriteAfterANewConnection(t *testing.T) {
	b := newBench(t)
	export := b.rights.give("v", "dpu-1", "t1")
	first, err := dialExport(t.Context(), b.address, export)
	if err != nil {
		t.Fatal(err)
	}
	defer first.fail(io.EOF)
	next := open(t, b.address, export, 0)
	if err := first.roundTrip(request{command: cmdWrite, length: 3}, []byte("old"), nil, 10*time.Second); !errors.Is(err, errLost) {
		t.Fatalf("the first connection still answers: %v", err)
	}
	if _, err := next.WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Sessions()); n != 1 {
		t.Fatalf("%d sessions, want 1", n)
	}
	// A stranger who does not know the token ends nobody's session.
	if _, err := dialExport(t.Context(), b.address, "v@dpu-1#guess"); !errors.Is(err, ErrDenied) {
		t.Fatal(err)
	}
	if _, err := next.WriteAt([]byte("new"), 0); err != nil || len(b.Sessions()) != 1 {
		t.Fatalf("after a stranger knocked: %v", err)
	}
}

func TestServerRestarts(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	errs := make(chan error, 32)
	acked, wait := writers(d, 8, func(err error) { errs <- err })
	for n := range int64(3) {
		eventually(t, "writes", func() bool { return acked.Load() > (n+1)*300 })
		b.stop()
		b.start(b.address)
	}
	last := acked.Load()
	eventually(t, "writes after the last start", func() bool { return acked.Load() > last+100 })
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wait()
	if err := <-errs; !errors.Is(err, errClosed) {
		t.Fatal(err)
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

// BenchmarkWrite prints what a target does on this machine over loopback.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{4 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			d, done := benchDevice(b)
			defer done()
			b.SetBytes(int64(size))
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				data := make([]byte, size)
				for pb.Next() {
					if _, err := d.WriteAt(data, rand.Int64N(volumeSize-int64(size))); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
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

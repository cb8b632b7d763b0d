package blocktarget

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

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
		t.Error("settled, with unanswered writes and a target that cannot be asked")
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

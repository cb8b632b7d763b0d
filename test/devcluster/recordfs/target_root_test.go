//go:build root

package recordfs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/writelog"
	"github.com/moor-storage/moor/test/proof"
)

const (
	volumeFile = "vol.img"
	volumeSize = 32 << 20
)

// anyone grants the one volume to every DPU.
type anyone struct{ file string }

func (a anyone) Grant(string, string) (blocktarget.Grant, error) {
	return blocktarget.Grant{File: a.file, TokenHash: blocktarget.HashToken("t")}, nil
}

// serve runs a target on the recorded directory, and opens its volume.
func (m mounted) serve(t *testing.T) *blocktarget.Device {
	t.Helper()
	file := filepath.Join(m.dir, volumeFile)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, volumeSize); err != nil {
		t.Fatal(err)
	}
	server := blocktarget.NewServer(blocktarget.Options{Grants: anyone{file}, Log: testr.New(t), Record: func(file string) (blocktarget.Recorder, error) {
		return writelog.Open(filepath.Join(m.dir, "log"), file)
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	device, err := blocktarget.OpenDevice(t.Context(), blocktarget.DeviceOptions{
		Address: l.Addr().String(), Export: blocktarget.Export{Volume: "vol", Node: "dpu-1", Token: "t"}.String(), Log: testr.New(t),
	})
	if err != nil {
		cancel()
		t.Fatal(err, <-done)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return device
}

// history is what the proof judges: one DPU that has held the volume all along.
func (m mounted) history(t *testing.T) proof.History {
	t.Helper()
	now, err := writelog.Now()
	if err != nil {
		t.Fatal(err)
	}
	below := proof.Below{Writes: m.recorded(t, volumeFile), ReadAt: now}
	logged, err := writelog.Read(writelog.Path(filepath.Join(m.dir, "log"), volumeFile))
	if err != nil {
		t.Fatal(err)
	}
	return proof.History{
		Volume: "vol", Writes: logged, Below: &below,
		States: []proof.State{{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Epoch: 1}},
	}
}

// disturb writes, clears and zeroes from many goroutines at once, also the same
// places, in pieces small and larger than what the kernel hands on at once.
func disturb(t *testing.T, device *blocktarget.Device) {
	t.Helper()
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for g := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			data := make([]byte, 3<<20)
			for range 60 {
				length := int64(512 * (1 + r.IntN(8)))
				if r.IntN(6) == 0 {
					length = int64(512 * (1 + r.IntN(len(data)/512)))
				}
				offset := int64(512 * r.IntN(16))
				var err error
				switch r.IntN(8) {
				case 0:
					err = device.Punch(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
				case 1:
					err = device.Punch(unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
				default:
					_, err = device.WriteAt(data[:length], offset)
				}
				if err != nil {
					errs <- fmt.Errorf("%d bytes at %d: %w", length, offset, err)
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// TestAnHonestTargetPasses: what the target logs is what is recorded beneath it.
func TestAnHonestTargetPasses(t *testing.T) {
	m := mount(t)
	device := m.serve(t)
	disturb(t, device)
	h := m.history(t)
	if len(h.Writes) < 400 || len(h.Below.Writes) < len(h.Writes) {
		t.Fatalf("%d writes are logged and %d recorded", len(h.Writes), len(h.Below.Writes))
	}
	if got := proof.Check(h); len(got) != 0 {
		t.Error(got)
	}
}

// TestAWriteThatTheTargetHidesIsSeen: it goes into the file by another way than
// the one that logs.
func TestAWriteThatTheTargetHidesIsSeen(t *testing.T) {
	m := mount(t)
	device := m.serve(t)
	disturb(t, device)
	hidden, err := os.OpenFile(filepath.Join(m.dir, volumeFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hidden.Close()
	if _, err := hidden.WriteAt(make([]byte, 512), 4096); err != nil {
		t.Fatal(err)
	}
	got := proof.Check(m.history(t))
	if len(got) != 1 || got[0].Rule != proof.RuleBelow {
		t.Errorf("the proof says %v", got)
	}
}

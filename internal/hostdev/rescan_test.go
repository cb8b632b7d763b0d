package hostdev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const rescanAttr = "nvme/nvme0/rescan_controller"

// namespaceTree shows namespace 1 of addr with 1 MiB.
func namespaceTree(t *testing.T, more map[string]string) (*Finder, Identity) {
	t.Helper()
	files := map[string]string{
		ctrl + "nvme0n1/nsid": "1\n", ctrl + "nvme0n1/size": "2048\n", ctrl + "nvme0n1/uuid": "11111111-2222-4333-8444-555555555555\n",
		"dev/nvme0n1": "",
	}
	for path, text := range more {
		files[path] = text
	}
	return tree(t, files), Identity{Address: addr, NamespaceID: 1, UUID: "11111111-2222-4333-8444-555555555555"}
}

func attribute(t *testing.T, f *Finder) string {
	t.Helper()
	text, err := os.ReadFile(f.Roots.sys("bus/pci/drivers/nvme", addr, rescanAttr))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWaitSize: what is large enough is not touched; the kernel is asked once
// to look at what is not.
func TestWaitSize(t *testing.T) {
	f, id := namespaceTree(t, map[string]string{ctrl + "rescan_controller": ""})
	if size, err := f.WaitSize(t.Context(), id, 1<<20); err != nil || size != 1<<20 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	if asked := attribute(t, f); asked != "" {
		t.Errorf("the kernel was asked (%q) for nothing", asked)
	}
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	f.Clock = clock
	type answer struct {
		size int64
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		size, err := f.WaitSize(t.Context(), id, 2<<20)
		done <- answer{size, err}
	}()
	waiting(t, clock)
	if asked := attribute(t, f); asked != "1" {
		t.Errorf("the kernel was asked with %q, want 1", asked)
	}
	// A second question would write it again.
	grow(t, f, map[string]string{ctrl + "rescan_controller": ""})
	clock.Step(longWait)
	waiting(t, clock)
	if asked := attribute(t, f); asked != "" {
		t.Errorf("the kernel was asked a second time (%q)", asked)
	}
	grow(t, f, map[string]string{ctrl + "nvme0n1/size": "6144\n"})
	clock.Step(longWait)
	if got := <-done; got.err != nil || got.size != 3<<20 {
		t.Fatalf("%d bytes, %v", got.size, got.err)
	}
}

// waiting returns once a goroutine waits for the clock.
func waiting(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	for deadline := time.After(30 * time.Second); !clock.HasWaiters(); {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("no goroutine waits for the clock")
		}
	}
}

func TestWaitSizeInVain(t *testing.T) {
	for name, c := range map[string]struct {
		more  map[string]string
		spoil func(t *testing.T, f *Finder, id *Identity)
		want  error
		words string
	}{
		"a kernel that needs no asking": {nil, nil, ErrAbsent, "has 1048576 bytes, not 2097152 yet"},
		"another volume's place":        {nil, func(_ *testing.T, _ *Finder, id *Identity) { id.UUID = "99999999-2222-4333-8444-555555555555" }, ErrAbsent, "no namespace has UUID"},
		"it is gone": {nil, func(t *testing.T, f *Finder, _ *Identity) {
			if err := os.RemoveAll(f.Roots.sys("bus/pci/drivers/nvme", addr)); err != nil {
				t.Fatal(err)
			}
		}, ErrAbsent, "no namespace has UUID"},
		"the question is refused": {map[string]string{ctrl + "rescan_controller/not-a-file": ""}, nil, ErrAbsent, "have the kernel look at nvme0 again"},
		"no address":              {nil, func(_ *testing.T, _ *Finder, id *Identity) { id.Address = "3b" }, ErrAddress, "PCI address"},
	} {
		t.Run(name, func(t *testing.T) {
			f, id := namespaceTree(t, c.more)
			if c.spoil != nil {
				c.spoil(t, f, &id)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := f.WaitSize(ctx, id, 2<<20)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.words)
			}
		})
	}
}

// TestWaitSizeFollows: a volume that has come back at another address is asked
// for, and waited for, there.
func TestWaitSizeFollows(t *testing.T) {
	const there = "sys/bus/pci/drivers/nvme/0000:3c:00.0/nvme/nvme3/"
	f, id := namespaceTree(t, map[string]string{
		there + "nvme3n1/nsid": "1\n", there + "nvme3n1/size": "8192\n", there + "nvme3n1/uuid": "11111111-2222-4333-8444-555555555555\n",
		"dev/nvme3n1": "",
	})
	grow(t, f, map[string]string{ctrl + "nvme0n1/uuid": "99999999-2222-4333-8444-555555555555\n"})
	if size, err := f.WaitSize(t.Context(), id, 4<<20); err != nil || size != 4<<20 {
		t.Fatalf("%d bytes, %v", size, err)
	}
}

func TestShares(t *testing.T) {
	const devices = "sys/bus/pci/devices/0000:30:00.0/virtio3/"
	f := tree(t, map[string]string{
		devices + "status": "", "sys/bus/pci/devices/0000:31:00.0/virtio4/status": "", "sys/devices/virtual/virtio9/status": "",
		"sys/fs/virtiofs/0/tag": "zebra\n", "sys/fs/virtiofs/0/device": "-> ../../../bus/pci/devices/0000:30:00.0/virtio3",
		"sys/fs/virtiofs/1/tag": "ant\n", "sys/fs/virtiofs/1/device": "-> ../../../bus/pci/devices/0000:31:00.0/virtio4",
		// No PCI function is behind it, it goes just now, it has no tag.
		"sys/fs/virtiofs/2/tag": "virtual\n", "sys/fs/virtiofs/2/device": "-> ../../../devices/virtual/virtio9",
		"sys/fs/virtiofs/3/tag": "gone\n", "sys/fs/virtiofs/3/device": "-> ../../../bus/pci/devices/0000:32:00.0/virtio5",
		"sys/fs/virtiofs/4/tag": "\n", "sys/fs/virtiofs/4/device": "-> ../../../bus/pci/devices/0000:30:00.0/virtio3",
	})
	got, err := f.Shares()
	if err != nil || len(got) != 2 || got[0] != (Share{"ant", "0000:31:00.0"}) || got[1] != (Share{"zebra", "0000:30:00.0"}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	empty := &Finder{Roots: Roots{Sysfs: filepath.Join(t.TempDir(), "sys")}}
	if got, err := empty.Shares(); err != nil || got != nil {
		t.Fatalf("an older kernel: got %+v, %v", got, err)
	}
}

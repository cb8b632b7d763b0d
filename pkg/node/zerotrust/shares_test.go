package zerotrust

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func namespaces(blocks ...hostdev.Block) []Shown {
	var out []Shown
	for _, b := range blocks {
		out = append(out, Shown{Block: b})
	}
	return out
}

func share(tag string) Shown {
	return Shown{Block: hostdev.Block{Name: tag, Address: "0000:30:00.0"}, Tag: tag}
}

// share shows a file system, as the kernel tells of it.
func (w *world) share(tag string) {
	w.t.Helper()
	sys := w.finder.Roots.Sysfs
	device := filepath.Join(sys, "bus/pci/devices/0000:30:00.0/virtio3")
	dir := filepath.Join(sys, "fs/virtiofs/0")
	err := errors.Join(os.MkdirAll(device, 0o755), os.MkdirAll(dir, 0o755),
		os.Symlink(device, filepath.Join(dir, "device")), os.WriteFile(filepath.Join(dir, "tag"), []byte(tag+"\n"), 0o600))
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unshare() {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.finder.Roots.Sysfs, "fs/virtiofs/0")); err != nil {
		w.t.Fatal(err)
	}
}

func TestPlanOfShares(t *testing.T) {
	files := Entry{Device: Ref{Tag: "files"}, Dir: "/files", FSType: sharedType}
	at := Entry{Device: Ref{Address: "0000:30:00.0"}, Dir: "/files", FSType: sharedType}
	mounted := func(tag, kind string) []mount.MountPoint {
		return []mount.MountPoint{{Device: tag, Path: "/files", Type: kind}}
	}
	other := share("files")
	other.Address = "0000:31:00.0"
	cases := map[string]struct {
		entry  Entry
		shown  []Shown
		mounts []mount.MountPoint
		want   string
	}{
		"not there":                      {files, nil, nil, ""},
		"there":                          {files, []Shown{share("files")}, nil, "mount"},
		"there and mounted":              {files, []Shown{share("files")}, mounted("files", "fuse.virtiofs"), "mount"},
		"another one":                    {files, []Shown{share("more")}, nil, ""},
		"taken away":                     {files, []Shown{share("more")}, mounted("files", "fuse.virtiofs"), "unmount"},
		"taken away, by address":         {at, nil, mounted("files", "fuse.virtiofs"), "unmount"},
		"another one is mounted":         {files, nil, mounted("more", "fuse.virtiofs"), ""},
		"another's":                      {files, nil, mounted("files", "nfs"), ""},
		"shown twice":                    {files, []Shown{share("files"), other}, mounted("files", "fuse.virtiofs"), "leave"},
		"a namespace where one was":      {at, namespaces(hostdev.Block{Name: "nvme0n1", Address: "0000:30:00.0"}), nil, "leave"},
		"one where a namespace was":      {Entry{Device: at.Device, Dir: "/files", FSType: "ext4"}, []Shown{share("files")}, nil, "leave"},
		"a namespace's place is not one": {Entry{Device: at.Device, Dir: "/files", FSType: "ext4"}, nil, mounted("files", "fuse.virtiofs"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, s := range plan([]Entry{c.entry}, c.shown, c.mounts, own{"/dev", "fuse.virtiofs"}) {
				switch {
				case s.why != nil:
					got = "leave"
				case s.mount:
					got = "mount"
				default:
					got = "unmount"
				}
			}
			if got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDevices(t *testing.T) {
	w, _ := newWorld(t)
	w.show(1, uuid1)
	w.share("files")
	got, err := Devices(w.finder)
	if err != nil {
		t.Fatal(err)
	}
	want := append(namespaces(block(1, uuid1)), share("files"))
	want[0].SizeBytes, want[0].Path = 1<<20, filepath.Join(w.finder.Roots.Dev, "nvme1n1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestWatchShares(t *testing.T) {
	w, a := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Watch(ctx, []Entry{entry(t, "tag=files", "/files", "", "ro")})
	}()
	w.share("files")
	w.tell()
	staged := "stage files /files  [ro] SINGLE_NODE_READER_ONLY"
	w.want(staged)
	w.unshare()
	w.clock.Step(time.Minute)
	w.want(staged, "unstage /files")
	cancel()
	<-done
}

// TestAnotherShare: what stands at the place by the time of the mount is not
// what was found there.
func TestAnotherShare(t *testing.T) {
	w, a := newWorld(t)
	w.share("files")
	if err := a.Mount(t.Context(), entry(t, "tag=files", "/files")); err != nil {
		t.Fatal(err)
	}
	if err := a.Mount(t.Context(), entry(t, "30:00.0", "/files", "ext4")); !errors.Is(err, ErrSyntax) {
		t.Fatalf("a file system was taken for a namespace: %v", err)
	}
	w.unshare()
	if _, err := NewHost(w.finder).Open(t.Context(), provisioner.OpenSpec{PublishContext: placeOf(share("files"))}); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

//go:build root

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/node/csi"
)

const id = "00000000-0000-4000-8000-000000000001"

// hostWithDevice is a sysfs and a dev tree with one blank namespace, a loop
// device; the flags lead there.
func hostWithDevice(t *testing.T) (flags []string, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir = t.TempDir()
	must(os.WriteFile(filepath.Join(dir, "backing"), nil, 0o600))
	must(os.Truncate(filepath.Join(dir, "backing"), 64<<20))
	out, err := exec.Command("losetup", "--find", "--show", filepath.Join(dir, "backing")).Output()
	must(err)
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		_ = unix.Unmount(filepath.Join(dir, "data"), unix.MNT_DETACH)
		_ = exec.Command("losetup", "-d", loop).Run()
	})
	var st unix.Stat_t
	must(unix.Stat(loop, &st))
	ns := filepath.Join(dir, "sys/bus/pci/drivers/nvme/0000:3b:00.2/nvme/nvme1/nvme1n1")
	must(errors.Join(os.MkdirAll(ns, 0o755), os.MkdirAll(filepath.Join(dir, "dev"), 0o755)))
	must(unix.Mknod(filepath.Join(dir, "dev/nvme1n1"), unix.S_IFBLK|0o600, int(st.Rdev)))
	number := fmt.Sprintf("%d:%d\n", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	for name, text := range map[string]string{"nsid": "1\n", "size": fmt.Sprintln(64 << 20 / 512), "uuid": id + "\n", "dev": number} {
		must(os.WriteFile(filepath.Join(ns, name), []byte(text), 0o600))
	}
	return []string{"--sysfs-root=" + filepath.Join(dir, "sys"), "--dev-root=" + filepath.Join(dir, "dev")}, dir
}

func TestRootMount(t *testing.T) {
	flags, dir := hostWithDevice(t)
	data := filepath.Join(dir, "data")
	run := func(args ...string) error {
		cmd := root()
		cmd.SetArgs(append(args, flags...))
		return cmd.ExecuteContext(t.Context())
	}
	for range 2 { // the second changes nothing
		if err := run("mount", "uuid="+id, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(data, "text"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := csi.NewMounter().List()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range list {
		if m.Path == data {
			seen++
			if m.Device != filepath.Join(dir, "dev/nvme1n1") {
				t.Errorf("mounted from %s: watch would not know it for its own", m.Device)
			}
		}
	}
	if seen != 1 {
		t.Fatalf("mounted %d times", seen)
	}
	for range 2 {
		if err := run("umount", data); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("mount", "3b:00.2/1", data, "--fstype=xfs"); err == nil || !strings.Contains(err.Error(), "lest data be lost") {
		t.Fatalf("a device in use for ext4 was taken for xfs: %v", err)
	}
	if err := run("mount", "3b:00.2/1", data, "-o", "ro"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(data, "text")); err != nil || string(got) != "kept" {
		t.Fatalf("read %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(data, "text"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Fatalf("write: %v, want EROFS", err)
	}
	if err := run("umount", data); err != nil {
		t.Fatal(err)
	}
}

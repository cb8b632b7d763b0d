//go:build root

package share

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/moor-storage/moor/reference/loopdev"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// TestRootShow: a block device is there before the file that says so, what is written to it is in the storage, and
// once the client is shut out its I/O fails. It is given back by another process than that which made it.
func TestRootShow(t *testing.T) {
	b := newBed(t)
	c := Client{Address: b.volumes, Volume: "v", Node: "dpu-" + filepath.Base(t.TempDir()) + filepath.Base(b.admin), Name: "a"}
	b.ask("create", url.Values{"volume": {"v"}, "bytes": {"1048576"}})
	b.ask("admit", of("a", c.Node))
	dir := t.TempDir()
	path, ready := filepath.Join(dir, "volume"), filepath.Join(dir, "ready")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Show(ctx, filepath.Join(dir, "fuse"), path, ready, testr.New(t)) }()
	t.Cleanup(func() {
		if err := c.Hide(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = unix.Unmount(filepath.Join(dir, "fuse"), unix.MNT_DETACH)
		if left, err := loopdev.All(layout.EmulatorFilePrefix + c.label()); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		_, err := os.Stat(ready)
		return err == nil, nil
	}); err != nil {
		t.Fatal("the device is not ready: ", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(make([]byte, 4096), 4096); err != nil {
		t.Fatal(err)
	}
	if code := b.ask("shut", of("a", c.Node)); code != http.StatusOK {
		t.Fatalf("shut: %d", code)
	}
	if _, err := f.WriteAt(make([]byte, 4096), 4096); !errors.Is(err, unix.EIO) {
		t.Errorf("after it was shut out: %v, want EIO", err)
	}
}

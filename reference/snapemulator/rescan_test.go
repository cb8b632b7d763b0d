package snapemulator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

func bytesOf(t *testing.T, s *snapemulatortest.Service, name string) int64 {
	t.Helper()
	all, err := s.BdevGetBdevs(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return all[0].SizeBytes()
}

// TestFileGrows: the namespace follows the file behind its bdev, in the host's
// sight too.
func TestFileGrows(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	expose(t, s, "vol", "26:00.2", 1<<20)
	node := filepath.Join(s.Options.DevRoot, "nvme1n1")
	if err := os.Truncate(node, 3<<20); err != nil { // a link to the file behind the bdev
		t.Fatal(err)
	}
	if got := bytesOf(t, s, "vol"); got != 1<<20 {
		t.Fatalf("the bdev has %d bytes before the rescan", got)
	}
	for range 2 {
		if err := s.BdevAioRescan(t.Context(), "vol"); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(nsDir(s), "size"))
	if got := bytesOf(t, s, "vol"); err != nil || got != 3<<20 || strings.TrimSpace(string(raw)) != "6144" {
		t.Errorf("the bdev has %d bytes, the namespace %s sectors (%v)", got, raw, err)
	}
	if left, _ := filepath.Glob(filepath.Join(nsDir(s), "*.new")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.Truncate(node, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.BdevAioRescan(t.Context(), "vol"); !snaprpc.IsBusy(err) {
		t.Errorf("shrinks while the host has it: %v", err)
	}
}

// TestVolumeAtATargetGrows asks the target, and refuses where it cannot.
func TestVolumeAtATargetGrows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.img")
	address, stop := serveFile(t, file)
	s, ctx := snapemulatortest.Start(t, snapemulator.Options{IOTimeout: time.Second}), t.Context()
	if _, err := s.BdevMoorTargetCreate(ctx, snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@dpu-1#t"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 5<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.BdevMoorTargetRescan(ctx, "vol"); err != nil || bytesOf(t, s, "vol") != 5<<20 {
		t.Fatalf("%v, %d bytes", err, bytesOf(t, s, "vol"))
	}
	if err := s.BdevAioRescan(ctx, "vol"); !snaprpc.IsNotFound(err) {
		t.Errorf("looked at as an AIO bdev: %v", err)
	}
	stop()
	err := s.BdevMoorTargetRescan(ctx, "vol")
	if code, _ := snaprpc.Code(err); code != snaprpc.CodeUnreachable {
		t.Errorf("without a target: %v", err)
	}
}

func TestRescanOfNothing(t *testing.T) {
	s, ctx := snapemulatortest.Start(t, snapemulator.Options{}), t.Context()
	for name, call := range map[string]error{
		"file": s.BdevAioRescan(ctx, "none"), "target": s.BdevMoorTargetRescan(ctx, "none"),
		"nothing": s.Call(ctx, "bdev_null_resize", map[string]any{"name": "none", "new_size": 1}, nil),
	} {
		if !snaprpc.IsNotFound(call) {
			t.Errorf("%s: %v", name, call)
		}
	}
}

package exposures

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// await waits for word of a service.
func await(t *testing.T, came <-chan struct{}) {
	t.Helper()
	select {
	case <-came:
	case <-time.After(10 * time.Second):
		t.Fatal("a service is not told of")
	}
}

// TestArrivals: a socket that is made is told of, of a service that was there and of one that
// comes; other files are not.
func TestArrivals(t *testing.T) {
	root := t.TempDir()
	mkdir := func(name string) string {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(dir, name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := mkdir("a")
	came := make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Arrivals{Root: root, Came: func() { came <- struct{}{} }}.Start(ctx) }()
	await(t, came) // the watch has begun
	write(there, "other")
	write(there, socketName)
	await(t, came)
	if len(came) != 0 {
		t.Error("a file that is no socket of a service is told of")
	}
	later := mkdir("b")
	await(t, came) // from here on its directory is watched
	write(later, socketName)
	await(t, came)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestArrivalsUnwatched: a machine whose watches are used up keeps its driver.
func TestArrivalsUnwatched(t *testing.T) {
	full := func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := func() {
		t.Error("told of a service")
		cancel()
	}
	if err := (Arrivals{Root: t.TempDir(), Came: told, open: full}).Start(ctx); err != nil {
		t.Error(err)
	}
}

// TestArrivalsTold: a directory of a service and its socket are told of when they are made, and what was
// not heard of as well; that a socket goes, or changes, is no arrival: each is a round of the patrol.
func TestArrivalsTold(t *testing.T) {
	root := t.TempDir()
	for _, err := range []error{os.Mkdir(filepath.Join(root, "a"), 0o755), os.WriteFile(filepath.Join(root, "file"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	watcher.Events, watcher.Errors = make(chan fsnotify.Event), make(chan error)
	came := make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	open := func() (*fsnotify.Watcher, error) { return watcher, nil }
	go func() { done <- Arrivals{Root: root + "/", Came: func() { came <- struct{}{} }, open: open}.Start(ctx) }()
	await(t, came)
	for _, c := range []struct {
		name string
		op   fsnotify.Op
		want int
	}{
		{"a/snap.sock", fsnotify.Create, 1},
		{"a/other", fsnotify.Create, 0},
		{"a/snap.sock", fsnotify.Chmod, 0},
		{"a/snap.sock", fsnotify.Remove, 0},
		{"b", fsnotify.Create, 1},
		{"b", fsnotify.Remove, 0},
		{"", 0, 1}, // an overflow
	} {
		if c.name == "" {
			watcher.Errors <- fsnotify.ErrEventOverflow
		} else {
			watcher.Events <- fsnotify.Event{Name: filepath.Join(root, c.name), Op: c.op}
		}
		watcher.Events <- fsnotify.Event{} // once this is taken, the one before is done with
		if len(came) != c.want {
			t.Errorf("%s of %q: told of %d, want %d", c.op, c.name, len(came), c.want)
		}
		for len(came) > 0 {
			<-came
		}
	}
	if watched := watcher.WatchList(); len(watched) != 2 || slices.Contains(watched, filepath.Join(root, "file")) {
		t.Errorf("watched are %q, want the root and the directory of a", watched)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestArrivalsFollow: the directory is made if the driver is there first. One that cannot be made, or watched, is
// told, so that the log has it.
func TestArrivalsFollow(t *testing.T) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Arrivals{Root: filepath.Join(file, "root")}).follow(watcher); !errors.Is(err, syscall.ENOTDIR) || !strings.HasPrefix(err.Error(), "mkdir ") {
		t.Errorf("under a file: %v", err)
	}
	defer syscall.Umask(syscall.Umask(0))
	made := filepath.Join(t.TempDir(), "made")
	if err := (Arrivals{Root: made}).follow(watcher); err != nil {
		t.Fatal(err)
	}
	// The services may run as other users.
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("made is %v, %v", info, err)
	}
	if err := watcher.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (Arrivals{Root: t.TempDir()}).follow(watcher); !errors.Is(err, fsnotify.ErrClosed) {
		t.Errorf("by a watch that has ended: %v", err)
	}
}

// TestArrivalsOnEveryDPU: each DPU watches its own services, whichever of its drivers leads.
func TestArrivalsOnEveryDPU(t *testing.T) {
	if (Arrivals{}).NeedLeaderElection() {
		t.Error("only one DPU watches")
	}
}

package exposures

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
)

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
	<-came // the watch has begun
	write(there, "other")
	write(there, socketName)
	<-came
	if len(came) != 0 {
		t.Error("a file that is no socket of a service is told of")
	}
	later := mkdir("b")
	<-came // from here on its directory is watched
	write(later, socketName)
	<-came
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestArrivalsUnwatched: a machine whose watches are used up keeps its driver.
func TestArrivalsUnwatched(t *testing.T) {
	full := func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	if err := (Arrivals{Root: t.TempDir(), Came: func() { t.Error("told of a service") }, open: full}).Start(t.Context()); err != nil {
		t.Error(err)
	}
}

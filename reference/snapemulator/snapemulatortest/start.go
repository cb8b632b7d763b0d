// Package snapemulatortest runs an emulated SNAP service inside a test, with no
// privileges: a namespace's device file is a link to the file behind its bdev,
// and detaching removes the link but cannot fence.
package snapemulatortest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
)

// Service is a running emulator.
type Service struct {
	// Client calls it.
	*snaprpc.Client
	// Options are those it runs with.
	Options snapemulator.Options
	// Host sees what the service shows, of one that was started by StartKeeping.
	Host *Host

	tb   testing.TB
	stop func()
}

// Start runs an emulator with o until the test ends. Fields of o that are empty
// get values below a temporary directory of the test, 4 virtual functions, and
// UUIDs that count up from 1.
func Start(tb testing.TB, o snapemulator.Options) *Service {
	tb.Helper()
	return start(tb, o, shortDir(tb), nil)
}

// StartKeeping is Start for a service whose functions outlive it: what the host asks for while
// the service is away waits for up to a minute.
func StartKeeping(tb testing.TB, o snapemulator.Options) *Service {
	tb.Helper()
	dir := shortDir(tb)
	return start(tb, o, dir, newHost(tb, filepath.Join(dir, "functions.sock")))
}

func start(tb testing.TB, o snapemulator.Options, dir string, host *Host) *Service {
	tb.Helper()
	fill(&o.Name, "dpu-1")
	fill(&o.Socket, filepath.Join(dir, "snap.sock"))
	fill(&o.SysfsRoot, filepath.Join(dir, "sys"))
	fill(&o.DevRoot, filepath.Join(dir, "dev"))
	if o.VFs == 0 {
		o.VFs = 4
	}
	if o.NewUUID == nil {
		var n atomic.Int64
		o.NewUUID = func() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n.Add(1)) }
	}
	s := &Service{Client: snaprpc.New(o.Socket, 20*time.Second), Options: o, Host: host, tb: tb}
	s.run()
	tb.Cleanup(s.Stop)
	return s
}

func (s *Service) run() {
	s.tb.Helper()
	if s.Host != nil {
		s.Options.DataPath = s.Host.open()
	}
	e, err := snapemulator.New(s.Options)
	if err != nil {
		s.tb.Fatal(err)
	}
	// The test's context ends before its cleanups, which may still call.
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.tb.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.tb.Errorf("the emulator ended: %v", err)
		}
	}
}

// Stop ends the service; a second call does nothing.
func (s *Service) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Restart ends the service and starts it again with the same options: its
// functions are there, its controllers, namespaces and bdevs are gone.
func (s *Service) Restart() {
	s.tb.Helper()
	// The new socket must not get the inode of the old one at the same moment, which
	// only a restart within milliseconds could.
	old := s.Options.Socket + ".old"
	if err := os.Link(s.Options.Socket, old); err == nil {
		defer func() { _ = os.Remove(old) }()
	}
	s.Stop()
	s.run()
}

// Inject makes the service misbehave.
func (s *Service) Inject(f fault.Fault) {
	s.tb.Helper()
	if err := s.Call(s.tb.Context(), "moor_inject", f, nil); err != nil {
		s.tb.Fatal(err)
	}
}

// File makes a sparse file of size bytes and returns its path.
func File(tb testing.TB, size int64) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "volume.img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		tb.Fatal(err)
	}
	return path
}

// shortDir is a temporary directory whose path leaves room for a socket:
// TempDir holds the test's name, which can be long. It is in memory, where there is
// such a file system: a service makes many small files there.
func shortDir(tb testing.TB) string {
	tb.Helper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "snapemu")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

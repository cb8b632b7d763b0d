package functions

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestOpenWaitsForTheServer: a boot starts service and server together, in any order.
func TestOpenWaitsForTheServer(t *testing.T) {
	for _, c := range []struct {
		name string
		left bool
	}{
		{"the server has not begun", false},
		{"an earlier server has left its socket", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "f")
			if c.left {
				l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
				if err != nil {
					t.Fatal(err)
				}
				l.SetUnlinkOnClose(false)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			if _, err := Open(ctx, socket); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("given up before the time was over: %v", err)
			}
		})
	}
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/snapemulator"
)

// TestContract calls the plugin through its gRPC socket, as snap-node-driver
// does, and holds it to the contract. Behind it is the emulated SNAP service.
func TestContract(t *testing.T) {
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		dir := shortDir(t)
		h := host{snap: startSNAP(t, dir), volumes: dir}
		return provisionertest.HostUnderTest{
			Host: vendorplugin.HostOf(startPlugin(t, dir, h)),
			Prepare: func(t *testing.T, name string) provisioner.OpenSpec {
				if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600); err != nil {
					t.Fatal(err)
				}
				return provisioner.OpenSpec{VolumeID: name, Mode: provisioner.Block}
			},
		}
	})
}

// shortDir is a directory whose path leaves room for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "v")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startSNAP runs an emulated SNAP service and returns its socket.
func startSNAP(t *testing.T, dir string) string {
	t.Helper()
	socket := filepath.Join(dir, "snap.sock")
	e, err := snapemulator.New(snapemulator.Options{Name: "dpu-1", Socket: socket, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, e.Run)
	return socket
}

// startPlugin runs the plugin and returns a client of it.
func startPlugin(t *testing.T, dir string, h host) *vendorplugin.Client {
	t.Helper()
	socket, err := vendorplugin.SocketPath(dir, "example")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, func(ctx context.Context) error { return plugin(h).Serve(ctx, socket) })
	client, err := vendorplugin.New(dir, "example", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for client.Probe(t.Context()) != nil { // until the socket is there
		<-tick.C
	}
	return client
}

// serve runs a server until the test ends.
func serve(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

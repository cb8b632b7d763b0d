// Command vendor is the plugin of an example vendor, whose volumes are files in
// a directory that every DPU mounts. docs/adding-a-vendor.md explains it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// plugin offers the devices as a StoragePlugin of DPF's gRPC API.
func plugin(h host) *vendorplugin.Server {
	return vendorplugin.NewServer(vendorplugin.Options{
		Info: vendorplugin.Info{Name: "example.csi.moor.dev", Version: "v0.1.0"}, Host: h,
		Capabilities: vendorplugin.Capabilities{Block: true, Get: true, List: true},
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	socket, err := vendorplugin.SocketPath(vendorplugin.DefaultRoot, "example")
	if err == nil {
		h := host{snap: "/var/lib/nvidia/storage/snap/providers/nvidia/snap.sock", volumes: "/var/lib/example"}
		err = plugin(h).Serve(ctx, socket)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vendor:", err)
		os.Exit(1)
	}
}

// Command platform is a CSI controller over an example platform.
// docs/adding-a-platform.md explains it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// serve serves CSI's identity and controller services over the directory.
func serve(ctx context.Context, endpoint, path string) error {
	d := &directory{path: path}
	options := csi.Options{Platform: provisioner.Platform{Volumes: d, Attachments: d}, BlockOnly: true}
	ready := func(context.Context) error { _, err := os.Stat(path); return err }
	return csiserver.Serve(ctx, endpoint, func(s *grpc.Server) {
		csispec.RegisterIdentityServer(s, csiserver.NewIdentity("directory.csi.moor.dev", "v0.1.0", ready, csi.PluginCapabilities(options)...))
		csispec.RegisterControllerServer(s, csi.New(options))
	}, csiserver.Options{})
}

func main() {
	endpoint := flag.String("endpoint", "unix:///csi/csi.sock", "where to serve CSI")
	path := flag.String("directory", "/var/lib/volumes", "directory of the volumes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *endpoint, *path); err != nil {
		fmt.Fprintln(os.Stderr, "platform:", err)
		os.Exit(1)
	}
}

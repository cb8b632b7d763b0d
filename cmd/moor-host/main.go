// Command moor-host mounts what the DPU shows on a host that is not trusted: it
// has no access to any cluster, and sees devices alone.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/internal/daemon/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "moor-host:", err)
		stop()
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var h host
	cmd := &cobra.Command{
		Use:           "moor-host",
		Short:         "Mount what the DPU shows, on a host without access to any cluster",
		Version:       version.Built().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	h.bind(cmd.PersistentFlags())
	cmd.AddCommand(h.list(), h.prepare(), h.mount(), h.umount(), h.watch())
	return cmd
}

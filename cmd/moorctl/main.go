// Command moorctl is for people: it calls CSI drivers, Moor's and any other's, and has the host cluster forget DPU
// clusters.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/cmd/moorctl/csictl"
	"github.com/moor-storage/moor/cmd/moorctl/dpuctl"
	"github.com/moor-storage/moor/internal/daemon/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := &cobra.Command{
		Use:           "moorctl",
		Short:         "Call CSI drivers by hand, and forget DPU clusters",
		Version:       version.Built().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(csictl.Command(), dpuctl.Command())
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "moorctl:", err)
		stop()
		os.Exit(1)
	}
}

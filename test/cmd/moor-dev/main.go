// Command moor-dev runs the local test bed: two Kubernetes clusters, hosts and
// DPUs on one Linux machine. It needs root and, the first time, the network.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/internal/daemon/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cmd := root()
	if helper(os.Args[0]) {
		cmd.SetArgs(append([]string{mountFSCommand}, os.Args[1:]...))
	}
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return
	}
	code := 1
	var ended commandEnded
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		code = ended.ExitCode()
	} else {
		fmt.Fprintln(os.Stderr, "moor-dev:", err)
	}
	stop()
	os.Exit(code)
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "moor-dev",
		Short:         "Run Moor's local test bed: two Kubernetes clusters, hosts and DPUs on this machine",
		Version:       version.Built().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(up(), down(), leftovers(), status(), logs(), execIn(), powerOff(), powerOn(), powerState(), build(), machineInit(), mountFS(), recordWrites(), shareStorage(), demoCommand())
	return cmd
}

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/demo"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

// demoCommand brings a bed up and shows the main job on it.
func demoCommand() *cobra.Command {
	o := devcluster.Options{KubeletProfile: devcluster.ProfileFast, AttachMode: dpf.AttachController, Deploy: moor.Deploy}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Bring a bed up and show a pod that moves with its volumes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			begin := time.Now()
			// The fast profile spares the spectator up to ten seconds of the
			// kubelet's waiting; benchmarks use the stock one.
			bed, err := devcluster.Up(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			if err := demo.Run(cmd.Context(), bed, os.Stdout); err != nil {
				return err
			}
			fmt.Printf("\nAll of it took %s.\n", time.Since(begin).Round(time.Second))
			return nil
		},
	}
	kubernetes(cmd, &o.Kubernetes)
	cmd.Flags().Var(&o.AttachMode, "attach-mode", "who asks for a volume on a host: controller or node")
	return cmd
}

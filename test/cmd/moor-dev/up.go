package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
	"github.com/moor-storage/moor/test/devcluster/moor"
)

func up() *cobra.Command {
	o := devcluster.Options{Deploy: moor.Deploy}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Remove what an earlier bed left and bring a new one up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := devcluster.Up(cmd.Context(), o, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Printf("export PATH=%s:%s:$PATH\n", c.BinDir(), c.KubeBinDir())
			fmt.Printf("kubectl --kubeconfig %s get nodes   # the hosts\n", c.Kubeconfig(devcluster.HostCluster))
			for _, of := range c.DPUClusters() {
				fmt.Printf("kubectl --kubeconfig %s get nodes   # the DPUs\n", c.Kubeconfig(of.Cluster))
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 0, "number of hosts, each with a DPU; 0: 3, or 4 with --two-dpu-clusters")
	cmd.Flags().IntVar(&o.VFs, "vfs", 16, "virtual functions of each emulated DPU")
	cmd.Flags().StringVar(&o.KubeletProfile, "kubelet-profile", devcluster.ProfileStock, "stock: node status every 10 s, an etcd that syncs, sidecars as shipped; fast: every second, no syncs, short retries")
	o.AttachMode = dpf.AttachController
	kubernetes(cmd, &o.Kubernetes)
	cmd.Flags().BoolVar(&o.Topology, "topology", false, "put the vendor's storage at two places, at one of which all DPUs are, and tell Kubernetes from which hosts volumes are reached")
	cmd.Flags().BoolVar(&o.TwoDPUClusters, "two-dpu-clusters", false, "have the DPUs of the second half of the hosts in a DPU cluster of their own, with all that belongs to one; implies --topology")
	cmd.Flags().BoolVar(&o.Epochs, "epochs", false, "have the vendor's storage know under which epoch each DPU writes, and fence volumes by epochs")
	cmd.Flags().BoolVar(&o.KeepFunctions, "keep-functions", false, "have the emulated functions of each DPU outlive its SNAP service, in a process of their own: SNAP that is killed comes back with its state")
	cmd.Flags().BoolVar(&o.Pods, "pods", false, "deploy pods as volumes on the hosts too: volumes whose work is done by pods")
	cmd.Flags().BoolVar(&o.DPUPods, "dpu-pods", false, "give each DPU a kubelet and containerd, the DPU cluster a scheduler, and deploy pods as volumes there")
	cmd.Flags().BoolVar(&o.LocalDriver, "local-driver", false, "deploy the driver of volumes of one machine, without a DPU, on the first host too")
	cmd.Flags().Var(&o.AttachMode, "attach-mode", "who asks for a volume on a host: controller or node")
	cmd.Flags().BoolVar(&o.RecordBelow, "record-below", false, "record each write beneath the storage target's directory too, in a process of its own; this makes the storage slower")
	cmd.Flags().BoolVar(&o.Bare, "bare", false, "do not build and deploy Moor itself")
	return cmd
}

// kubernetes gives a command the flag that says which Kubernetes runs.
func kubernetes(cmd *cobra.Command, release *kubebuild.Release) {
	cmd.Flags().Var(release, "kubernetes", fmt.Sprintf("the release of Kubernetes: oldest (%s), default (%s), which all else is tried with, or newest (%s)",
		kubebuild.Oldest.Version(), kubebuild.Default.Version(), kubebuild.Newest.Version()))
}

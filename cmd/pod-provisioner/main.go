// Command pod-provisioner serves pods as volumes: with --mode controller it runs the pods that
// make and stage the volumes of all PavProvisioners, and refuses PavProvisioners that are wrong;
// with --mode node, on each node, it reads what those pods have left and hands volumes to the
// kubelet.
package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// options are the flags.
type options struct {
	flags      kube.Flags
	mode       string
	kubeconfig string
	root       string
	control    controllerOptions
	node       nodeOptions
}

func main() {
	var o options
	daemon.Main("pod-provisioner", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	o.flags.Bind(fs)
	fs.StringVar(&o.mode, "mode", "", "controller or node; required")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty: the pod's own account")
	fs.StringVar(&o.root, "root", pods.DefaultRoot, "directory of the nodes beneath which each helper pod has its /pav; the same in both modes")
	o.control.bind(fs)
	o.node.bind(fs)
}

func (o *options) run(ctx context.Context) error {
	if err := o.flags.Validate(); err != nil {
		return err
	}
	switch o.mode {
	case "controller":
		return o.runController(ctx)
	case "node":
		return o.runNode(ctx)
	}
	return fmt.Errorf("--mode is %q: controller or node is wanted", o.mode)
}

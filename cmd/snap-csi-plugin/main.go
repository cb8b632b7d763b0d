// Command snap-csi-plugin is the CSI driver of the host cluster: with
// --mode controller the controller service, which stands on DPUVolume and
// DPUVolumeAttachment objects, with --mode node the node service on each host,
// which registers itself with the kubelet. Flags and names are DPF's.
package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/storageclass"
)

// options are the flags.
type options struct {
	api         kube.Rate
	mode        string
	attach      dpf.AttachMode
	name        string
	bindAddress string
	kubeconfig  string
	namespace   string
	metrics     string
	guard       kube.Metrics
	topology    bool
	driver      storageclass.Driver
	node        nodeOptions
	replica     replicaOptions
	election    kube.Election
}

func main() {
	var o options
	daemon.Main("snap-csi-plugin", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.mode, "mode", "", "controller or node; required")
	fs.StringVar(&o.name, "name", podvolume.DefaultDriver, "name of the CSI driver")
	fs.StringVar(&o.bindAddress, "bind-address", "unix:///csi/csi.sock", "where to serve CSI: unix:///absolute/path, unix://path below the working directory, or tcp://host:port")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the host cluster; empty: the pod's own account")
	fs.StringVar(&o.namespace, "namespace", "dpf-operator-system", "namespace of DPUVolumes and DPUVolumeAttachments, and of the hosts' Leases")
	fs.StringVar(&o.metrics, "metrics-bind-address", ":8080", "address of /metrics, /healthz and /readyz; 0 turns them off")
	o.guard.Bind(fs)
	o.api.Bind(fs)
	fs.BoolVar(&o.topology, "topology", false, "tell Kubernetes from which hosts a volume is reached; the same in both modes, and csi-provisioner has to start anew when it changes")
	o.attach = dpf.AttachController
	fs.Var(&o.attach, "attach-mode", "who asks for a volume on a node: Controller (Kubernetes' VolumeAttachment) or Node (the node plugin itself, when it stages); the same in both modes and in snap-host-controller")
	fs.StringVar(&o.driver.Emulation, "emulation-mode", storagev1alpha1.EmulationNVMe, "nvme or virtiofs: what a volume is whose StorageClass has no emulation; the same in both modes. DPF has a driver for each, with a --name of its own")
	fs.StringVar(&o.namespace, "controller-target-namespace", o.namespace, "DPF's name for --namespace")
	daemon.NoEffect(fs, "devices are found in --sysfs-root and --dev-root", "node-root-fs")
	daemon.NoEffect(fs, "volumes are asked for in the host cluster alone", "controller-dpu-cluster-api-host", "controller-dpu-cluster-api-port", "controller-dpu-cluster-api-token-file", "controller-dpu-cluster-api-ca-file")
	o.node.bind(fs)
	o.replica.bind(fs)
	o.election.Bind(fs, "take a lease before making replicas of volumes, so that of several processes one does; all serve CSI meanwhile (controller)")
}

func (o *options) run(ctx context.Context) error {
	if err := o.api.Validate(); err != nil {
		return err
	}
	if err := cmp.Or(o.guard.Validate(), o.election.Validate()); err != nil {
		return err
	}
	if err := storageclass.CheckDriver(o.driver.Emulation); err != nil {
		return fmt.Errorf("--emulation-mode: %w", err)
	}
	var err error
	if o.bindAddress, err = absolute(o.bindAddress); err != nil {
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

// absolute is an endpoint with the whole path of its socket. DPF's chart gives one below
// the working directory, unix://csi/csi.sock.
func absolute(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || path == "" || filepath.IsAbs(path) {
		return endpoint, nil
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--bind-address %s: %w", endpoint, err)
	}
	return "unix://" + whole, nil
}

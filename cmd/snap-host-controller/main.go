// Command snap-host-controller carries the users' storage objects of the host
// cluster to the DPU cluster and their state back, grants the right to write
// to single-writer volumes, and takes it back with a receipt. It alone holds
// credentials of both clusters.
package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover"
	"github.com/moor-storage/moor/pkg/controller/failover/doubt"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/nodehealth/listener"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
)

// options are the flags.
type options struct {
	flags           kube.Flags
	kubeconfig      string
	dpuKubeconfig   string
	dpuClusterName  string
	dpuClusterSpace string
	several         bool
	namespace       string
	targetNamespace string

	attach           dpf.AttachMode
	drivers          []string
	heartbeatTimeout time.Duration
	silenceTimeout   time.Duration
	budget           failover.Budget
	doubts           doubt.Limits
	powerAfter       time.Duration
	powerDrain       time.Duration
}

// theDPUCluster is how the one DPU cluster is named if nothing says how. Of several, each is named:
// two of one name would be one.
const theDPUCluster = "dpu-cluster"

// The flags of the limits of doubt.
const notReadyAfter, dpuSilentAfter = "failover-not-ready-after", "failover-dpu-silent-after"

func main() {
	var o options
	daemon.Main("snap-host-controller", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	o.flags.Bind(fs)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the host cluster; empty: the pod's own account")
	fs.StringVar(&o.dpuKubeconfig, "dpu-cluster-kubeconfig", "", "kubeconfig of the DPU cluster; required")
	fs.StringVar(&o.dpuClusterName, "dpu-cluster-name", "", "how statuses name the DPU cluster; empty: "+theDPUCluster)
	fs.StringVar(&o.namespace, "namespace", "dpf-operator-system", "namespace of the users' objects in the host cluster")
	fs.StringVar(&o.targetNamespace, "target-namespace", "dpf-operator-system", "namespace of their mirrors in the DPU cluster")
	o.attach = dpf.AttachController
	fs.Var(&o.attach, "attach-mode", "who asks for a volume on a node: Controller or Node; as in snap-csi-plugin. With Node, what a node asks for is granted while a pod there uses it; with Controller, never")
	fs.StringSliceVar(&o.drivers, "driver-name", []string{podvolume.DefaultDriver}, "CSI drivers whose pods use the volumes, and are released when their host fails over")
	fs.DurationVar(&o.heartbeatTimeout, "heartbeat-timeout", nodehealth.DefaultTimeout, "how long a heartbeat counts; more than two periods of the senders")
	fs.DurationVar(&o.silenceTimeout, "silence-timeout", nodehealth.DefaultSilence, "when kubelet, host plugin and DPU are taken for dead if all three are silent; more than one period of the senders")
	fs.StringVar(&o.dpuClusterName, "dpucluster-name", "", "DPF's name for --dpu-cluster-name")
	fs.StringVar(&o.dpuClusterSpace, "dpucluster-namespace", "", "namespace of the DPUCluster that --dpu-cluster-name names: of DPF's DPUs those of other clusters are left alone; empty: DPF has DPUs in one cluster")
	fs.BoolVar(&o.several, "several-dpu-clusters", false, "other DPU clusters are behind the host cluster too, each served by a snap-host-controller of its own: of hosts, volumes and attachments those alone are seen to that are in the DPUCluster of --dpucluster-namespace and --dpucluster-name")
	fs.IntVar(&o.budget.PerMinute, "failover-budget", failover.DefaultBudget.PerMinute, "hosts that may begin to fail over within a minute; 0: none")
	fs.IntVar(&o.budget.PerZone, "failover-zone-budget", failover.DefaultBudget.PerZone, "the same, of one zone (topology.kubernetes.io/zone)")
	fs.DurationVar(&o.budget.Window, "failover-window", failover.DefaultBudget.Window, "time within which no more than two hosts, or 30 % of them, may begin to fail over unless all witnesses agree; 0: no bound")
	fs.DurationVar(&o.doubts.NotReady, notReadyAfter, 0, "after what time a host fails over that lives and whose Node is not Ready, without a person's request; 0: never, else 1m or more")
	fs.DurationVar(&o.doubts.DPUSilent, dpuSilentAfter, 0, "the same of a host that lives and whose DPU is silent and has given no lease")
	fs.DurationVar(&o.powerAfter, "power-after", powerproof.DefaultAfter, "how long a fence waits for other proofs before a BMC is asked to switch the host off, or to reset the DPU, where a PowerControl names one; where none can come it does not wait")
	fs.DurationVar(&o.powerDrain, "power-drain", powerproof.DefaultDrain, "how long the storage may take over what it has received of a DPU that lost its power; no less than --lease-drain of snap-node-driver")
}

func (o *options) run(ctx context.Context) error {
	if err := o.flags.Validate(); err != nil {
		return err
	}
	if o.heartbeatTimeout < time.Second {
		return fmt.Errorf("--heartbeat-timeout is %s: at least 1s is needed", o.heartbeatTimeout)
	}
	if o.silenceTimeout < listener.LeastSilence || o.silenceTimeout > o.heartbeatTimeout {
		return fmt.Errorf("--silence-timeout is %s: %s to --heartbeat-timeout (%s) is possible", o.silenceTimeout, listener.LeastSilence, o.heartbeatTimeout)
	}
	if err := o.doubts.Validate(map[doubt.Kind]string{doubt.NotReady: "--" + notReadyAfter, doubt.DPUSilent: "--" + dpuSilentAfter}); err != nil {
		return err
	}
	if o.powerAfter < 0 || o.powerDrain <= 0 {
		return fmt.Errorf("--power-after is %s and --power-drain %s: the first is not negative, and the second more than 0s", o.powerAfter, o.powerDrain)
	}
	if err := podvolume.ValidDrivers(o.drivers); err != nil {
		return fmt.Errorf("--driver-name: %w", err)
	}
	if o.dpuKubeconfig == "" {
		return fmt.Errorf("--dpu-cluster-kubeconfig is required: it names the file with the credentials of the DPU cluster")
	}
	if o.several && (o.dpuClusterSpace == "" || o.dpuClusterName == "") {
		return fmt.Errorf("--several-dpu-clusters needs --dpucluster-namespace and --dpucluster-name: they name the DPUCluster that is served here")
	}
	o.dpuClusterName = cmp.Or(o.dpuClusterName, theDPUCluster)
	mgr, clusters, err := o.connect(ctx)
	if err != nil {
		return err
	}
	if err := o.setUp(ctx, mgr, clusters); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

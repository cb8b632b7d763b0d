// Package devcluster is the local test bed: two or three real Kubernetes clusters, hosts
// with real kubelets and containerd, and a DPU beside each host, all on one
// Linux machine and from Go modules alone. Machines are made of namespaces and
// can be powered off. One bed exists at a time; its state is in files, so that
// any program (moor-dev, a test) can take it over with Load.
//
// The package needs root. It knows nothing of Moor's own processes, which are
// deployed through its Start, Exec and WriteKubeconfig.
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/devcluster/cleanup"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/record"
)

// Names of the clusters, as WriteKubeconfig takes them.
const (
	HostCluster = "host"
	DPUCluster  = "dpu"
	// SecondDPUCluster is on a bed with two DPU clusters alone.
	SecondDPUCluster = "dpu2"
)

// Profiles of the kubelets.
const (
	// ProfileStock keeps Kubernetes' default: a node's status every 10 s.
	ProfileStock = "stock"
	// ProfileFast writes a node's status every second and looks at each pod every
	// five, for functional tests.
	ProfileFast = "fast"
)

// readyTimeout bounds each wait for a part of the bed to become ready.
const readyTimeout = 3 * time.Minute

// Options say what bed Up makes.
type Options struct {
	// Nodes is how many hosts, each with a DPU, there are; 3 if zero, or 4 with two DPU clusters.
	Nodes int `json:"nodes"`
	// VFs is how many virtual functions each emulated DPU has; 16 if zero. The
	// bed only keeps the number for the deployment of the emulator.
	VFs int `json:"vfs"`
	// KubeletProfile is ProfileStock (the default) or ProfileFast; see AsShipped
	// for what else depends on it.
	KubeletProfile string `json:"kubeletProfile"`
	// Kubernetes is the release that all clusters run.
	Kubernetes kubebuild.Release `json:"kubernetes"`
	// AttachMode is who asks for a volume on a host; Controller if empty. The
	// bed only keeps it for the deployment of Moor.
	AttachMode dpf.AttachMode `json:"attachMode"`
	// Topology is whether the vendor's storage is at places, and Kubernetes is
	// told of it. The bed only keeps it for the deployment of Moor.
	Topology bool `json:"topology"`
	// TwoDPUClusters is whether the DPUs of the second half of the hosts are in a DPU cluster of
	// their own, see DPUClusters. It implies Topology: else Kubernetes does not learn where
	// volumes are reached.
	TwoDPUClusters bool `json:"twoDPUClusters"`
	// Epochs is whether the vendor's storage knows under which epoch each DPU writes. The
	// bed only keeps it for the deployment of Moor.
	Epochs bool `json:"epochs"`
	// KeepFunctions is whether the emulated functions of each DPU outlive its SNAP service. The
	// bed only keeps it for the deployment of Moor.
	KeepFunctions bool `json:"keepFunctions"`
	// Pods is whether pods as volumes are deployed on the host cluster. The bed only keeps it for
	// the deployment of Moor.
	Pods bool `json:"pods"`
	// DPUPods is whether the DPUs have a kubelet and containerd each, and the DPU cluster a
	// scheduler. Unless the bed is Bare, pods as volumes are deployed there too.
	DPUPods bool `json:"dpuPods"`
	// LocalDriver is whether the driver of one machine, without a DPU, is deployed on the first
	// host. The bed only keeps it for the deployment of Moor.
	LocalDriver bool `json:"localDriver"`
	// RecordBelow is whether a process of its own records each write beneath the
	// storage target's directory; see recordfs.
	RecordBelow bool `json:"recordBelow"`
	// Bare leaves out Moor's own programs: they are neither built nor deployed.
	Bare bool `json:"bare"`
	// Deploy, unless Bare, deploys Moor when the clusters are ready.
	Deploy func(ctx context.Context, c *Cluster, progress io.Writer) error `json:"-"`
}

// Process is a program to run in a machine of the bed.
type Process = record.Process

// Cluster is a running bed. Its methods may be called from several goroutines.
type Cluster struct {
	meta    meta
	configs map[string]*rest.Config
}

// meta is what is on record of a bed as a whole.
type meta struct {
	Options Options `json:"options"`
	// Root is the checkout, BinDir has Moor's programs and KubeBinDir those of
	// Kubernetes.
	Root       string `json:"root"`
	BinDir     string `json:"binDir"`
	KubeBinDir string `json:"kubeBinDir"`
	// Source is what BinDir was built from.
	Source Source `json:"source"`
	// Snapshotter has the manifests of external-snapshotter.
	Snapshotter kubebuild.SnapshotterManifests `json:"snapshotter"`
	// Ready is set when Up has finished.
	Ready bool `json:"ready"`
}

const metaRecord = "bed"

// AsShipped is whether etcd syncs what it writes, and the sidecars have the flags
// of the manifests: what is measured has to be of that. The fast profile does
// without both, so that tests wait less.
func (o Options) AsShipped() bool { return o.KubeletProfile == ProfileStock }

func (o Options) withDefaults() (Options, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
		if o.TwoDPUClusters {
			o.Nodes = 4
		}
	}
	o.Topology = o.Topology || o.TwoDPUClusters
	if o.VFs == 0 {
		o.VFs = 16
	}
	if o.KubeletProfile == "" {
		o.KubeletProfile = ProfileStock
	}
	if o.AttachMode == "" {
		o.AttachMode = dpf.AttachController
	}
	if o.Nodes < 1 || o.Nodes > layout.MaxNodes {
		return o, fmt.Errorf("make a bed of %d nodes: want 1 to %d", o.Nodes, layout.MaxNodes)
	}
	if o.TwoDPUClusters && o.Nodes < 2 {
		return o, errors.New("make a bed of 1 node with two DPU clusters: each needs a DPU")
	}
	if o.VFs < 1 {
		return o, fmt.Errorf("make a bed with %d virtual functions: want at least 1", o.VFs)
	}
	if o.KubeletProfile != ProfileStock && o.KubeletProfile != ProfileFast {
		return o, fmt.Errorf("make a bed with kubelet profile %q: want %s or %s", o.KubeletProfile, ProfileStock, ProfileFast)
	}
	return o, nil
}

// Up removes what an earlier bed left, builds what is missing and brings a new
// bed up. When the context ends it takes the bed down again; after another
// error the bed stays for inspection, until Down or the next Up.
func Up(ctx context.Context, o Options, progress io.Writer) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	unlock, err := lockBed(ctx, progress)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := &Cluster{meta: meta{Options: o}, configs: map[string]*rest.Config{}}
	log := newReporter(progress)
	err = c.bringUp(ctx, log)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		log.say("interrupted: taking the bed down")
		return nil, errors.Join(err, cleanup.Clean(context.WithoutCancel(ctx)))
	}
	return nil, err
}

// Load finds the bed that runs. The error says so when there is none, or when
// it is not ready.
func Load() (*Cluster, error) {
	m, err := record.Load[meta](metaRecord)
	if err != nil {
		return nil, fmt.Errorf("find a running bed (start one with moor-dev up): %w", err)
	}
	if !m.Ready {
		return nil, errors.New("find a running bed: the one here never became ready; run moor-dev up")
	}
	c := &Cluster{meta: m, configs: map[string]*rest.Config{}}
	for _, p := range c.planes() {
		if err := c.loadConfig(p.name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) loadConfig(cluster string) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(cluster))
	if err != nil {
		return fmt.Errorf("read the kubeconfig of the %s cluster: %w", cluster, err)
	}
	config.QPS, config.Burst = 200, 400
	c.configs[cluster] = config
	return nil
}

// Down removes a bed and everything it made, whether it runs or was killed. It
// is idempotent.
func Down(ctx context.Context, progress io.Writer) error {
	unlock, err := lockBed(ctx, progress)
	if err != nil {
		return err
	}
	defer unlock()
	return cleanup.Clean(ctx)
}

// Down removes the bed and everything it made.
func (c *Cluster) Down(ctx context.Context) error { return Down(ctx, io.Discard) }

// Options are those of Up, with defaults filled in.
func (c *Cluster) Options() Options { return c.meta.Options }

// Config is an administrator's access to a cluster, which must be one of the bed.
func (c *Cluster) Config(cluster string) *rest.Config { return rest.CopyConfig(c.configs[cluster]) }

// HostConfig is an administrator's access to the host cluster.
func (c *Cluster) HostConfig() *rest.Config { return c.Config(HostCluster) }

// DPUConfig is an administrator's access to the DPU cluster, the first of two.
func (c *Cluster) DPUConfig() *rest.Config { return c.Config(DPUCluster) }

// Kubeconfig is the administrator's kubeconfig of a cluster.
func (c *Cluster) Kubeconfig(cluster string) string {
	return filepath.Join(layout.StateDir, cluster+".kubeconfig")
}

// AuditLog is the file in which a cluster's API server records, as one JSON
// line each, every write request that it completed.
func (c *Cluster) AuditLog(cluster string) string {
	return filepath.Join(layout.StateDir, "logs", cluster+"-audit.log")
}

// SchedulerConfig is the configuration file of the host cluster's scheduler,
// the process SchedulerProcess; write it anew and Restart that.
func (c *Cluster) SchedulerConfig() string { return c.plane(HostCluster).schedulerConfig() }

// Root is the checkout from which the bed was made.
func (c *Cluster) Root() string { return c.meta.Root }

// BinDir holds Moor's own programs, built from the checkout by Up.
func (c *Cluster) BinDir() string { return c.meta.BinDir }

// Source is what the programs in BinDir were built from.
func (c *Cluster) Source() Source { return c.meta.Source }

// KubeBinDir holds Kubernetes, etcd and the CSI sidecars.
func (c *Cluster) KubeBinDir() string { return c.meta.KubeBinDir }

// Snapshotter has the manifests of external-snapshotter, whose programs are in
// BinDir.
func (c *Cluster) Snapshotter() kubebuild.SnapshotterManifests { return c.meta.Snapshotter }

// StateDir holds kubeconfigs and logs; it has the same path in every machine.
func (c *Cluster) StateDir() string { return layout.StateDir }

// Nodes lists the hosts, which are nodes of the host cluster.
func (c *Cluster) Nodes() []string { return names(c.meta.Options.Nodes, layout.HostName) }

// DPUs lists the DPUs, which are nodes of the DPU cluster, or of one of two; the one at an index
// is in the host at the same index of Nodes.
func (c *Cluster) DPUs() []string { return names(c.meta.Options.Nodes, layout.DPUName) }

func names(n int, name func(int) string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = name(i + 1)
	}
	return all
}

func (c *Cluster) client(cluster string) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(c.configs[cluster])
	if err != nil {
		return nil, fmt.Errorf("make a client of the %s cluster: %w", cluster, err)
	}
	return client, nil
}

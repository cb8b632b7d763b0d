package kit

import (
	"fmt"
	"path/filepath"
	"time"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// Namespace of Moor's objects in both clusters.
const Namespace = "dpf-operator-system"

// PodsNamespace is that of pods as volumes.
const PodsNamespace = "moor-pods"

// LocalNamespace is that of the driver of one machine.
const LocalNamespace = "moor-local"

// Clients reach the clusters, without caches, and can watch.
type Clients struct {
	Host client.WithWatch
	// DPU is the DPU cluster, or the first of two.
	DPU client.WithWatch
	// second is the second one; nil if there is none.
	second client.WithWatch
}

// In is the client of the cluster with that name.
func (c Clients) In(cluster string) client.WithWatch {
	return map[string]client.WithWatch{devcluster.HostCluster: c.Host, devcluster.DPUCluster: c.DPU, devcluster.SecondDPUCluster: c.second}[cluster]
}

// Connect connects to the clusters of a bed.
func Connect(bed *devcluster.Cluster) (Clients, error) {
	out, err := NewClients(bed.HostConfig(), bed.DPUConfig())
	if err == nil && bed.Options().TwoDPUClusters {
		var more Clients
		more, err = NewClients(bed.HostConfig(), bed.Config(devcluster.SecondDPUCluster))
		out.second = more.DPU
	}
	return out, err
}

// NewClients connects to a host cluster and a DPU cluster.
func NewClients(host, dpu *rest.Config) (Clients, error) {
	scheme, err := Scheme()
	if err != nil {
		return Clients{}, err
	}
	var out Clients
	for _, c := range []struct {
		config *rest.Config
		to     *client.WithWatch
		name   string
	}{{host, &out.Host, "host"}, {dpu, &out.DPU, "DPU"}} {
		config := rest.CopyConfig(c.config)
		config.QPS, config.Burst = 200, 400
		if *c.to, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
			return Clients{}, fmt.Errorf("connect to the %s cluster: %w", c.name, err)
		}
	}
	return out, nil
}

// Scheme knows every kind of both clusters.
func Scheme() (*runtime.Scheme, error) {
	return kube.NewScheme(
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		storagev1alpha1.AddHostToScheme, storagev1alpha1.AddDPUToScheme,
		moorv1alpha1.AddHostToScheme, moorv1alpha1.AddDPUToScheme, snapshotv1.AddToScheme, groupsnapshotv1beta2.AddToScheme,
		moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme,
	)
}

// rpcTimeout bounds one call of a test to an emulator.
const rpcTimeout = 30 * time.Second

// SNAP reaches the emulated SNAP service of a DPU.
func SNAP(dpu string) *snaprpc.Client {
	own := filepath.Join(layout.MachineDir(dpu), "var-lib-moor")
	return snaprpc.New(filepath.Join(own, "snap", "providers", "nvidia", "snap.sock"), rpcTimeout)
}

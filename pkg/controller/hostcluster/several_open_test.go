package hostcluster_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// several is one host cluster with host a, whose DPU is in DPU cluster dpf/east, and host b, whose is
// in dpf/west, and the controllers of both.
type several struct {
	t          *testing.T
	host       *kubetest.Cluster
	east, west *life
	// away are the controllers that do not work, and cut those whose API server does not answer, which
	// is more than their caches know.
	away, cut map[*life]bool
}

func openSeveral(t *testing.T) *several {
	w := kubetest.New(t)
	s := &several{t: t, host: w.Host, away: map[*life]bool{}, cut: map[*life]bool{}}
	s.east = s.live(w, w.DPU, "dpf/east")
	s.west = s.live(w, kubetest.NewDPU(t), "dpf/west")
	for host, cluster := range map[string]string{"a": "dpf/east", "b": "dpf/west"} {
		n := kubetest.DPUStorageNode(host)
		n.Spec.DPUCluster = cluster
		w.Host.Add(n)
	}
	w.Host.Add(kubetest.DPUStorageVendor("vendor"), kubetest.DPUStoragePolicy("policy", "vendor"))
	for _, l := range []*life{s.east, s.west} {
		l.DPU.Add(kubetest.StorageClass("vendor"), kubetest.CSIDriver("vendor", nil))
	}
	s.settle()
	return s
}

// live are the reconcilers of one DPU cluster. They see of the hosts those that are in it, as
// their cache selects them.
func (s *several) live(w *kubetest.Clusters, dpu *kubetest.Cluster, cluster string) *life {
	mine := &kubetest.Clusters{Control: w.Control, Host: w.Host, DPU: dpu}
	l := &life{Clusters: mine, t: s.t}
	host := kube.Cluster{Client: seeing(w.Host.Client.(client.WithWatch), cluster), Live: w.Host.Live}
	l.runs = runsOf(mine, hostcluster.Clusters{
		Host: host, DPU: kube.Cluster{Client: dpu.Client, Live: line{dpu.Live, func() bool { return s.cut[l] }}},
		DPUClusterName: "dpu-cluster", Namespace: kubetest.HostNamespace, TargetNamespace: kubetest.DPUNamespace, DPUCluster: cluster,
	})
	return l
}

// line is the way to an API server that can be cut.
type line struct {
	client.Reader
	cut func() bool
}

func (l line) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if l.cut() {
		return kubetest.ErrLost
	}
	return l.Reader.Get(ctx, key, o, opts...)
}

func seeing(c client.WithWatch, cluster string) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if n, ok := o.(*moorv1alpha1.DPUStorageNode); ok && err == nil && n.Spec.DPUCluster != cluster {
				*n = moorv1alpha1.DPUStorageNode{}
				return c.Get(ctx, client.ObjectKey{Name: "in-another-dpu-cluster"}, n)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if nodes, ok := list.(*moorv1alpha1.DPUStorageNodeList); ok {
				nodes.Items = slices.DeleteFunc(nodes.Items, func(n moorv1alpha1.DPUStorageNode) bool { return n.Spec.DPUCluster != cluster })
			}
			return err
		},
	})
}

// settle lets all work that are there, until nothing changes: not even by one after the other.
func (s *several) settle() {
	s.t.Helper()
	for range 80 {
		changed := false
		for _, l := range []*life{s.east, s.west} {
			before := s.west.DPU.Writes()
			changed = !s.away[l] && (l.round() || s.west.DPU.Writes() != before) || changed
		}
		if !changed {
			return
		}
	}
	s.t.Fatal("the controllers of the two DPU clusters never come to rest")
}

// volumes says of each volume where it is on record, and where it is.
func (s *several) volumes() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	var list storagev1alpha1.DPUVolumeList
	if err := s.host.Direct.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	for _, v := range list.Items {
		where := "-"
		if v.Status.State != nil && v.Status.State.DPUCluster != nil {
			where = v.Status.State.DPUCluster.Namespace + "/" + v.Status.State.DPUCluster.Name
		}
		for name, l := range map[string]*life{"east": s.east, "west": s.west} {
			if l.DPU.Has(&storagev1alpha1.Volume{}, v.Name) {
				where += " made in " + name
			}
		}
		out[v.Name] = where
	}
	return out
}

// said is what a condition of a volume says.
func (s *several) said(volume, condition string) string {
	s.t.Helper()
	v := &storagev1alpha1.DPUVolume{}
	s.host.Get(v, volume)
	return kubetest.Conditions(v.Status.Conditions, condition)[0]
}

func (s *several) attachment(name string) *storagev1alpha1.DPUVolumeAttachment {
	s.t.Helper()
	a := &storagev1alpha1.DPUVolumeAttachment{}
	s.host.Get(a, name)
	return a
}

// young is a volume that is made now.
func (s *several) young(name string) *storagev1alpha1.DPUVolume {
	v := asked(name)
	v.CreationTimestamp = metav1.NewTime(s.east.Clock.Now())
	return v
}

// asked is a volume as snap-csi-plugin makes it.
func asked(name string) *storagev1alpha1.DPUVolume {
	v := kubetest.DPUVolume(name, corev1.ReadWriteOnce)
	v.Finalizers = []string{storagev1alpha1.FinalizerDPUVolume}
	return v
}

// only gives a volume places of one DPU cluster.
func only(name, cluster string) *storagev1alpha1.DPUVolume {
	v := asked(name)
	v.Spec.AccessibleFrom = []map[string]string{{moorv1alpha1.TopologyDPUCluster: strings.ReplaceAll(cluster, "/", ".")}}
	return v
}

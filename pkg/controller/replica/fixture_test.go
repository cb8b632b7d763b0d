package replica

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// held keeps what is being deleted: the finalizer of hostcluster.
const held = storagev1alpha1.FinalizerDPUVolumeAttachment

// fixture is a host cluster in memory, and its reconciler.
type fixture struct {
	*kubetest.Cluster
	t *testing.T
	r *Reconciler
}

// newFixture has nodes a, b, c and d, each with a healthy DPU and 8 free virtual
// functions, and volume vol with the replication given, bound.
func newFixture(t *testing.T, shares, replicas int32) *fixture {
	t.Helper()
	w := &fixture{Cluster: kubetest.NewHost(t, index.Replicas()), t: t}
	w.Step(600 * time.Millisecond) // a server's stamps are coarser
	w.r = &Reconciler{Options: Options{
		Host: w.Cluster.Cluster, Clock: w.Clock, Namespace: kubetest.HostNamespace, Driver: kubetest.Driver,
		Reserve: 1, ReleaseAfter: 5 * time.Minute, Patience: 2 * time.Minute, TopologyKey: corev1.LabelTopologyZone,
	}}
	for _, n := range []string{"a", "b", "c", "d"} {
		w.host(n, 8)
	}
	w.volume("vol", shares, replicas)
	return w
}

func (w *fixture) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) host(name string, free int64) {
	w.t.Helper()
	d := kubetest.DPUStorageNode(name)
	d.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true, Functions: []moorv1alpha1.FunctionCount{{Type: "vf", Total: 16, Free: free}}}
	w.Add(kubetest.Node(name, map[string]string{corev1.LabelHostname: name}), d)
}

func (w *fixture) volume(name string, shares, replicas int32) {
	w.t.Helper()
	v := kubetest.DPUVolume(name, corev1.ReadWriteOnce)
	v.Finalizers = []string{held}
	v.Spec.Replication = &storagev1alpha1.Replication{MaxShares: shares, MaxMountReplicaCount: replicas}
	v.Status.Phase = storagev1alpha1.DPUVolumeBound
	w.Add(v)
}

// attach makes an attachment as the CSI controller and hostcluster would.
func (w *fixture) attach(volume, node string, role storagev1alpha1.Role) *storagev1alpha1.DPUVolumeAttachment {
	w.t.Helper()
	yes := role != storagev1alpha1.RoleReplica
	a := kubetest.DPUVolumeAttachment(volume, node)
	a.Name, a.Finalizers, a.Spec.Role = kube.AttachmentName(node, volume), []string{held}, role
	a.Status = storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: &yes, DPU: &storagev1alpha1.AttachedDPU{}}
	w.Add(a)
	return a
}

// detach deletes an attachment and lets it go.
func (w *fixture) detach(volume, node string) {
	w.t.Helper()
	w.Remove(w.attachment(volume, node))
	w.letGo()
}

// letGo plays hostcluster: what is being deleted goes.
func (w *fixture) letGo() {
	w.t.Helper()
	for _, a := range w.all() {
		if !a.DeletionTimestamp.IsZero() {
			a.Finalizers = nil
			w.must(w.Direct.Update(w.t.Context(), &a))
		}
	}
}

func (w *fixture) all() []storagev1alpha1.DPUVolumeAttachment {
	w.t.Helper()
	var list storagev1alpha1.DPUVolumeAttachmentList
	w.must(w.Direct.List(w.t.Context(), &list))
	return list.Items
}

func (w *fixture) attachment(volume, node string) *storagev1alpha1.DPUVolumeAttachment {
	w.t.Helper()
	a := &storagev1alpha1.DPUVolumeAttachment{}
	w.Get(a, kube.AttachmentName(node, volume))
	return a
}

// replicas are the nodes with a standing replica of a volume.
func (w *fixture) replicas(volume string) []string {
	w.t.Helper()
	var out []string
	for _, a := range w.all() {
		if a.Spec.DPUVolumeName == volume && a.Spec.Role == storagev1alpha1.RoleReplica && a.DeletionTimestamp.IsZero() {
			out = append(out, a.Spec.DPUNodeName)
		}
	}
	slices.Sort(out)
	return out
}

func (w *fixture) state(volume string) storagev1alpha1.ReplicaState {
	w.t.Helper()
	v := &storagev1alpha1.DPUVolume{}
	w.Get(v, volume)
	if v.Status.Replicas == nil {
		return storagev1alpha1.ReplicaState{}
	}
	return *v.Status.Replicas
}

// pass reconciles a volume, and again, which must not write.
func (w *fixture) pass(volume string) time.Duration {
	w.t.Helper()
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.HostNamespace, Name: volume}}
	got, err := w.r.Reconcile(w.t.Context(), req)
	w.must(err)
	// What the first pass deleted or made changes what the second sees.
	_, err = w.r.Reconcile(w.t.Context(), req)
	w.must(err)
	before := w.Writes()
	again, err := w.r.Reconcile(w.t.Context(), req)
	w.must(err)
	if n := w.Writes() - before; n != 0 {
		w.t.Errorf("a pass over what has not changed wrote %d times", n)
	}
	return max(got.RequeueAfter, again.RequeueAfter)
}

// pod makes a running pod on the volumes' claims, and their PersistentVolumes.
func (w *fixture) pod(name string, change func(*corev1.Pod), volumes ...string) {
	w.t.Helper()
	p := kubetest.Pod(name, "", volumes...)
	p.Namespace, p.Status.Phase = "apps", corev1.PodRunning
	for _, v := range volumes {
		pv := kubetest.PV("pv-"+v, v, v)
		pv.Spec.ClaimRef.Namespace = p.Namespace
		if !w.Has(&corev1.PersistentVolume{}, pv.Name) {
			w.Add(pv)
		}
	}
	if change != nil {
		change(p)
	}
	w.Add(p)
}

func (w *fixture) changeNode(name string, change func(*corev1.Node, *moorv1alpha1.DPUStorageNode)) {
	w.t.Helper()
	n, d := &corev1.Node{}, &moorv1alpha1.DPUStorageNode{}
	w.Get(n, name)
	w.Get(d, name)
	change(n, d)
	w.write(n)
	w.write(d)
}

// write writes an object and its status.
func (w *fixture) write(o client.Object) {
	w.t.Helper()
	want := o.DeepCopyObject().(client.Object)
	w.must(w.Direct.Status().Update(w.t.Context(), o))
	want.SetResourceVersion(o.GetResourceVersion())
	w.must(w.Direct.Update(w.t.Context(), want))
}

func (w *fixture) unattached() {
	a := w.attachment("vol", "a")
	no := false
	a.Status.DPUAttached = &no
	w.must(w.Direct.Status().Update(w.t.Context(), a))
}

func (w *fixture) free(n int64, nodes ...string) {
	for _, name := range nodes {
		w.changeNode(name, func(_ *kubeNode, d *dpuNode) { d.Status.DPU.Functions[0].Free = n })
	}
}

// vendor names the vendor that a volume is of.
func (w *fixture) vendor(volume, name string) {
	w.t.Helper()
	v := &storagev1alpha1.DPUVolume{}
	w.Get(v, volume)
	v.Status.State = &storagev1alpha1.DPUVolumeState{SelectedDPUStorageVendorName: name}
	w.must(w.Direct.Status().Update(w.t.Context(), v))
}

// lost has the DPU of a node tell that the paths of the volumes are lost, and no other is left.
func (w *fixture) lost(node string, volumes ...string) {
	w.changeNode(node, func(_ *kubeNode, d *dpuNode) {
		d.Status.DPU.LostPaths, d.Status.DPU.AllPathsLost = lostPaths(volumes...), len(volumes) > 0
	})
}

func lostPaths(volumes ...string) []moorv1alpha1.LostPath {
	var out []moorv1alpha1.LostPath
	for _, v := range volumes {
		out = append(out, moorv1alpha1.LostPath{Volume: v, Message: "no path"})
	}
	return out
}

// ordered makes an attachment of another volume that has no function yet.
func (w *fixture) ordered(volume, node string) {
	a := w.attach(volume, node, primary)
	a.Status = storagev1alpha1.DPUVolumeAttachmentStatus{}
	w.must(w.Direct.Status().Update(w.t.Context(), a))
}

func (w *fixture) count(volume string) int {
	n := 0
	for _, a := range w.all() {
		if a.Spec.DPUVolumeName == volume {
			n++
		}
	}
	return n
}

func (w *fixture) notReady(node string, since time.Duration) {
	w.changeNode(node, func(k *kubeNode, _ *dpuNode) {
		k.Status.Conditions[0].Status = corev1.ConditionUnknown
		k.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Clock.Now().Add(-since))
	})
}

func (w *fixture) taint(node, key string) {
	w.changeNode(node, func(k *kubeNode, _ *dpuNode) {
		k.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	})
}

package replica

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

const (
	namespace = "users"
	driver    = "csi.snap.nvidia.com"
	// held keeps what is being deleted, as hostcluster's finalizer does.
	held = "test/held"
)

// world is a host cluster in memory, and its reconciler.
type world struct {
	t      *testing.T
	c      client.WithWatch
	r      *Reconciler
	clock  *testclock.FakePassiveClock
	writes int
	// stale, if set, is what the cache shows of attachments.
	stale *storagev1alpha1.DPUVolumeAttachmentList
}

// newWorld has nodes a, b, c and d, each with a healthy DPU and 8 free virtual
// functions, and volume vol with the replication given, bound.
func newWorld(t *testing.T, shares, replicas int32) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(
		&storagev1alpha1.DPUVolume{}, &storagev1alpha1.DPUVolumeAttachment{}, &moorv1alpha1.DPUStorageNode{}, &corev1.Node{})
	for _, i := range index.Replicas() {
		b.WithIndex(i.Object, i.Field, i.Extract)
	}
	w := &world{t: t, c: b.Build(), clock: testclock.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 6e8, time.UTC))}
	w.r = &Reconciler{Options: Options{
		Host: kube.Cluster{Client: interceptor.NewClient(w.c, w.funcs()), Live: w.c}, Clock: w.clock, Namespace: namespace, Driver: driver,
		Reserve: 1, ReleaseAfter: 5 * time.Minute, Patience: 2 * time.Minute, TopologyKey: corev1.LabelTopologyZone,
	}}
	for _, n := range []string{"a", "b", "c", "d"} {
		w.host(n, 8)
	}
	w.volume("vol", shares, replicas)
	return w
}

func (w *world) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if into, ok := l.(*storagev1alpha1.DPUVolumeAttachmentList); ok && w.stale != nil {
				w.stale.DeepCopyInto(into)
				return nil
			}
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes++
			o.SetFinalizers([]string{held})
			o.SetUID(types.UID(fmt.Sprint(o.GetName(), w.writes)))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.writes++
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.writes++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) add(o client.Object) { w.t.Helper(); w.must(w.c.Create(w.t.Context(), o)) }

func (w *world) host(name string, free int64) {
	w.t.Helper()
	w.add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	w.add(&moorv1alpha1.DPUStorageNode{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name},
		Status: moorv1alpha1.DPUStorageNodeStatus{DPU: &moorv1alpha1.DPUState{SNAPReady: true, Functions: []moorv1alpha1.FunctionCount{{Type: "vf", Total: 16, Free: free}}}},
	})
}

func (w *world) volume(name string, shares, replicas int32) {
	w.t.Helper()
	w.add(&storagev1alpha1.DPUVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{held}},
		Spec: storagev1alpha1.DPUVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Replication: &storagev1alpha1.Replication{MaxShares: shares, MaxMountReplicaCount: replicas},
		},
		Status: storagev1alpha1.DPUVolumeStatus{Phase: storagev1alpha1.DPUVolumeBound},
	})
}

// attach makes an attachment as the CSI controller and hostcluster would.
func (w *world) attach(volume, node string, role storagev1alpha1.Role) *storagev1alpha1.DPUVolumeAttachment {
	w.t.Helper()
	yes := role != storagev1alpha1.RoleReplica
	name := kube.AttachmentName(node, volume)
	a := &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{held}, UID: types.UID(name)},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: node, DPUVolumeName: volume, Role: role,
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
		Status: storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: &yes, DPU: &storagev1alpha1.AttachedDPU{}},
	}
	w.add(a)
	return a
}

// detach deletes an attachment and lets it go.
func (w *world) detach(volume, node string) {
	w.t.Helper()
	w.must(client.IgnoreNotFound(w.c.Delete(w.t.Context(), w.attachment(volume, node))))
	w.letGo()
}

// letGo plays hostcluster: what is being deleted goes.
func (w *world) letGo() {
	w.t.Helper()
	for _, a := range w.all() {
		if !a.DeletionTimestamp.IsZero() {
			a.Finalizers = nil
			w.must(w.c.Update(w.t.Context(), &a))
		}
	}
}

func (w *world) all() []storagev1alpha1.DPUVolumeAttachment {
	w.t.Helper()
	var list storagev1alpha1.DPUVolumeAttachmentList
	w.must(w.c.List(w.t.Context(), &list))
	return list.Items
}

func (w *world) attachment(volume, node string) *storagev1alpha1.DPUVolumeAttachment {
	w.t.Helper()
	a := &storagev1alpha1.DPUVolumeAttachment{}
	w.must(w.c.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: kube.AttachmentName(node, volume)}, a))
	return a
}

// replicas are the nodes with a standing replica of a volume.
func (w *world) replicas(volume string) []string {
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

func (w *world) state(volume string) storagev1alpha1.ReplicaState {
	w.t.Helper()
	v := &storagev1alpha1.DPUVolume{}
	w.must(w.c.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: volume}, v))
	if v.Status.Replicas == nil {
		return storagev1alpha1.ReplicaState{}
	}
	return *v.Status.Replicas
}

// pass reconciles a volume, and again, which must not write.
func (w *world) pass(volume string) time.Duration {
	w.t.Helper()
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: volume}}
	got, err := w.r.Reconcile(w.t.Context(), req)
	w.must(err)
	// What the first pass deleted or made changes what the second sees.
	_, err = w.r.Reconcile(w.t.Context(), req)
	w.must(err)
	before := w.writes
	again, err := w.r.Reconcile(w.t.Context(), req)
	w.must(err)
	if n := w.writes - before; n != 0 {
		w.t.Errorf("a pass over what has not changed wrote %d times", n)
	}
	return max(got.RequeueAfter, again.RequeueAfter)
}

// pod makes a running pod on the volumes' claims, and their PersistentVolumes.
func (w *world) pod(name string, change func(*corev1.Pod), volumes ...string) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-" + v},
		}})
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + v}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: "apps", Name: "claim-" + v},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v}},
		}}
		if err := w.c.Create(w.t.Context(), pv); client.IgnoreAlreadyExists(err) != nil {
			w.t.Fatal(err)
		}
	}
	if change != nil {
		change(p)
	}
	w.add(p)
}

func (w *world) changeNode(name string, change func(*corev1.Node, *moorv1alpha1.DPUStorageNode)) {
	w.t.Helper()
	n, d := &corev1.Node{}, &moorv1alpha1.DPUStorageNode{}
	w.must(w.c.Get(w.t.Context(), client.ObjectKey{Name: name}, n))
	w.must(w.c.Get(w.t.Context(), client.ObjectKey{Name: name}, d))
	change(n, d)
	w.write(n)
	w.write(d)
}

// write writes an object and its status.
func (w *world) write(o client.Object) {
	w.t.Helper()
	want := o.DeepCopyObject().(client.Object)
	w.must(w.c.Status().Update(w.t.Context(), o))
	want.SetResourceVersion(o.GetResourceVersion())
	w.must(w.c.Update(w.t.Context(), want))
}

func (w *world) unattached() {
	a := w.attachment("vol", "a")
	no := false
	a.Status.DPUAttached = &no
	w.must(w.c.Status().Update(w.t.Context(), a))
}

func (w *world) free(n int64, nodes ...string) {
	for _, name := range nodes {
		w.changeNode(name, func(_ *kubeNode, d *dpuNode) { d.Status.DPU.Functions[0].Free = n })
	}
}

// ordered makes an attachment of another volume that has no function yet.
func (w *world) ordered(volume, node string) {
	a := w.attach(volume, node, primary)
	a.Status = storagev1alpha1.DPUVolumeAttachmentStatus{}
	w.must(w.c.Status().Update(w.t.Context(), a))
}

func (w *world) count(volume string) int {
	n := 0
	for _, a := range w.all() {
		if a.Spec.DPUVolumeName == volume {
			n++
		}
	}
	return n
}

func (w *world) notReady(node string, since time.Duration) {
	w.changeNode(node, func(k *kubeNode, _ *dpuNode) {
		k.Status.Conditions[0].Status = corev1.ConditionUnknown
		k.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.clock.Now().Add(-since))
	})
}

func (w *world) taint(node, key string) {
	w.changeNode(node, func(k *kubeNode, _ *dpuNode) {
		k.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	})
}

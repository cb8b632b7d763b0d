//go:build api

package nodepolicy

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/kit"
)

// dpus are what the account of the DPUs is on DPUs a and b, and without a node.
type dpus struct{ a, b, nowhere client.Client }

// openDPUs applies what is deployed in the DPU cluster, makes DPUs a and b and an attachment
// of each, and gets their tokens.
func openDPUs(t *testing.T) dpus {
	t.Helper()
	must(t, kit.Apply(t.Context(), clusters.DPU, filepath.Join("..", "..", "..", "deploy", "dpu")))
	for _, name := range []string{"a", "b"} {
		must(t, client.IgnoreAlreadyExists(clusters.DPU.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		must(t, client.IgnoreAlreadyExists(clusters.DPU.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		made := attachmentOf(name)
		must(t, clusters.DPU.Create(t.Context(), made))
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(clusters.DPU.Delete(context.WithoutCancel(t.Context()), made)); err != nil {
				t.Error(err)
			}
		})
	}
	on := func(dpu string) client.Client {
		return as(t, clusters.DPUConfig, clusters.DPU, tokenOf(t, clusters.DPUConfig, "snap-node-driver", dpu))
	}
	out := dpus{a: on("a"), b: on("b"), nowhere: on("")}
	must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		first := retire(ctx, out.a, "b", client.DryRunAll)
		second := out.a.Create(ctx, &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, client.DryRunAll)
		third := out.a.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: "probe"}}, client.DryRunAll)
		return apierrors.IsForbidden(first) && apierrors.IsForbidden(second) && apierrors.IsForbidden(third), nil
	}))
	return out
}

// attachmentOf is that of a volume to a DPU.
func attachmentOf(dpu string) *storagev1alpha1.VolumeAttachment {
	a := kubetest.VolumeAttachment("on-"+dpu, "vol", dpu)
	a.Namespace, a.UID = kit.Namespace, ""
	a.Finalizers, a.Spec.FunctionType = nil, storagev1alpha1.FunctionTypeVF
	return a
}

// changed writes what change makes of the attachment of a DPU; sub names a subresource.
func changed(ctx context.Context, c client.Client, dpu, sub string, change func(*storagev1alpha1.VolumeAttachment), options ...client.PatchOption) error {
	a := &storagev1alpha1.VolumeAttachment{}
	if err := clusters.DPU.Get(ctx, client.ObjectKeyFromObject(attachmentOf(dpu)), a); err != nil {
		return err
	}
	before := a.DeepCopy()
	change(a)
	if sub == "" {
		return c.Patch(ctx, a, client.MergeFrom(before), options...)
	}
	return c.SubResource(sub).Patch(ctx, a, client.MergeFrom(before), &client.SubResourcePatchOptions{PatchOptions: *(&client.PatchOptions{}).ApplyOptions(options)})
}

// retire is a receipt for the attachment of a DPU.
func retire(ctx context.Context, c client.Client, dpu string, options ...client.PatchOption) error {
	return changed(ctx, c, dpu, "status", func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch++ }, options...)
}

// TestDPUsAttachments: a DPU says of its own attachments what it shows, and nothing else.
func TestDPUsAttachments(t *testing.T) {
	d := openDPUs(t)
	hold := func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	}
	drop := func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil }
	on := func(c client.Client, dpu, sub string, change func(*storagev1alpha1.VolumeAttachment)) func() error {
		return func() error { return changed(t.Context(), c, dpu, sub, change) }
	}
	const own, others = "is its own finalizer", "DPU a may not touch an attachment of DPU b"
	for _, tc := range []struct {
		name  string
		act   func() error
		words string
	}{
		{"retires", func() error { return retire(t.Context(), d.a, "a") }, ""},
		{"tells people", on(d.a, "a", "status", func(a *storagev1alpha1.VolumeAttachment) { a.Status.Message = "waits" }), ""},
		{"retires for another", func() error { return retire(t.Context(), d.a, "b") }, others},
		{"retires from no node", func() error { return retire(t.Context(), d.nowhere, "a") }, "must be bound to its node"},
		{"the other does", func() error { return retire(t.Context(), d.b, "b") }, ""},
		{"speaks for the storage", on(d.a, "a", "status", func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageAttached = true }), "not what the storage says"},
		{"ends it for the storage", on(d.a, "a", "status", func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true }), "not what the storage says"},
		{"revokes for the storage", on(d.a, "a", "status", func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.Revocation = &storagev1alpha1.StorageRevocation{AttachmentUID: a.UID, Time: metav1.Now()}
		}), "not what the storage says"},
		{"holds", on(d.a, "a", "", hold), ""},
		{"holds another's", on(d.a, "b", "", hold), others},
		{"lets go", on(d.a, "a", "", drop), ""},
		{"grants itself an epoch", on(d.a, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 7 }), own},
		{"promotes itself", on(d.a, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }), own},
		{"annotates", on(d.a, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Annotations = map[string]string{"x": "y"} }), own},
		{"makes one", func() error {
			a := attachmentOf("a")
			a.Name = "new"
			return d.a.Create(t.Context(), a)
		}, "cannot create resource"},
		{"deletes one", func() error { return d.a.Delete(t.Context(), attachmentOf("a")) }, "cannot delete resource"},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, tc.act(), tc.words) })
	}
	// Others hold on to it by finalizers of their own.
	must(t, changed(t.Context(), clusters.DPU, "a", "", func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim, storagev1alpha1.FinalizerDPUAttachment}
	}))
	refused(t, changed(t.Context(), d.a, "a", "", drop), own)
	refused(t, changed(t.Context(), d.a, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = a.Finalizers[:1] }), "")
	must(t, changed(t.Context(), clusters.DPU, "a", "", drop))
}

// TestDPUsHeartbeats: a DPU beats for itself, in its object and in its Lease.
func TestDPUsHeartbeats(t *testing.T) {
	d := openDPUs(t)
	beat := func(c client.Client, name string, change func(*moorv1alpha1.DPUStorageNode)) error {
		n := &moorv1alpha1.DPUStorageNode{}
		must(t, clusters.DPU.Get(t.Context(), client.ObjectKey{Name: name}, n))
		before := n.DeepCopy()
		change(n)
		return c.Status().Patch(t.Context(), n, client.MergeFrom(before))
	}
	alive := func(n *moorv1alpha1.DPUStorageNode) {
		next := int64(1)
		if n.Status.DPU != nil {
			next += n.Status.DPU.Sequence
		}
		n.Status.DPU = &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: next}, Host: &moorv1alpha1.HostObservation{Alive: false}}
	}
	lease := func(of, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: moorv1alpha1.LeaseName(of)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	const only = "writes status.dpu of its DPUStorageNode, and nothing else"
	for _, tc := range []struct {
		name  string
		act   func() error
		words string
	}{
		{"beats", func() error { return beat(d.a, "a", alive) }, ""},
		{"says for another that its host is dead", func() error { return beat(d.a, "b", alive) }, "DPU a may not beat for DPU b"},
		{"beats from no node", func() error { return beat(d.nowhere, "a", alive) }, "must be bound to its node"},
		{"speaks for its host", func() error {
			return beat(d.a, "a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host = &moorv1alpha1.HostState{MaxVolumes: 1} })
		}, only},
		{"makes another's", func() error {
			return d.a.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
		}, "may not beat for DPU"},
		{"deletes one", func() error { return d.a.Delete(t.Context(), kubetest.DPUStorageNode("b")) }, "cannot delete resource"},
		{"makes its Lease", func() error { return d.a.Create(t.Context(), lease("a", "a")) }, ""},
		{"renews it", func() error {
			l := &coordinationv1.Lease{}
			must(t, clusters.DPU.Get(t.Context(), client.ObjectKeyFromObject(lease("a", "a")), l))
			l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			return d.a.Update(t.Context(), l)
		}, ""},
		{"makes another's Lease", func() error { return d.a.Create(t.Context(), lease("b", "b")) }, "may not write Lease"},
		{"holds it for another", func() error {
			l := &coordinationv1.Lease{}
			must(t, clusters.DPU.Get(t.Context(), client.ObjectKeyFromObject(lease("a", "a")), l))
			b := "b"
			l.Spec.HolderIdentity = &b
			return d.a.Update(t.Context(), l)
		}, "holds its Lease itself"},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, tc.act(), tc.words) })
	}
	must(t, clusters.DPU.Delete(t.Context(), lease("a", "a")))
}

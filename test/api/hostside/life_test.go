//go:build api

package hostside

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/test/kit"
)

// TestLife walks a volume through its life with the real managers, woken by
// real watches alone.
func TestLife(t *testing.T) {
	startHostController(t)
	startDPUCluster(t)
	for _, h := range []string{"life-a", "life-b"} {
		must(t, clusters.Host.Create(t.Context(), kubetest.DPUStorageNode(h)))
	}
	for _, o := range []client.Object{kubetest.StorageClass("vendor"), kubetest.CSIDriver("vendor", nil)} {
		must(t, clusters.DPU.Create(t.Context(), o))
	}
	policy, vendor := kubetest.DPUStoragePolicy("policy", "vendor"), kubetest.DPUStorageVendor("vendor")
	volume := kubetest.DPUVolume("life", corev1.ReadWriteOnce)
	for _, o := range []client.Object{volume, policy, vendor} { // in the wrong order
		create(t, o)
	}
	until(t, policy, "the policy is ready", func() bool { return ready(policy.Status.Conditions) })
	until(t, volume, "the volume is bound", func() bool {
		return volume.Status.Phase == storagev1alpha1.DPUVolumeBound && ready(volume.Status.Conditions)
	})

	a, b := kubetest.DPUVolumeAttachment("life", "life-a"), kubetest.DPUVolumeAttachment("life", "life-b")
	create(t, a)
	shownUnder(t, a, 1)
	create(t, b)
	until(t, b, "the second host waits in words", func() bool {
		return b.Status.Message == "volume life has a single writer, and DPU dpu-life-a holds it (attachment life-a-life, epoch 1): this attachment waits until that one is deleted"
	})
	claimIs(t, moorv1alpha1.ClaimGranted, "dpu-life-a", 1)

	must(t, clusters.Host.Delete(t.Context(), a))
	gone(t, a)
	shownUnder(t, b, 2) // only the claim's watch wakes it
	claimIs(t, moorv1alpha1.ClaimGranted, "dpu-life-b", 2)

	must(t, clusters.Host.Delete(t.Context(), volume))
	until(t, volume, "the volume waits for its attachment", func() bool {
		return kubetest.Conditions(volume.Status.Conditions, storagev1alpha1.ConditionDPUVolumeReconciled)[0] == "DPUVolumeReconciled=False/AwaitingDeletion: volume is attached: life-b-life"
	})
	must(t, clusters.Host.Delete(t.Context(), b))
	gone(t, b)
	claim := claimIs(t, moorv1alpha1.ClaimFree, "", 2)
	if n := len(claim.Receipts); n != 2 || claim.Receipts[0].Holder != "dpu-life-a" || claim.Receipts[1].Holder != "dpu-life-b" || claim.Receipts[1].Kind != moorv1alpha1.ReceiptDPU {
		t.Errorf("receipts %+v", claim.Receipts)
	}
	gone(t, volume)
	must(t, clusters.Host.Delete(t.Context(), vendor))
	until(t, vendor, "the vendor waits for its policy", func() bool {
		return kubetest.Conditions(vendor.Status.Conditions, storagev1alpha1.ConditionDPUStorageVendorReconciled)[0] == "DPUStorageVendorReconciled=False/AwaitingDeletion: still named by DPUStoragePolicy policy"
	})
	must(t, clusters.Host.Delete(t.Context(), policy))
	gone(t, policy)
	gone(t, vendor)
	nothingLeft(t)
}

// TestSameNameAgain: an attachment that is deleted and made again under its
// name gets the next epoch, ten times over.
func TestSameNameAgain(t *testing.T) {
	r := newRace(t, "again")
	r.hosts = r.hosts[:1]
	for epoch := int64(1); epoch <= 10; epoch++ {
		r.attach(t)
		if c := r.claim(t); c.Epoch != epoch || c.Holder != "dpu-again-a" {
			t.Fatalf("the claim is %+v, want epoch %d", c, epoch)
		}
		r.detach(t)
	}
}

func ready(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, storagev1alpha1.ConditionReady)
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	o.SetNamespace(kit.Namespace)
	must(t, clusters.Host.Create(t.Context(), o))
}

func shownUnder(t *testing.T, a *storagev1alpha1.DPUVolumeAttachment, epoch int64) {
	t.Helper()
	until(t, a, fmt.Sprintf("%s is shown under epoch %d", a.Name, epoch), func() bool {
		return a.Status.DPUAttached != nil && *a.Status.DPUAttached && a.Status.Epoch == epoch && a.Status.DPU != nil &&
			a.Status.DPU.PCIAddress == "3b:00.2" && ready(a.Status.Conditions)
	})
}

func claimIs(t *testing.T, phase moorv1alpha1.ClaimPhase, holder string, epoch int64) moorv1alpha1.WriterClaimStatus {
	t.Helper()
	claim := &moorv1alpha1.WriterClaim{}
	must(t, clusters.DPU.Get(t.Context(), client.ObjectKey{Namespace: kit.Namespace, Name: "life"}, claim))
	if s := claim.Status; s == nil || s.Phase != phase || s.Holder != holder || s.Epoch != epoch {
		t.Errorf("the claim is %+v, want %s of %q under epoch %d", s, phase, holder, epoch)
	}
	return *claim.Status
}

// until reads o again and again until it is as wanted.
func until(t *testing.T, o client.Object, what string, as func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
		if err := clusters.Host.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, err
		}
		return as(), nil
	})
	if err != nil {
		t.Fatalf("%s: %v; it is %+v", what, err, o)
	}
}

func gone(t *testing.T, o client.Object) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
		err := clusters.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%s never goes: %v; it is %+v", o.GetName(), err, o)
	}
}

// nothingLeft looks for what the life should have taken with it.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{
		&storagev1alpha1.Volume{ObjectMeta: named("life")}, &storagev1alpha1.StoragePolicy{ObjectMeta: named("policy")},
		&storagev1alpha1.StorageVendor{ObjectMeta: named("vendor")},
		&storagev1alpha1.VolumeAttachment{ObjectMeta: named("life-a-life")}, &storagev1alpha1.VolumeAttachment{ObjectMeta: named("life-b-life")},
	} {
		if err := clusters.DPU.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: %v, want it gone", o, o.GetName(), err)
		}
	}
}

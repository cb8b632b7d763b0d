package failover

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestStorageIsNotAskedAboutADPUThatIsHeard: that DPU withdraws by itself, and the
// storage would cut it off in the middle.
func TestStorageIsNotAskedAboutADPUThatIsHeard(t *testing.T) {
	s := newFixture(t)
	s.vouch()
	s.seenDead("a")
	s.mustPass()
	s.noticed()
	for range 5 {
		s.live(10, "dpu-a", "b", "dpu-b")
		s.mustPass()
	}
	s.wantPhase(fencing)
	if sv, found := s.sv(); !found || !sv.DeletionTimestamp.IsZero() {
		t.Fatal("the storage was asked to revoke a DPU that is heard")
	}
	s.live(40, "b", "dpu-b")
	s.mustPass()
	if sv, found := s.sv(); !found || sv.DeletionTimestamp.IsZero() {
		t.Error("the storage was not asked to revoke a DPU that has fallen silent")
	}
}

// TestADPUThatIsHeardLetsGoByItself: its right is over by the storage's word, but
// it may still show the device, so its finalizer is its own to take off.
func TestADPUThatIsHeardLetsGoByItself(t *testing.T) {
	s := bothDead(t)
	s.vouch()
	s.noticed()
	s.mustPass()
	s.revoked()
	s.mustPass()
	s.wantPhase(freed)
	s.live(10, "dpu-a", "b", "dpu-b")
	s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	left := func() []string {
		s.mustPass()
		m, _ := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")})
		return m.Finalizers
	}
	if got := left(); !slices.Contains(got, storagev1alpha1.FinalizerDPUAttachment) || !slices.Contains(got, storagev1alpha1.FinalizerWriterClaim) {
		t.Fatalf("of a DPU that is heard: finalizers %v", got)
	}
	s.live(40, "b", "dpu-b")
	if got := left(); slices.Contains(got, storagev1alpha1.FinalizerDPUAttachment) {
		t.Errorf("of one that is silent again: finalizers %v", got)
	}
}

// replacing is an API server where a pod is replaced by one of the same name, on
// another host, right before it is deleted.
type replacing struct {
	client.Client
	t *testing.T
}

func (r replacing) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	old, ok := o.(*corev1.Pod)
	if !ok {
		return r.Client.Delete(ctx, o, options...)
	}
	anew := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, UID: types.UID("anew")}, Spec: *old.Spec.DeepCopy()}
	anew.Spec.NodeName = "b"
	if err := r.Client.Delete(ctx, old.DeepCopy()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Client.Create(ctx, anew); err != nil {
		r.t.Fatal(err)
	}
	asked := (&client.DeleteOptions{}).ApplyOptions(options)
	if p := asked.Preconditions; p != nil && p.UID != nil && *p.UID != anew.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, old.Name, nil)
	}
	return r.Client.Delete(ctx, anew)
}

// TestThePodThatWasReadIsDeleted, and none that has come in its place.
func TestThePodThatWasReadIsDeleted(t *testing.T) {
	s := newFixture(t)
	s.change(func(o *Options) { o.Host.Client = replacing{o.Host.Client, t} })
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	p, found := kubetest.Read(s.Host, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}})
	if !found || p.UID != "anew" {
		t.Errorf("the pod on another host was deleted: found %v, %s", found, p.UID)
	}
}

package detach

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// quiet checks that a pass reads nothing live and writes nothing.
func (s fixture) quiet(when string) {
	s.t.Helper()
	reads, writes := s.LiveReads(), s.Writes()
	s.mustPass()
	if r, w := s.LiveReads()-reads, s.Writes()-writes; r+w != 0 {
		s.t.Errorf("%s: %d objects read live, %d writes", when, r, w)
	}
}

// TestWaitsWithoutReading: while the caches show that there is nothing to do, nothing is
// read live; and all is done when there is.
func TestWaitsWithoutReading(t *testing.T) {
	s := newFixture(t)
	s.r.Host = s.Host.Cluster
	host := kubetest.DPUStorageNode("a")
	failover := func(status metav1.ConditionStatus) {
		kubetest.Change(s.Host, host, func(n *moorv1alpha1.DPUStorageNode) {
			meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: moorv1alpha1.ConditionFailover, Status: status, Reason: "Test"})
		})
	}
	s.Host.Add(host, kubetest.DPUVolumeAttachment("vol", "a"))
	failover(metav1.ConditionTrue)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Spec.Epoch = 4
		a.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment, storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim}
		a.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: kubetest.HostNamespace + "/a-vol"}
	})
	s.DPU.Remove(s.attachment())
	gone, _ := kubetest.Read(s.DPU, s.attachment())
	s.Clock.SetTime(gone.DeletionTimestamp.Time)
	s.quiet("the DPU still shows it")

	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	s.quiet("the vendor has a moment")
	s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Phase = moorv1alpha1.ClaimFencing })
	s.Clock.SetTime(gone.DeletionTimestamp.Add(failoverFirst - time.Second))
	s.quiet("the failover frees the claim")
	s.Clock.SetTime(gone.DeletionTimestamp.Add(failoverFirst))
	s.mustPass()
	if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree {
		t.Fatalf("the claim is %+v, want it free", c)
	}
	s.quiet("the host fails over, and keeps the attachment")

	failover(metav1.ConditionFalse)
	s.mustPass()
	if a, _ := kubetest.Read(s.DPU, s.attachment()); len(a.Finalizers) != 2 {
		t.Errorf("finalizers %v, want the claim's hold to be off", a.Finalizers)
	}
}

// TestReadsOnce: what is decided is done with the attachment as it was read, by
// compare-and-swap; where another wrote meanwhile, it is read again, and stays if it is
// another's or not released any more.
func TestReadsOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(fixture)
		reads     int
		stays     bool
		// held: the hold of the right is on it still.
		held bool
	}{
		"nothing happens": {func(fixture) {}, 2, false, false},
		"another writes": {func(s fixture) {
			kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true })
		}, 3, false, false},
		"the DPU shows it again": {func(s fixture) {
			kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
				a.Status.DPU.Attached, a.Status.DPU.RetiredEpoch = true, 0
				a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
			})
		}, 3, true, true},
		"it goes": {func(s fixture) { s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil }) }, 2, false, false},
		"another comes and goes": {func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil })
			another := attachment(false, false, false)
			another.UID = "another"
			s.DPU.Add(another)
			s.DPU.Remove(another)
		}, 3, true, true},
		"its hold is taken off": {func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = []string{"vendor"} })
		}, 3, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			kubetest.Change(s.DPU, s.attachment(), released)
			s.DPU.Remove(s.attachment())
			s.AfterWrite(func(_ string, o client.Object) {
				if _, is := o.(*moorv1alpha1.WriterClaim); is {
					tc.meanwhile(s)
				}
			})
			before := s.LiveReads()
			s.mustPass()
			if n := s.LiveReads() - before; n != tc.reads {
				t.Errorf("%d objects read live, want %d", n, tc.reads)
			}
			a, found := kubetest.Read(s.DPU, s.attachment())
			if found != tc.stays {
				t.Errorf("the attachment is there: %v", found)
			}
			if held := found && slices.Contains(a.Finalizers, storagev1alpha1.FinalizerWriterClaim); held != tc.held {
				t.Errorf("the hold of the right is on it: %v", held)
			}
		})
	}
}

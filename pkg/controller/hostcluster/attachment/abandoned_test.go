package attachment

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// abandon takes the attachment of host a away by force, while its DPU shows the volume.
func abandon(w *kubetest.Clusters) {
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) {
		m.Finalizers = append(m.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
		m.Status.DPU.Attached, m.Status.DPU.Epoch = true, 1
	})
	kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	w.Host.Remove(user("a"))
}

// TestAbandonedIsTakenBack: an attachment that waits for one which no DPUVolumeAttachment
// wants any more asks its DPU to withdraw the volume. The claim stays until it has.
func TestAbandonedIsTakenBack(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"))
	w.MustReconcile(r, "a-vol")
	abandon(w)
	w.MustReconcile(r, "b-vol")
	if m, found := kubetest.Read(w.DPU, mirror("a")); !found || m.DeletionTimestamp.IsZero() {
		t.Errorf("the VolumeAttachment that no DPUVolumeAttachment wants: there %v, deleted at %v", found, m.DeletionTimestamp)
	}
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-a" {
		t.Errorf("without a receipt the claim is %+v", c)
	}
	if got, want := messageOn(w, "b"), "DPUVolumeAttachment a-vol was taken away by force, and its VolumeAttachment in the DPU cluster is deleted: waiting for DPU dpu-a to withdraw the volume"; got != want {
		t.Errorf("the host is told %q, want %q", got, want)
	}
	freeClaim(w)
	w.MustReconcile(r, "b-vol")
	if c := claimOf(w).Status; c.Holder != "dpu-b" || c.Epoch != 2 {
		t.Errorf("with the receipt the claim is %+v", c)
	}
}

// TestWantedIsNotTakenBack: an attachment that only the cache lacks, one that has come anew,
// and one that no DPUVolumeAttachment has asked for.
func TestWantedIsNotTakenBack(t *testing.T) {
	for name, change := range map[string]func(*kubetest.Clusters){
		"the cache lacks it": func(w *kubetest.Clusters) { w.CacheHides(user("a")) },
		"one has come anew": func(w *kubetest.Clusters) {
			abandon(w)
			w.Host.Add(user("a"))
		},
		"made by hand": func(w *kubetest.Clusters) {
			abandon(w)
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Annotations = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"), user("b"))
			w.MustReconcile(r, "a-vol")
			change(w)
			w.MustReconcile(r, "b-vol")
			if m, found := kubetest.Read(w.DPU, mirror("a")); !found || !m.DeletionTimestamp.IsZero() {
				t.Errorf("its VolumeAttachment: there %v, deleted at %v", found, m.DeletionTimestamp)
			}
			if got := messageOn(w, "b"); !strings.Contains(got, "this attachment waits until that one is deleted") {
				t.Errorf("the host is told %q", got)
			}
		})
	}
}

// TestAbandonedBySilent: a DPU that is silent does not withdraw anything. The attachment that
// waits is told the command, and an operator's word counts only of a DPU that is silent.
func TestAbandonedBySilent(t *testing.T) {
	w, r := open(t)
	silent := true
	r.Clock, r.Silent = w.Clock, func(dpu string) bool { return silent && dpu == "dpu-a" }
	w.Host.Add(user("a"), user("b"))
	w.MustReconcile(r, "a-vol")
	abandon(w)
	w.MustReconcile(r, "b-vol")
	if got := messageOn(w, "b"); !strings.Contains(got, "waiting for DPU dpu-a to withdraw the volume, which is silent; an operator who knows") || !strings.Contains(got, "patch writerclaim vol --type merge") {
		t.Errorf("the host is told %q", got)
	}
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{
			Epoch: 1, Holder: "dpu-a", AttachmentUID: c.Status.AttachmentUID, Time: &metav1.Time{Time: w.Clock.Now()}, Operator: "jo", Reason: "it is switched off",
		}
	})
	silent = false
	w.MustReconcile(r, "b-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-a" {
		t.Fatalf("a word about a DPU that can answer counted: %+v", c)
	}
	silent = true
	w.MustReconcile(r, "b-vol")
	w.MustReconcile(r, "b-vol")
	if c := claimOf(w).Status; c.Holder != "dpu-b" || c.Epoch != 2 || c.RevokedEpoch("dpu-a") != 1 {
		t.Errorf("the claim is %+v", c)
	}
}

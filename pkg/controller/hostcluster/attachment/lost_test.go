package attachment

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// loseClaim takes the claim away by force.
func loseClaim(w *kubetest.Clusters) {
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
	w.DPU.Remove(claimOf(w))
}

// TestClaimIsLost: a claim that is gone while a DPU shows the volume is not free. An
// attachment that waits says so; the next epoch is above the one that was.
func TestClaimIsLost(t *testing.T) {
	for name, lose := range map[string]func(*kubetest.Clusters){
		"deleted": loseClaim,
		"without its status": func(w *kubetest.Clusters) {
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Status = nil })
		},
		"older": func(w *kubetest.Clusters) {
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"), user("b"))
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, mirror("a"), shown)
			w.MustReconcile(r, "a-vol")
			lose(w)
			for _, host := range []string{"b", "a"} {
				w.MustReconcile(r, host+"-vol")
				if got := messageOn(w, host); !strings.Contains(got, "DPU dpu-a (VolumeAttachment a-vol, epoch 1)") {
					t.Errorf("host %s is told %q", host, got)
				}
			}
			if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimLost || c.Epoch != 1 {
				t.Fatalf("the claim is %+v", c)
			}
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) {
				m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 1, RetiredEpoch: 1}
			})
			w.MustReconcile(r, "b-vol")
			if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-b" || c.Epoch != 2 {
				t.Errorf("the claim is %+v", c)
			}
		})
	}
}

// TestHostClusterRemembers: an epoch that the host cluster alone knows of is one that was.
func TestHostClusterRemembers(t *testing.T) {
	w, r := open(t)
	there := user("b")
	there.Status.Epoch = 7
	w.Host.Add(user("a"), there)
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c == nil || c.Phase != moorv1alpha1.ClaimLost || c.Epoch != 7 || c.Lost[0].DPU != "dpu-b" {
		t.Errorf("the claim is %+v", c)
	}
}

// TestNewClaimIsKept: a claim has its finalizer from the beginning, and one of before gets it.
func TestNewClaimIsKept(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	if f := claimOf(w).Finalizers; len(f) != 1 || f[0] != storagev1alpha1.FinalizerEpochs {
		t.Errorf("finalizers %v", f)
	}
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
	w.MustReconcile(r, "a-vol")
	if f := claimOf(w).Finalizers; len(f) != 1 {
		t.Errorf("one of before has finalizers %v", f)
	}
}

// TestLostAgain: that the cache shows a claim as lost is not relied on: one that is gone or
// made anew since is held against what others know as any other.
func TestLostAgain(t *testing.T) {
	for name, again := range map[string]func(*kubetest.Clusters){
		"gone": func(*kubetest.Clusters) {},
		"made anew": func(w *kubetest.Clusters) {
			c := kubetest.WriterClaim("vol", "", "", 0)
			c.UID, c.Status = "anew", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree}
			w.DPU.Add(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"), user("b"))
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, mirror("a"), shown)
			w.MustReconcile(r, "a-vol")
			loseClaim(w)
			w.MustReconcile(r, "b-vol")
			lost := claimOf(w)
			loseClaim(w)
			again(w)
			w.CacheShows(lost)
			w.MustReconcile(r, "a-vol")
			if c := claimOf(w).Status; c == nil || c.Phase != moorv1alpha1.ClaimLost || c.Epoch != 1 {
				t.Errorf("the claim is %+v", c)
			}
		})
	}
}

// TestGivenBackIsGrantedAbove: a DPU has retired, by its journal, more epochs than the claim and
// the host cluster know of. The next grant is above them all.
func TestGivenBackIsGrantedAbove(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.RetiredEpoch = 7 })
	freeClaim(w) // as detach does by that receipt
	for range 3 {
		w.MustReconcile(r, "a-vol")
	}
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Epoch != 8 {
		t.Errorf("the claim is %+v", c)
	}
}

// TestMarkThatACacheLacks: a claim that is made anew begins after the last grant that the API
// server of the host cluster knows of, also if the cache does not show it.
func TestMarkThatACacheLacks(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	old, _ := kubetest.Read(w.Host, kubetest.DPUVolume("vol"))
	kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 5, DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b"}
	})
	w.CacheShows(old)
	_ = w.Reconcile(r, "a-vol")
	if got := claimOf(w).Spec.AfterEpoch; got != 5 {
		t.Errorf("the claim begins after epoch %d, want 5", got)
	}
}

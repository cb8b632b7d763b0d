package attachment

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// freeClaim plays the end of the right to write.
func freeClaim(w *kubetest.Clusters) {
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: c.Status.Epoch}
	})
}

// strip takes all holds off the VolumeAttachment of host a, by force, and deletes it.
func strip(w *kubetest.Clusters) { stripOf(w, "a") }

func stripOf(w *kubetest.Clusters, host string) {
	kubetest.Change(w.DPU, mirror(host), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	w.DPU.Remove(mirror(host))
}

func messageOn(w *kubetest.Clusters, host string) string {
	a, _ := kubetest.Read(w.Host, user(host))
	return a.Status.Message
}

const bereft = "for VolumeAttachment a-vol (UID VolumeAttachment-a-vol-1), which is gone without a receipt"

// TestStrippedIsNotMadeAnew: a VolumeAttachment that was taken away by force is not made
// again while the claim is held for it: the new one would say nothing of what its DPU
// shows. An attachment that waits says for whom, and what to do.
func TestStrippedIsNotMadeAnew(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"))
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "a-vol") // the cache has shown it
	before := *claimOf(w).Status
	strip(w)
	for _, host := range []string{"a", "b"} {
		w.MustReconcile(r, host+"-vol")
		if got := messageOn(w, host); !strings.Contains(got, "DPU dpu-a holds the right to write volume vol (epoch 1)") || !strings.Contains(got, bereft) || !strings.Contains(got, "WriterClaim vol") {
			t.Errorf("host %s is told %q", host, got)
		}
		if _, found := kubetest.Read(w.DPU, mirror(host)); found {
			t.Errorf("a VolumeAttachment was made for host %s", host)
		}
	}
	if c := claimOf(w).Status; c.Phase != before.Phase || c.Epoch != before.Epoch || c.AttachmentUID != before.AttachmentUID {
		t.Errorf("the claim is %+v", c)
	}
	freeClaim(w)
	w.MustReconcile(r, "a-vol")
	if m, found := kubetest.Read(w.DPU, mirror("a")); !found || m.Spec.Epoch != 2 || claimOf(w).Status.AttachmentUID != m.UID {
		t.Errorf("with a receipt it is not made anew: %+v, the claim is %+v", m.Spec, claimOf(w).Status)
	}
}

// TestStrippedReplicaIsNotMadeAnew: a replica that was promoted early holds the claim too, so
// the same holds for it, and only as long as the claim is held for it.
func TestStrippedReplicaIsNotMadeAnew(t *testing.T) {
	w, r := earlyPrimary(t)
	w.CacheHides(mirror("b"))
	w.MustReconcile(&Reconciler{Clusters: r.Clusters, Users: r.Users}, "b-vol")
	if m, found := kubetest.Read(w.DPU, mirror("b")); !found || m.UID != claimOf(w).Status.AttachmentUID {
		t.Errorf("one that the cache alone lacks: found %v, %s", found, m.UID)
	}
	stripOf(w, "b")
	w.MustReconcile(r, "b-vol")
	if _, found := kubetest.Read(w.DPU, mirror("b")); found {
		t.Error("a VolumeAttachment was made in the place of the one that holds the claim")
	}
	if got := messageOn(w, "b"); !strings.Contains(got, "for VolumeAttachment b-vol (UID ") || !strings.Contains(got, "which is gone without a receipt") {
		t.Errorf("the host is told %q", got)
	}
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status.Holder, c.Status.Attachment, c.Status.AttachmentUID, c.Status.Epoch = "dpu-a", "a-vol", "another", 3
	})
	w.MustReconcile(r, "b-vol")
	if m, found := kubetest.Read(w.DPU, mirror("b")); !found || m.Spec.Epoch != 0 {
		t.Errorf("another holds the claim, and the replica is not made: found %v, epoch %d", found, m.Spec.Epoch)
	}
}

// TestReplicaIsMadeForALostClaim: a DPU that may still write by a claim that was lost, and whose
// VolumeAttachment went with the restore, says on the replica's that it has withdrawn the volume.
func TestReplicaIsMadeForALostClaim(t *testing.T) {
	w, r := earlyPrimary(t)
	stripOf(w, "b")
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		s := c.Status
		s.Phase, s.LostEpoch = moorv1alpha1.ClaimLost, s.Epoch
		s.Lost = []moorv1alpha1.LostHolder{{DPU: s.Holder, Attachment: s.Attachment, Epoch: s.Epoch}}
		s.AttachmentUID = ""
	})
	w.MustReconcile(r, "b-vol")
	if m, found := kubetest.Read(w.DPU, mirror("b")); !found || m.Spec.Epoch != 0 {
		t.Errorf("the VolumeAttachment of the replica: there %v, and the host is told %q", found, messageOn(w, "b"))
	}
}

// TestMadeAnewInheritsNothing: one that was made by another in the place of the one that
// holds the claim is told no epoch.
func TestMadeAnewInheritsNothing(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	anew, _ := kubetest.Read(w.DPU, mirror("a"))
	strip(w)
	anew.UID, anew.ResourceVersion, anew.Spec.Epoch = "", "", 0
	w.DPU.Add(anew)
	w.MustReconcile(r, "a-vol")
	if m, _ := kubetest.Read(w.DPU, mirror("a")); m.Spec.Epoch != 0 {
		t.Errorf("it has epoch %d", m.Spec.Epoch)
	}
	if got := messageOn(w, "a"); !strings.Contains(got, bereft) {
		t.Errorf("the host is told %q", got)
	}
}

// TestStrippedStaysUntilProven: the attachment of the host cluster stays while the claim is
// held for what is gone: failover looks at what is attached.
func TestStrippedStaysUntilProven(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	strip(w)
	w.Host.Remove(user("a"))
	w.MustReconcile(r, "a-vol")
	if _, found := kubetest.Read(w.Host, user("a")); !found {
		t.Fatal("the attachment went, and the claim is held")
	}
	if got := messageOn(w, "a"); !strings.Contains(got, bereft) {
		t.Errorf("the host is told %q", got)
	}
	held := claimOf(w)
	freeClaim(w)
	w.CacheShows(held) // an old one holds nothing up
	w.MustReconcile(r, "a-vol")
	if _, found := kubetest.Read(w.Host, user("a")); found {
		t.Error("the attachment is still there")
	}
}

// TestHeldIsNotGone: a VolumeAttachment that the cache lacks is not said to be gone.
func TestHeldIsNotGone(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"))
	w.MustReconcile(r, "a-vol")
	fresh := &Reconciler{Clusters: r.Clusters, Users: r.Users}
	w.CacheHides(mirror("a"))
	for _, host := range []string{"a", "b"} {
		w.MustReconcile(fresh, host+"-vol")
		if got := messageOn(w, host); strings.Contains(got, "gone") {
			t.Errorf("host %s is told %q", host, got)
		}
	}
}

// TestBindsAClaimOfBefore: a claim that says no UID is bound to the VolumeAttachment of its
// name once the DPU has its finalizer there, and not before; what runs goes on.
func TestBindsAClaimOfBefore(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "" })
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.AttachmentUID != "" {
		t.Errorf("bound to what the DPU may never have seen: %+v", c)
	}
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.AttachmentUID != "VolumeAttachment-a-vol-1" || c.Phase != moorv1alpha1.ClaimGranted || c.Epoch != 1 {
		t.Errorf("not bound: %+v", c)
	}
	before := w.Writes()
	w.MustReconcile(r, "a-vol")
	if n := w.Writes() - before; n > 1 {
		t.Errorf("%d writes, want the status alone", n)
	}
}

// TestBlankProvesNothingOfAClaimOfBefore: its end is no receipt, and that is said.
func TestBlankProvesNothingOfAClaimOfBefore(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "" })
	w.Host.Remove(user("a"))
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "a-vol")
	if got := messageOn(w, "a"); !strings.Contains(got, "before claims said for which VolumeAttachment") || !strings.Contains(got, "WriterClaim vol") {
		t.Errorf("the host is told %q", got)
	}
}

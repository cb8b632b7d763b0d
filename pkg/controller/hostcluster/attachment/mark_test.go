package attachment

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/writer"
)

func volumeOf(w *kubetest.Clusters) *storagev1alpha1.DPUVolume {
	v, _ := kubetest.Read(w.Host, kubetest.DPUVolume("vol"))
	return v
}

// TestGrantIsMarked: the host cluster remembers a grant before the DPU can learn of it, by
// one write, and by none while it lasts.
func TestGrantIsMarked(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.AfterWrite(func(_ string, o client.Object) {
		m, ok := o.(*storagev1alpha1.VolumeAttachment)
		if last := volumeOf(w).Status.LastGrant; ok && m.Spec.Epoch != 0 && (last == nil || last.Epoch != m.Spec.Epoch) {
			t.Errorf("the DPU may learn of epoch %d, and the host cluster remembers %+v", m.Spec.Epoch, last)
		}
	})
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "a-vol")
	want := storagev1alpha1.LastGrant{Epoch: 1, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: kubetest.AttachmentUID("a-vol")}
	if last := volumeOf(w).Status.LastGrant; last == nil || *last != want {
		t.Fatalf("it is remembered as %+v", last)
	}
	if n := w.WritesOn(&storagev1alpha1.DPUVolume{}); n != 1 {
		t.Errorf("%d writes for one grant", n)
	}
	// The claim is granted, and the mark was not written, or is that of a host cluster which was restored.
	kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Status.LastGrant = nil })
	w.MustReconcile(r, "a-vol")
	if last := volumeOf(w).Status.LastGrant; last == nil || *last != want {
		t.Errorf("of a grant of before it is remembered %+v", last)
	}
}

// TestNothingIsToldUnmarked: while the host cluster does not remember a grant, no DPU
// learns of it; it goes on once it does.
func TestNothingIsToldUnmarked(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	for n := 1; ; n++ { // whichever write fails
		w.LoseWrite(n, false)
		err := w.Reconcile(r, "a-vol")
		m, found := kubetest.Read(w.DPU, mirror("a"))
		if found && m.Spec.Epoch != 0 && volumeOf(w).Status.LastGrant == nil {
			t.Fatalf("write %d was lost, and the DPU learns of epoch %d", n, m.Spec.Epoch)
		}
		if err == nil || n > 20 {
			break
		}
	}
	if m, _ := kubetest.Read(w.DPU, mirror("a")); m == nil || m.Spec.Epoch != 1 {
		t.Errorf("it does not go on: %+v", m)
	}
}

// TestNamelessIsNotMarked: a claim that does not say to which object it was granted is
// remembered once it does.
func TestNamelessIsNotMarked(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "" })
	kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Status.LastGrant = nil })
	w.MustReconcile(r, "a-vol")
	if last := volumeOf(w).Status.LastGrant; last != nil {
		t.Errorf("it is remembered as %+v", last)
	}
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol") // binds it
	w.MustReconcile(r, "a-vol")
	if last := volumeOf(w).Status.LastGrant; last == nil || last.AttachmentUID != kubetest.AttachmentUID("a-vol") {
		t.Errorf("it is remembered as %+v", last)
	}
}

// lose restores the claim to what it was before all grants, or takes it away, while the
// host cluster remembers epoch 5 of DPU dpu-a.
func lose(w *kubetest.Clusters, over bool) {
	c := kubetest.WriterClaim("vol", "", "", 2)
	c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 2}
	w.DPU.Add(c)
	kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 5, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "before", Over: over}
	})
}

// TestOnlyTheMarkKnows: with a claim that was restored, and no attachment left that knows of
// an epoch, the DPU of the last grant is waited for; it says that it has cleared up by an
// attachment of its host, made anew.
func TestOnlyTheMarkKnows(t *testing.T) {
	w, r := open(t)
	lose(w, false)
	w.Host.Add(user("b"))
	w.MustReconcile(r, "b-vol")
	c := claimOf(w).Status
	if c.Phase != moorv1alpha1.ClaimLost || c.Epoch != 5 || c.LostEpoch != 5 || len(c.Lost) != 1 || c.Lost[0].DPU != "dpu-a" {
		t.Fatalf("the claim is %+v", c)
	}
	if _, found := kubetest.Read(w.DPU, mirror("b")); found {
		t.Error("the storage is asked for another")
	}
	if got := messageOn(w, "b"); !strings.Contains(got, "DPU dpu-a (VolumeAttachment a-vol, epoch 5)") {
		t.Errorf("it is told %q", got)
	}
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "a-vol")
	m, found := kubetest.Read(w.DPU, mirror("a"))
	if !found || m.Spec.Epoch != 0 || claimOf(w).Status.Lost[0].AttachmentUID != m.UID {
		t.Fatalf("found %v: %+v; the claim is %+v", found, m, claimOf(w).Status)
	}
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.ClearedEpoch, m.Status.DPU.RetiredEpoch = 5, 5 })
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Epoch != 6 || volumeOf(w).Status.LastGrant.Epoch != 6 || volumeOf(w).Status.LastGrant.Over {
		t.Errorf("the claim is %+v, it is remembered %+v", c, volumeOf(w).Status.LastGrant)
	}
}

// TestMarkIsNotMixed: a cache that is several grants behind shows a mark of the same DPU. What
// differs from that alone does not name the holder: the mark is written whole, or not at all.
func TestMarkIsNotMixed(t *testing.T) {
	want := storagev1alpha1.LastGrant{Epoch: 6, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: kubetest.AttachmentUID("a-vol")}
	for name, tc := range map[string]struct {
		epoch int64
		told  bool
	}{"over an earlier one": {5, true}, "not over one of the same epoch": {6, false}, "not over a later one": {7, false}} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			// It was granted epoch 6 later, and the program ended before it was remembered.
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Epoch = 0 })
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Status.Epoch = 6 })
			remember := func(last storagev1alpha1.LastGrant) {
				kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Status.LastGrant = &last })
			}
			remember(storagev1alpha1.LastGrant{Epoch: 4, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a"})
			w.CacheShows(volumeOf(w))
			before := storagev1alpha1.LastGrant{Epoch: tc.epoch, DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Over: true}
			remember(before)
			err := w.Reconcile(r, "a-vol")
			last := *volumeOf(w).Status.LastGrant
			m, found := kubetest.Read(w.DPU, mirror("a"))
			switch told := found && m.Spec.Epoch != 0; {
			case tc.told && (err != nil || last != want || m.Spec.Epoch != 6):
				t.Errorf("it is remembered %+v, the DPU learns of epoch %d, the pass ended with %v", last, m.Spec.Epoch, err)
			case !tc.told && (!apierrors.IsConflict(err) || last != before || told):
				t.Errorf("it is remembered %+v, the DPU learns of it: %t, the pass ended with %v", last, told, err)
			}
		})
	}
}

// TestTheMarkIsOver: of an epoch that is known to be over no DPU is asked: the next is above.
func TestTheMarkIsOver(t *testing.T) {
	w, r := open(t)
	lose(w, true)
	w.Host.Add(user("b"))
	w.MustReconcile(r, "b-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-b" || c.Epoch != 6 || c.LostEpoch != 5 {
		t.Errorf("the claim is %+v", c)
	}
}

// TestReplicaAfterALoss: for a replica too nothing is made before the claim says that it was
// lost: the storage would be opened to a DPU from which the volume was taken.
func TestReplicaAfterALoss(t *testing.T) {
	for name, gone := range map[string]bool{"restored": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			lose(w, true)
			if gone {
				loseClaim(w)
			}
			replica := user("b")
			replica.Spec.Role = storagev1alpha1.RoleReplica
			w.Host.Add(replica)
			w.AfterWrite(func(_ string, o client.Object) {
				if c := claimOf(w); gone && c.Spec.VolumeName != "" && c.Spec.AfterEpoch != 5 {
					t.Errorf("the claim does not say after which epoch it was made: %+v", c.Spec)
				}
				if _, ok := o.(*storagev1alpha1.VolumeAttachment); ok && (claimOf(w).Status == nil || claimOf(w).Status.LostEpoch != 5) {
					t.Errorf("the VolumeAttachment is made, and the claim is %+v", claimOf(w).Status)
				}
			})
			w.MustReconcile(r, "b-vol")
			if _, found := kubetest.Read(w.DPU, mirror("b")); !found {
				t.Error("the replica is not made")
			}
		})
	}
}

// TestMarkIsAskedFor: last before a grant the API server itself is asked for the mark. A cache
// that lacks it, after a restore of the DPU cluster, would have the epoch granted again, and
// freed for an attachment that never had it, while the DPU of the mark shows the volume.
func TestMarkIsAskedFor(t *testing.T) {
	for name, over := range map[string]bool{"which may be shown": false, "which is over": true} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("b"))
			lose(w, over)
			shown := volumeOf(w)
			shown.Status.LastGrant = nil
			w.CacheShows(shown)
			w.AfterWrite(func(_ string, o client.Object) {
				if c, ok := o.(*moorv1alpha1.WriterClaim); ok && c.Status != nil && c.Status.Phase == moorv1alpha1.ClaimGranted && c.Status.Epoch <= 5 {
					t.Errorf("epoch %d is granted to %s, and 5 is marked as that of dpu-a", c.Status.Epoch, c.Status.Holder)
				}
			})
			for range 3 {
				w.MustReconcile(r, "b-vol")
			}
			want := moorv1alpha1.ClaimLost
			if over {
				want = moorv1alpha1.ClaimGranted
			}
			if c := claimOf(w).Status; c.Phase != want || c.LostEpoch != 5 {
				t.Errorf("the claim is %+v", c)
			}
		})
	}
}

// TestVolumeIsAskedFor: nothing is granted of a volume that is gone, or is another one, for all
// that the cache shows.
func TestVolumeIsAskedFor(t *testing.T) {
	for name, change := range map[string]func(*kubetest.Clusters){
		"gone": func(w *kubetest.Clusters) { w.Host.Remove(kubetest.DPUVolume("vol")) },
		"another": func(w *kubetest.Clusters) {
			next := volumeOf(w)
			w.Host.Remove(next)
			next.UID, next.ResourceVersion = "another", ""
			w.Host.Add(next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("b"))
			w.CacheShows(volumeOf(w))
			change(w)
			w.MustReconcile(r, "b-vol")
			if c := claimOf(w); writer.Held(c) {
				t.Errorf("it is granted: %+v", c.Status)
			}
			if got := messageOn(w, "b"); !strings.Contains(got, "DPUVolume vol") {
				t.Errorf("it is told %q", got)
			}
		})
	}
}

// TestGrantedTwice: a claim that was restored has granted the epoch of the mark again. No DPU
// learns of it, and the claim is lost.
func TestGrantedTwice(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol") // epoch 1
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Epoch = 0 })
	kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 1, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "before"}
	})
	w.MustReconcile(r, "a-vol")
	if m, found := kubetest.Read(w.DPU, mirror("a")); found && m.Spec.Epoch != 0 {
		t.Error("the DPU learns of it")
	}
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimLost || c.Epoch != 2 {
		t.Errorf("the claim is %+v", c)
	}
}
